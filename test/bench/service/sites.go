package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tailcam/tailcam/explain/waitsites"
)

// siteLoads are those that -sites has run at once, unless others are asked for.
var siteLoads = []string{"redis", "nginx", "pgbench", "compile", "fio"}

// leastSites is the share of the time off CPUs that the dictionary of wait sites has to know.
const leastSites = 0.95

// sitePeriod is how often all tasks are looked at.
const sitePeriod = 20 * time.Millisecond

// whoWaits is whose waits are added up.
type whoWaits int

const (
	programs        whoWaits = iota // tasks of programs
	kernelThreads                   // most of them wait for work
	uninterruptible                 // of either, which only the stack explains
	whoWaitsKinds
)

var whoWaitsTitles = [whoWaitsKinds]string{"programs", "threads of the kernel", "uninterruptible, of either"}

// waited is the time of waits: of all, and of those that the dictionary knows.
type waited struct{ all, known time.Duration }

func (w *waited) share() float64 { return w.known.Seconds() / max(w.all.Seconds(), 1e-9) }

// siteTally adds up where tasks wait.
type siteTally struct {
	sums    [whoWaitsKinds]waited
	blind   time.Duration            // of programs and the kernel, without a stack: not known
	unknown map[string]time.Duration // by stack
}

// add adds a task that has waited for a time.
func (t *siteTally) add(p *sighting, of time.Duration) {
	_, known := waitsites.Wait(p.frames)
	if len(p.frames) == 0 {
		t.blind += of
	}
	kind := programs
	if p.kernel {
		kind = kernelThreads
	}
	kinds := []whoWaits{kind}
	if p.state == 'D' {
		kinds = append(kinds, uninterruptible)
	}
	for _, k := range kinds {
		t.sums[k].all += of
		if known {
			t.sums[k].known += of
		}
	}
	if !known {
		t.unknown[p.text()] += of
	}
}

// print prints the shares, and what is not known by size.
func (t *siteTally) print(w io.Writer) {
	fmt.Fprintf(w, "%-28s %12s %12s\n", "off a CPU", "seconds", "known")
	for k, s := range t.sums {
		fmt.Fprintf(w, "%-28s %12.1f %11.2f%%\n", whoWaitsTitles[k], s.all.Seconds(), 100*s.share())
	}
	fmt.Fprintf(w, "of it without a stack, which counts as not known: %.1f s\n", t.blind.Seconds())
	stacks := slices.SortedFunc(maps.Keys(t.unknown), func(a, b string) int {
		return int(t.unknown[b] - t.unknown[a])
	})
	for i, s := range stacks {
		if i == 0 {
			fmt.Fprintf(w, "\nnot in explain/waitsites, the innermost function first:\n")
		}
		fmt.Fprintf(w, "%12.2f s  %s\n", t.unknown[s].Seconds(), s)
	}
}

// check returns an error if the dictionary knows too little.
func (t *siteTally) check() error {
	for k, s := range t.sums {
		if s.all > 0 && s.share() < leastSites {
			return fmt.Errorf("the dictionary of wait sites (explain/waitsites) knows %.2f %% of the time of %s, and is to know %.0f %%",
				100*s.share(), whoWaitsTitles[k], 100*leastSites)
		}
	}
	if s := &t.sums[programs]; s.all == 0 {
		return errors.New("no task was seen that waits: is /proc/PID/stack there, and readable?")
	}
	return nil
}

// printSites lets all loads run at once, and prints how much of the time of tasks that are off
// their CPUs the dictionary of wait sites explains, by their stacks.
func (b *bench) printSites(ctx context.Context, w io.Writer) (err error) {
	clients, err := b.open(ctx)
	defer func() { err = errors.Join(err, stopAll(clients)) }()
	if err != nil {
		return err
	}
	b.say("sampling the stacks of all tasks")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	failed := make([]error, len(clients))
	for i, c := range clients {
		all.Go(func() {
			for ctx.Err() == nil && failed[i] == nil {
				if _, err := c.run(ctx); err != nil && ctx.Err() == nil {
					failed[i] = fmt.Errorf("%s: %w", b.loads[i].name, err)
				}
			}
		})
	}
	t := &siteTally{unknown: map[string]time.Duration{}}
	end := time.Now().Add(time.Duration(float64(b.opts.rounds) * b.opts.seconds * float64(time.Second)))
	for last := time.Now(); last.Before(end) && ctx.Err() == nil; {
		time.Sleep(time.Until(last.Add(sitePeriod)))
		now := time.Now()
		for p := range waiting("/proc") {
			t.add(p, now.Sub(last)) // as if it had waited since the last time
		}
		last = now
	}
	cancel()
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	t.print(w)
	return t.check()
}
