package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// maxSteal is how much of a round's processor time the hypervisor may take,
// or else the round is repeated, and repeats is how many may be: this factor
// of those asked for.
const (
	maxSteal = 0.01
	repeats  = 1
)

// env is what loads and variants are given to run in.
type env struct {
	dir     string // private; others may pass through it
	disk    string // a directory on a disk
	seconds float64
	server  place // where servers run
	client  place // and their clients
}

// bench is one run of this program.
type bench struct {
	opts     *options
	env      env
	loads    []load
	variants []variant
	rounds   []round
}

// round has each variant once. Its ratios are of runs some ten seconds apart.
type round struct {
	Steal   float64                      `json:"steal"`   // share of all processor time
	Dropped bool                         `json:"dropped"` // for its steal
	Samples map[string]map[string]sample `json:"samples"` // by variant and load
}

// sample is one measured run of a load.
type sample struct {
	NS  float64 `json:"ns"`     // of a request
	P50 float64 `json:"p50_ns"` // median of latencies, as the client saw them; 0: it does not tell
	P99 float64 `json:"p99_ns"`
	CPU float64 `json:"cpu_ns"` // of client and server, for a request; 0: not measured

	history
	daemonWork
	Cost float64  `json:"cost,omitempty"` // of a tailcam with a budget: share of the machine, by its own account
	Shed []string `json:"shed,omitempty"` // and what it shed at the end

	requests float64 // that the client has made
}

// running is a load or a variant at work.
type running interface{ stop() error }

// open starts all loads, and lets each run once. The caller must stop all that it
// returns, also on error.
func (b *bench) open(ctx context.Context) (clients []client, err error) {
	for i := range b.loads {
		b.say("starting %s", b.loads[i].name)
		c, err := b.loads[i].start(ctx, &b.env)
		if err != nil {
			return clients, fmt.Errorf("%s: %w", b.loads[i].name, err)
		}
		clients = append(clients, c)
	}
	for i, c := range clients { // warms up
		if _, err := c.run(ctx); err != nil {
			return clients, fmt.Errorf("%s: %w", b.loads[i].name, err)
		}
	}
	return clients, nil
}

func stopAll(clients []client) error {
	var errs []error
	for _, c := range slices.Backward(clients) {
		errs = append(errs, c.stop())
	}
	return errors.Join(errs...)
}

// measure starts all loads, and measures all rounds.
func (b *bench) measure(ctx context.Context) (err error) {
	clients, err := b.open(ctx)
	defer func() { err = errors.Join(err, stopAll(clients)) }()
	if err != nil {
		return err
	}
	good, tries := 0, b.opts.rounds*(1+repeats)
	if b.opts.quick {
		tries = b.opts.rounds
	}
	begin := time.Now()
	for n := 0; n < tries && good < b.opts.rounds; n++ {
		r, err := b.round(ctx, clients, n)
		if err != nil {
			return err
		}
		r.Dropped = r.Steal > maxSteal
		note := ""
		if r.Dropped {
			note = ": more than 1 %, to be repeated"
		} else {
			good++
		}
		b.rounds = append(b.rounds, *r)
		fmt.Fprintf(os.Stderr, "bench-service: round %d of %d, %s, steal %.2f %%%s\n",
			n+1, b.opts.rounds, time.Since(begin).Round(time.Second), 100*r.Steal, note)
	}
	keep(b.rounds, b.opts.rounds)
	return nil
}

// keep takes those with the least steal where there are too few without.
func keep(rounds []round, wanted int) {
	order := make([]*round, len(rounds))
	good := 0
	for i := range rounds {
		order[i] = &rounds[i]
		if !rounds[i].Dropped {
			good++
		}
	}
	slices.SortStableFunc(order, func(x, y *round) int {
		switch {
		case x.Steal < y.Steal:
			return -1
		case x.Steal > y.Steal:
			return 1
		}
		return 0
	})
	for _, r := range order {
		if good < wanted && r.Dropped {
			r.Dropped = false
			good++
		}
	}
}

// round visits each variant once, beginning with another in each round, so
// that whatever else the machine does meets all of them alike.
func (b *bench) round(ctx context.Context, clients []client, n int) (*round, error) {
	r := &round{Samples: map[string]map[string]sample{}}
	before, err := cpuTimes()
	if err != nil {
		return nil, err
	}
	groups := together(b.variants)
	for i := range groups {
		if err := b.visit(ctx, groups[(i+n)%len(groups)], clients, n, r.Samples); err != nil {
			return nil, err
		}
	}
	after, err := cpuTimes()
	if err != nil {
		return nil, err
	}
	r.Steal = after.steal(before)
	return r, nil
}

