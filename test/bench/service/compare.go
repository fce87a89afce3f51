package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/internal/api"
)

// printParts compares what is in with the same out, many times beside one client that goes
// on, so that nothing else differs: programs of no tailcam and other tools, with no tailcam
// attached, and then programs of each tailcam, with the others' out.
func (b *bench) printParts(ctx context.Context, w io.Writer) (err error) {
	clients, err := b.open(ctx)
	defer func() { err = errors.Join(err, stopAll(clients)) }()
	if err != nil {
		return err
	}
	for i, c := range clients {
		g, ok := c.(goesOn)
		if !ok {
			return fmt.Errorf("%s cannot go on while parts are taken out: leave it out with -only", b.loads[i].name)
		}
		rows, err := b.compareParts(ctx, g)
		if err != nil {
			return fmt.Errorf("%s: %w", b.loads[i].name, err)
		}
		if err := printRows(w, b.loads[i].title, rows); err != nil {
			return err
		}
	}
	return nil
}

// blockRounds are measured in a row: so many without any tailcam, and so many with those that are
// compared, in turn. What differs between two blocks, a tailcam as a whole is not blamed for.
const blockRounds = 5

// compareParts has rows of programs of no tailcam and of other tools, of the programs of each
// tailcam, and of each tailcam as a whole.
func (b *bench) compareParts(ctx context.Context, g goesOn) (rows []row, err error) {
	s, err := g.goOn(ctx)
	if err != nil {
		return nil, err
	}
	var visits []visit
	err = sleep(ctx, warmUp)
	for block := 0; block*blockRounds < b.opts.rounds && err == nil; block++ {
		rounds := min(blockRounds, b.opts.rounds-block*blockRounds)
		for _, measure := range []func(context.Context, steady, int) ([]visit, error){b.blockOfOthers, b.blockOfTailcams} {
			var some []visit
			if some, err = measure(ctx, s, rounds); err != nil {
				break
			}
			for i := range some {
				some[i].block = block
			}
			visits = append(visits, some...)
		}
		fmt.Fprintf(os.Stderr, "bench-service: %d of %d rounds\n", block*blockRounds+rounds, b.opts.rounds)
	}
	for i := range b.variants {
		if v := &b.variants[i]; v.limited() && err == nil {
			var some []visit
			some, err = b.withinBudget(ctx, s, v)
			visits = append(visits, some...)
		}
	}
	windows, endErr := s.end()
	if err := errors.Join(err, endErr); err != nil {
		return nil, err
	}
	for i := range visits {
		visits[i].window = windows[2*i] // those between are not measured
	}
	return b.rows(visits), nil
}

// blockOfOthers measures rounds without any tailcam: of programs that do next to nothing, and then of
// ftrace and perf, which leave something attached when they do not record.
func (b *bench) blockOfOthers(ctx context.Context, s steady, rounds int) (list []visit, err error) {
	if list, err = b.compareEmpty(ctx, s, rounds, compared()); err != nil {
		return nil, err
	}
	others, stop, err := b.others(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	more, err := b.compare(ctx, s, rounds, &set{parts: others})
	return append(list, more...), err
}

// blockOfTailcams measures rounds of each tailcam's programs, and then, without any, of empty ones
// in their place.
func (b *bench) blockOfTailcams(ctx context.Context, s steady, rounds int) (list []visit, err error) {
	list, empty, err := b.besideTailcams(ctx, s, rounds)
	if err != nil {
		return nil, err
	}
	more, err := b.compareEmpty(ctx, s, rounds, empty)
	return append(list, more...), err
}

// besideTailcams measures rounds of each tailcam's programs. It has empty ones for where each had its own.
func (b *bench) besideTailcams(ctx context.Context, s steady, rounds int) (list []visit, empty []part, err error) {
	known, err := knownMaps()
	if err != nil {
		return nil, nil, err
	}
	var sets []*set
	var daemons []*daemon
	for i := range b.variants {
		v := &b.variants[i]
		if !v.ours || v.limited() {
			continue
		}
		d, set, stop, attachErr := b.attach(ctx, v, known)
		defer func() { err = errors.Join(err, stop()) }()
		if attachErr != nil {
			return nil, nil, attachErr
		}
		sets, daemons = append(sets, set), append(daemons, d)
	}
	if list, err = b.compare(ctx, s, rounds, sets...); err != nil {
		return nil, nil, err
	}
	for _, d := range daemons {
		p, err := d.empty()
		if err != nil {
			return nil, nil, err
		}
		empty = append(empty, p)
	}
	return list, empty, nil
}

// compareEmpty measures rounds of programs that do next to nothing, with nothing else attached.
func (b *bench) compareEmpty(ctx context.Context, s steady, rounds int, parts []part) ([]visit, error) {
	list, err := b.compare(ctx, s, rounds, &set{parts: parts})
	for i := range list {
		list[i].nothing = !list[i].in
	}
	for i := range parts {
		err = errors.Join(err, parts[i].end())
	}
	return list, err
}

// withinBudget measures rounds of a tailcam once it has shed what it sheds for the client, in a
// row: with its programs out for long, it would cost so little that all came back. Then, without
// it, of empty ones where it had some left.
func (b *bench) withinBudget(ctx context.Context, s steady, v *variant) (list []visit, err error) {
	list, empty, err := b.besideLimited(ctx, s, v)
	if err != nil {
		return nil, err
	}
	more, err := b.compareEmpty(ctx, s, b.opts.rounds, []part{empty})
	return append(list, more...), err
}

func (b *bench) besideLimited(ctx context.Context, s steady, v *variant) (list []visit, empty part, err error) {
	known, err := knownMaps()
	if err != nil {
		return nil, empty, err
	}
	d, set, stop, err := b.attach(ctx, v, known)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, empty, err
	}
	if err := sleep(ctx, v.warm); err != nil {
		return nil, empty, err
	}
	status, err := d.api.Status(ctx)
	if err != nil {
		return nil, empty, err
	}
	var shed []string
	for _, part := range status.Cost.Shed {
		shed = append(shed, part.Part)
	}
	fmt.Fprintf(os.Stderr, "bench-service: %s costs %.2f %% of the machine, without %s\n", v.name, 100*status.Cost.CPU, strings.Join(shed, ", "))
	set.parts = set.parts[len(set.parts)-1:]
	if list, err = b.compare(ctx, s, b.opts.rounds, set); err != nil {
		return nil, empty, err
	}
	empty, err = d.empty()
	return list, empty, err
}

