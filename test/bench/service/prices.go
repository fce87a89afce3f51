package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/bench/stat"
)

// fewRuns of a program in a run of a load are too few for a price.
const fewRuns = 200

// spent is what a program has done.
type spent struct {
	runs uint64
	time time.Duration
}

// prices are what programs took in each round that they ran often enough: ns per
// run, and runs per second, by program and load.
type prices struct {
	ns, rate map[string]map[string][]float64
}

func (p *prices) add(load, program string, s spent, seconds float64) {
	if s.runs < fewRuns {
		return
	}
	if p.ns[program] == nil {
		p.ns[program], p.rate[program] = map[string][]float64{}, map[string][]float64{}
	}
	p.ns[program][load] = append(p.ns[program][load], float64(s.time.Nanoseconds())/float64(s.runs))
	p.rate[program][load] = append(p.rate[program][load], float64(s.runs)/seconds)
}

// printPrices lets each load run under tailcam as shipped while the kernel keeps BPF
// statistics, and prints what each program took. The statistics end with this
// process at the latest, as the kernel has them by a descriptor.
func (b *bench) printPrices(ctx context.Context, w io.Writer) (err error) {
	at := slices.IndexFunc(b.variants, func(v variant) bool { return v.ours })
	if at < 0 {
		return errors.New("-prices are of a tailcam: name one with -variants")
	}
	clients, err := b.open(ctx)
	defer func() { err = errors.Join(err, stopAll(clients)) }()
	if err != nil {
		return err
	}
	others, err := programTimes(nil)
	if err != nil {
		return err
	}
	p := &prices{map[string]map[string][]float64{}, map[string]map[string][]float64{}}
	for n := range b.opts.rounds {
		if err := b.priceRound(ctx, &b.variants[at], clients, others, p); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "bench-service: round %d of %d\n", n+1, b.opts.rounds)
	}
	p.print(w, b.loads)
	return nil
}

// priceRound has every load run once, and adds what the programs of the variant did.
func (b *bench) priceRound(ctx context.Context, v *variant, clients []client, others map[string]spent, p *prices) (err error) {
	w, err := v.start(ctx, &b.env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	on, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("enable BPF run-time statistics: %w", err)
	}
	defer on.Close()
	for i, c := range clients {
		b.say("prices under %s", b.loads[i].name)
		if err := b.price(ctx, v, w, &b.loads[i], c, others, p); err != nil {
			return fmt.Errorf("%s: %w", b.loads[i].name, err)
		}
	}
	return nil
}

// price has a load run once.
func (b *bench) price(ctx context.Context, v *variant, w running, l *load, c client, others map[string]spent, p *prices) (err error) {
	if v.tokens.on {
		take, giveErr := v.tokens.give(ctx, &b.env, w.(*daemon), c)
		if giveErr != nil {
			return giveErr
		}
		defer func() { err = errors.Join(err, take()) }()
	}
	before, err := programTimes(others)
	if err != nil {
		return err
	}
	start := time.Now()
	if _, err := c.run(ctx); err != nil {
		return err
	}
	after, err := programTimes(others)
	if err != nil {
		return err
	}
	seconds := time.Since(start).Seconds()
	for name, s := range after {
		p.add(l.name, name, spent{s.runs - before[name].runs, s.time - before[name].time}, seconds)
	}
	return nil
}

// programTimes is what all BPF programs that trace have done, but for those of some names.
func programTimes(but map[string]spent) (map[string]spent, error) {
	list := map[string]spent{}
	for id, err := ebpf.ProgramGetNextID(0); ; id, err = ebpf.ProgramGetNextID(id) {
		if errors.Is(err, os.ErrNotExist) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list BPF programs: %w", err)
		}
		name, s, ok := programTime(id)
		if _, other := but[name]; ok && !other {
			sum := list[name]
			list[name] = spent{sum.runs + s.runs, sum.time + s.time}
		}
	}
}

// programTime is what one program has done; false: it does not trace, or is gone.
func programTime(id ebpf.ProgramID) (name string, s spent, ok bool) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "", s, false
	}
	defer p.Close() //nolint:errcheck // only read from
	if p.Type() != ebpf.Tracing {
		return "", s, false
	}
	info, err := p.Info()
	if err != nil {
		return "", s, false
	}
	name = info.Name // at most 15 characters
	if functions, err := info.FuncInfos(); err == nil && len(functions) > 0 && functions[0].Func != nil {
		name = functions[0].Func.Name
	}
	stats, err := p.Stats()
	if err != nil {
		return "", s, false
	}
	return name, spent{stats.RunCount, stats.Runtime}, true
}

// print prints a line for each program and a column for each load that it ran in: the
// median of the rounds, their least and greatest, and runs per second.
func (p *prices) print(w io.Writer, loads []load) {
	fmt.Fprint(w, "ns of a run, gross: median (least to greatest), and runs per second\n\n| program")
	for i := range loads {
		fmt.Fprintf(w, " | %s", loads[i].title)
	}
	fmt.Fprintf(w, " |\n|---|%s\n", strings.Repeat("---:|", len(loads)))
	for _, program := range slices.Sorted(maps.Keys(p.ns)) {
		fmt.Fprintf(w, "| %s", program)
		for i := range loads {
			ns, rate := stat.Of(p.ns[program][loads[i].name]), stat.Of(p.rate[program][loads[i].name])
			if fmt.Fprint(w, " |"); ns.N > 0 {
				fmt.Fprintf(w, " %.0f (%.0f to %.0f), %s/s", ns.Median, ns.Min, ns.Max, number(rate.Median))
			}
		}
		fmt.Fprintln(w, " |")
	}
}