// timed runs a client, and shares the processor time of all its processes and
// its server among the requests.
func timed(ctx context.Context, c client) (sample, error) {
	before, err := usedBy(c)
	if err != nil {
		return sample{}, err
	}
	s, err := c.run(ctx)
	if err != nil {
		return s, err
	}
	after, err := usedBy(c)
	if s.requests > 0 {
		s.CPU = float64((after - before).Nanoseconds()) / s.requests
	}
	return s, err
}

// usedBy is the processor time of a client's server and of all processes that
// this one has waited for.
func usedBy(c client) (time.Duration, error) {
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &own); err != nil {
		return 0, err
	}
	used := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	if s, ok := c.(interface{ cpu() time.Duration }); ok {
		used += s.cpu()
	}
	return used, nil
}

// visit runs each load under variants that share what is started. Each round begins with another of them.
func (b *bench) visit(ctx context.Context, group []variant, clients []client, n int, samples map[string]map[string]sample) (err error) {
	w, err := group[0].start(ctx, &b.env)
	if err != nil {
		return fmt.Errorf("%s: %w", group[0].name, err)
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	for i, c := range clients {
		for k := range group {
			v, load := &group[(k+n)%len(group)], b.loads[i].name
			if !v.measures(load) {
				continue
			}
			b.say("%s, %s", v.name, load)
			s, err := b.sample(ctx, v, w, c)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", v.name, load, err)
			}
			if samples[v.name] == nil {
				samples[v.name] = map[string]sample{}
			}
			samples[v.name][load] = s
		}
	}
	return ctx.Err()
}

// sample is one run of a load under a variant at work, once both have settled.
func (b *bench) sample(ctx context.Context, v *variant, w running, c client) (s sample, err error) {
	d, ok := w.(*daemon)
	if v.tokens.on {
		take, giveErr := v.tokens.give(ctx, &b.env, d, c)
		if giveErr != nil {
			return s, giveErr
		}
		defer func() { err = errors.Join(err, take()) }()
	}
	if err := warm(ctx, c, v.warm); err != nil {
		return s, err
	}
	if ok && v.warm <= firstRun {
		if err := d.calm(ctx, c); err != nil {
			return s, err
		}
	}
	if v.accounted {
		return d.accounted(ctx, c)
	}
	return observed(ctx, w, c)
}

// warm lets a load run for a while before it is measured.
func warm(ctx context.Context, c client, length time.Duration) error {
	for begin := time.Now(); time.Since(begin) < length; {
		if _, err := c.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// firstSnapshots is how many runs a load may have until rules have taken the snapshots that
// they may take at once (burst); further ones come every ten seconds.
const firstSnapshots = 5

// calm lets a load run until a run has no snapshot, and waits until the daemon is done.
func (d *daemon) calm(ctx context.Context, c client) error {
	for range firstSnapshots {
		settle(ctx, d.cmd.Process.Pid)
		before, err := d.api.Status(ctx)
		if err != nil {
			return err
		}
		if _, err := c.run(ctx); err != nil {
			return err
		}
		after, err := d.api.Status(ctx)
		if err != nil {
			return err
		}
		if written(after) == written(before) {
			break
		}
	}
	settle(ctx, d.cmd.Process.Pid)
	return nil
}

// observed is a timed run, with what a tailcam says of it.
func observed(ctx context.Context, w running, c client) (sample, error) {
	d, ok := w.(*daemon)
	if !ok {
		return timed(ctx, c)
	}
	var r observation
	var err error
	if r.before, err = d.api.Status(ctx); err != nil {
		return sample{}, err
	}
	settle(ctx, d.cmd.Process.Pid) // to answer, and to collect its garbage, would be in the load's way
	begin, used := time.Now(), d.cpu()
	s, err := timed(ctx, c)
	if err != nil {
		return s, err
	}
	r.took, r.cpu = time.Since(begin), d.cpu()-used
	if r.after, err = d.api.Status(ctx); err != nil {
		return s, err
	}
	s.history, s.daemonWork = r.history(), r.work()
	if k := r.after.Cost; k != nil && k.BudgetCPU > 0 {
		s.Cost = k.CPU
		for _, p := range k.Shed {
			s.Shed = append(s.Shed, p.Part)
		}
	}
	return s, nil
}