// knownMaps are those of tailcams that were not started here.
func knownMaps() (map[ebpf.MapID]bool, error) {
	known := map[ebpf.MapID]bool{}
	old, err := slotsBut(known)
	return known, errors.Join(err, old.close())
}

// attach starts a tailcam, and finds its programs; what it returns ends it, also after an error.
func (b *bench) attach(ctx context.Context, v *variant, known map[ebpf.MapID]bool) (d *daemon, s *set, stop func() error, err error) {
	stop = func() error { return nil }
	started, err := v.start(ctx, &b.env)
	if err != nil {
		return nil, nil, stop, fmt.Errorf("%s: %w", v.name, err)
	}
	stop = started.stop
	d = started.(*daemon)
	if err := d.pauseAll(ctx); err != nil {
		return nil, nil, stop, err
	}
	found, err := slotsBut(known)
	if err != nil {
		return nil, nil, stop, err
	}
	stop = func() error { return errors.Join(found.close(), started.stop()) }
	return d, &set{found.parts(v.name, d), found}, stop, nil
}

// others are ftrace and perf, told to record and not to, and how to end them.
func (b *bench) others(ctx context.Context) (list []part, stop func() error, err error) {
	stop = func() error { return nil }
	for i := range b.variants {
		v := &b.variants[i]
		if v.name != vFtrace && v.name != vPerf {
			continue
		}
		started, err := v.start(ctx, &b.env)
		if err != nil {
			return nil, stop, fmt.Errorf("%s: %w", v.name, err)
		}
		before := stop
		stop = func() error { return errors.Join(before(), started.stop()) }
		tool := started.(other)
		p := part{
			name: v.title,
			in:   func() error { return tool.Record(ctx, true) },
			out:  func() error { return tool.Record(ctx, false) },
		}
		if err := p.out(); err != nil {
			return nil, stop, err
		}
		list = append(list, p)
	}
	return list, stop, nil
}

// pauseAll pauses all rules: with programs taken out and put back, tasks seem to have waited
// for long. What is kept for each of them stays the same.
func (d *daemon) pauseAll(ctx context.Context) error {
	list, err := d.api.Rules(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		if err := d.api.Pause(ctx, &api.PauseRequest{Rule: list[i].Name}); err != nil {
			return err
		}
	}
	return nil
}

// set are parts that are compared while no other set is in. Those of a tailcam are in but for
// the one that is compared; others are out.
type set struct {
	parts []part
	slots slots
}

// alone has this set in, and no other one.
func (s *set) alone(sets []*set) error {
	var errs []error
	for _, other := range sets {
		errs = append(errs, other.slots.all(other == s))
	}
	return errors.Join(errs...)
}

// settling is how long the kernel may take to change what is attached.
const settling = 30 * time.Millisecond

// warmUp is how long a client goes on before anything is measured.
const warmUp = time.Second

// visit is a part that was in, or out, for a window.
type visit struct {
	part    string
	in      bool
	nothing bool // was attached
	block   int
	window  window
}

// compare measures all parts of all sets in turn, in each round.
func (b *bench) compare(ctx context.Context, s steady, rounds int, sets ...*set) (list []visit, err error) {
	for n := range rounds {
		for _, set := range sets {
			if err := set.alone(sets); err != nil {
				return nil, err
			}
			some, err := b.visitAll(ctx, s, set, n)
			if err != nil {
				return nil, err
			}
			list = append(list, some...)
		}
	}
	return list, nil
}

// visitAll measures each part of a set in and out, and leaves it as it was.
func (b *bench) visitAll(ctx context.Context, s steady, set *set, round int) (list []visit, err error) {
	length := time.Duration(b.opts.seconds * float64(time.Second))
	for i := range set.parts {
		p := &set.parts[i]
		if b.opts.match != nil && !b.opts.match.MatchString(p.name) {
			continue
		}
		for k := range 2 {
			in := (round+k)%2 == 1 // in turn what comes first
			err := p.set(in)
			if err == nil {
				err = oneWindow(ctx, s, length)
			}
			if err != nil {
				return nil, errors.Join(err, p.set(set.slots != nil))
			}
			list = append(list, visit{part: p.name, in: in})
		}
		if err := p.set(set.slots != nil); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// oneWindow lets what was changed settle, and marks the window after that.
func oneWindow(ctx context.Context, s steady, length time.Duration) error {
	if err := sleep(ctx, settling); err != nil {
		return err
	}
	if err := s.mark(); err != nil {
		return err
	}
	if err := sleep(ctx, length); err != nil {
		return err
	}
	return s.mark()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
