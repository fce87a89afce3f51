package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const (
	// seldom is the number of rounds in one of which setups are measured that no target is about.
	seldom = 3
	// decides is the number of rounds of which a median may decide (package stat).
	decides = 5
	// halfSecond is the duration of hackbench: rounds bring more than their length.
	halfSecond = 500 * time.Millisecond
)

// bench is one run.
type bench struct {
	opts    *options
	dir     string // for what children write
	disk    *disk
	setups  []setup
	results map[string]*result // by the setup's name
}

// result is what was measured of one setup.
type result struct {
	visits []visit // one a round; of nothing several
	err    error   // why it stopped being measured
}

// visit is one setup in one round.
type visit struct {
	round   int
	took    took            // hackbench, statistics off
	getppid float64         // nanoseconds a call, statistics off
	hooks   map[string]cost // by hook
}

// cost is what all runs of a program took together.
type cost struct {
	runs uint64
	ns   float64
}

func (c cost) gross() float64 { return c.ns / float64(max(c.runs, 1)) }

// measure visits every setup once a round, so that whatever else the machine
// does meets all of them alike.
func (b *bench) measure(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Dir(b.opts.output), 0o755); err != nil {
		return err
	}
	if b.disk, err = openDisk(filepath.Dir(b.opts.output)); err != nil {
		return err
	}
	defer b.disk.file.Close()
	if err := b.calibrate(ctx); err != nil {
		return err
	}
	begin := time.Now()
	last := map[bool]time.Duration{} // what a round of all setups took, and one of the decisive
	for round := range b.opts.rounds {
		start := time.Now()
		all, fits := planned(round, b.opts.budget-time.Since(begin), last)
		if !fits {
			fmt.Fprintf(os.Stderr, "bench: %d of %d rounds fit into %s\n", round, b.opts.rounds, b.opts.budget)
			break
		}
		for i := range b.setups {
			s := &b.setups[i]
			if !b.wanted(s) || !all && !slices.Contains(decisive, s.name) {
				continue
			}
			progress("round %d of %d, %s: %s", round+1, b.opts.rounds, time.Since(begin).Round(time.Second), s.name)
			r := b.results[s.name]
			if r == nil {
				r = &result{}
				b.results[s.name] = r
			}
			if r.err != nil {
				continue
			}
			v, err := b.visit(ctx, s)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				r.err = fmt.Errorf("%s: %w", s.name, err)
				continue
			}
			v.round = round
			r.visits = append(r.visits, *v)
		}
		last[all] = time.Since(start)
	}
	return nil
}

// planned tells whether a round is one of all setups, and whether there is time for
// it, given what each kind took last. Only the decisive are measured where all would
// take the time of those rounds of them without which nothing is decided.
func planned(round int, left time.Duration, last map[bool]time.Duration) (all, fits bool) {
	needed := last[true] + time.Duration(max(decides-1-round, 0))*last[false]
	all = round%seldom == 0 && needed <= left
	return all, last[all] <= left
}

func (b *bench) wanted(s *setup) bool {
	return s.missing == "" && (b.opts.only.MatchString(s.name) || s.name == sNothing || s.name == sEmpty)
}

// calibrate warms up, and finds how long hackbench is to run.
func (b *bench) calibrate(ctx context.Context) error {
	loops := b.opts.loops
	loops = cmp.Or(loops, 200)
	t, err := hackbench(ctx, loops)
	if b.opts.loops == 0 && err == nil {
		b.opts.loops = max(50, int(float64(loops)*halfSecond.Seconds()/max(t.wall.Seconds(), 0.01)))
	}
	return err
}

// visit starts a setup, lets the loads run without and with statistics, and stops it.
func (b *bench) visit(ctx context.Context, s *setup) (v *visit, err error) {
	var r running = none{}
	if s.start != nil {
		if r, err = s.start(ctx); err != nil {
			return nil, err
		}
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	v = &visit{hooks: map[string]cost{}}
	v.getppid = getppid(b.opts.calls)
	if v.took, err = hackbench(ctx, b.opts.loops); err != nil {
		return nil, err
	}
	if s.start != nil {
		err = b.statistics(ctx, r, v)
	}
	return v, err
}

// statistics fills in what each program took under load.
func (b *bench) statistics(ctx context.Context, r running, v *visit) error {
	on, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("enable BPF statistics: %w", err)
	}
	defer on.Close()
	before, err := r.programs()
	if err != nil {
		return err
	}
	if _, err := hackbench(ctx, b.opts.loops); err != nil {
		return err
	}
	if err := b.disk.read(b.opts.reads); err != nil {
		return err
	}
	after, err := r.programs()
	if err != nil {
		return err
	}
	for _, p := range after {
		c := v.hooks[p.hook]
		c.runs += p.runs
		c.ns += float64(p.time.Nanoseconds())
		v.hooks[p.hook] = c
	}
	for _, p := range before {
		c := v.hooks[p.hook]
		c.runs -= p.runs
		c.ns -= float64(p.time.Nanoseconds())
		v.hooks[p.hook] = c
	}
	return nil
}

// failed joins what did not run.
func (b *bench) failed() error {
	var errs []error
	for _, s := range b.setups {
		if r := b.results[s.name]; r != nil {
			errs = append(errs, r.err)
		}
	}
	return errors.Join(errs...)
}

// none is no setup at all.
type none struct{}

func (none) programs() ([]program, error) { return nil, nil }
func (none) stop() error                  { return nil }
