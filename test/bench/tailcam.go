package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/tracker"
)

const (
	// threshold is what no event of the load reaches: the way of an event that
	// is not slow is what is measured, of tailcam and of every other tool.
	threshold = time.Second
	// ringSize is recorder.size's default.
	ringSize = 2 << 20
	// irqFloor is recorder.irq_floor's default.
	irqFloor = 10 * time.Microsecond
)

// everyGroup is recorder.events' default.
var everyGroup = []string{"sched", "irq", "timer", "block", "workqueue", "process", "reclaim", "lock", "throttle", "wait", "run"}

// tailcam is the kernel side with its recorder, and nothing of the daemon but
// the reader of outliers.
type tailcam struct {
	kernel   *tracker.Tracker
	recorder flight.Recorder // nil: none
}

// tailcamWith starts tailcam with rules and the recorder's groups of events.
func tailcamWith(list []rules.Rule, groups ...string) func(context.Context) (running, error) {
	return startTailcam(list, "mmap", groups)
}

// startTailcam starts it with one of the recorder's backends.
func startTailcam(list []rules.Rule, backend string, groups []string) func(context.Context) (running, error) {
	return func(context.Context) (running, error) {
		opts := &tracker.Options{Groups: groups, IRQFloor: irqFloor}
		if backend == "mmap" && len(groups) > 0 {
			opts.Ring = ringSize
		}
		return startOptions(list, opts)
	}
}

// startOptions starts it with any options.
func startOptions(list []rules.Rule, opts *tracker.Options) (running, error) {
	kernel, err := tracker.New(list, opts)
	if err != nil {
		return nil, err
	}
	t := &tailcam{kernel: kernel}
	for name, why := range kernel.Inactive() {
		return nil, errors.Join(fmt.Errorf("rule %s: %w", name, why), t.stop())
	}
	if len(opts.Groups) > 0 {
		backend := flight.BackendPerf
		if opts.Ring > 0 {
			backend = flight.BackendMmap
		}
		if t.recorder, err = flight.New(kernel, backend, ringSize); err != nil {
			t.recorder = nil
			return nil, errors.Join(err, t.stop())
		}
	}
	go func() {
		for {
			if _, err := kernel.Read(); err != nil {
				return // it is stopped
			}
		}
	}()
	if err := kernel.Attach(); err != nil {
		return nil, errors.Join(err, t.stop())
	}
	return t, nil
}

func (t *tailcam) programs() ([]program, error) {
	stats, err := t.kernel.ProgramStats()
	if err != nil {
		return nil, err
	}
	var list []program
	for _, s := range stats {
		list = append(list, program{hookOf(s.Name), s.Runs, s.RunTime})
	}
	return list, nil
}

func (t *tailcam) stop() error {
	err := t.kernel.Stop()
	if t.recorder != nil {
		err = errors.Join(err, t.recorder.Close())
	}
	return errors.Join(err, t.kernel.Close())
}

// attach is what syscall rules must ask for: the kernel may have nothing else.
func attach(track rules.Track) rules.Attach {
	if track == rules.Syscall {
		return rules.AttachAll
	}
	return ""
}

// oneRule makes a rule without conditions for each tracker.
func oneRule(tracks ...rules.Track) []rules.Rule {
	var list []rules.Rule
	for _, t := range tracks {
		list = append(list, rules.Rule{
			Name: string(t), Track: t, Attach: attach(t), Threshold: threshold, Stacks: []rules.Stack{rules.KernelStack},
		})
	}
	return list
}

// callRule is a syscall rule that names one call.
func callRule(name string) []rules.Rule {
	nr, ok := rules.SyscallNumber(name)
	if !ok {
		nr = 0
	}
	list := oneRule(rules.Syscall)
	list[0].When.Syscall = []int{nr}
	return list
}

// startShipped starts tailcam with the rules that come with it. Unlike the
// others they have thresholds that the load may reach.
func startShipped(ctx context.Context) (running, error) {
	list, err := rules.Load([]string{"configs/rules.d"}, &rules.LocalMachine{})
	if err != nil {
		return nil, fmt.Errorf("%w (run it from the repository's root)", err)
	}
	// Those of system calls may be inactive here, as they are for the daemon.
	list = slices.DeleteFunc(list, func(r rules.Rule) bool { return r.Track == rules.Syscall })
	return tailcamWith(list, everyGroup...)(ctx)
}

func withThreshold(list []rules.Rule, threshold time.Duration) []rules.Rule {
	return changed(list, func(r *rules.Rule) { r.Threshold = threshold })
}

func withUserStacks(list []rules.Rule) []rules.Rule {
	return changed(list, func(r *rules.Rule) { r.Stacks = []rules.Stack{rules.KernelStack, rules.UserStack} })
}

func changed(list []rules.Rule, change func(*rules.Rule)) []rules.Rule {
	list = slices.Clone(list)
	for i := range list {
		change(&list[i])
	}
	return list
}

// builtin are the trackers of "everything".
var builtin = []rules.Track{rules.Wakeup, rules.OffCPU, rules.Syscall, rules.Block}

// manyRules makes n rules over all trackers, with conditions and overrides.
func manyRules(n int) []rules.Rule {
	list := oneRule(builtin...)
	for i := len(list); i < n; i++ {
		list = append(list, rules.Rule{
			Name:      fmt.Sprintf("rule-%d", i),
			Track:     builtin[i%len(builtin)],
			Attach:    attach(builtin[i%len(builtin)]),
			Threshold: threshold + time.Duration(i)*time.Millisecond,
			When:      rules.Match{Comm: []string{fmt.Sprintf("app-%d-*", i), "*-worker"}, NotUID: []uint32{65534}},
			Overrides: []rules.Override{{When: rules.Match{UID: []uint32{1000}}, Threshold: 2 * threshold}},
			Stacks:    []rules.Stack{rules.KernelStack},
		})
	}
	return list
}
