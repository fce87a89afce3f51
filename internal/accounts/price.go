package accounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/internal/eventcost"
)

// Group is a group of accounts, with its values and programs.
type Group struct {
	Group    string    `json:"group"`
	Default  bool      `json:"default"` // on unless activities.groups says otherwise
	Values   []Value   `json:"values"`
	Programs []Program `json:"programs"`
	// Cost is what its programs cost all tasks of the machine together, as none takes part in
	// activities; absent if that was not measured.
	Cost *eventcost.Cost `json:"cost,omitempty"`
}

// Program is a program of the kernel side of activities. One may be of several groups.
type Program struct {
	Hook      string `json:"hook"`
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"` // why not
	// Cost is per run; absent if it was not measured.
	Cost *eventcost.Cost `json:"cost,omitempty"`

	name string
}

// schedulerPrograms are those of the group scheduler, in the order of attaching.
var schedulerPrograms = []string{"activity_exit", "activity_exec", "activity_fork", "activity_switch", "activity_waking"}

// List lists all groups without costs. It needs no privileges.
func List() ([]Group, error) {
	all, err := available(slices.Concat(values, ofProcess))
	if err != nil {
		return nil, err
	}
	absent, err := Missing(Names())
	if err != nil {
		return nil, err
	}
	var list []Group
	for _, name := range Names() {
		g := Group{Group: name, Default: slices.Contains(Default(), name), Programs: []Program{}}
		for i := range all {
			if all[i].Group == name {
				g.Values = append(g.Values, all[i])
			}
		}
		if name == Scheduler {
			for _, p := range schedulerPrograms {
				g.Programs = append(g.Programs, Program{Hook: hookOf(p).Site(), Available: true, name: p})
			}
		}
		for i := range Hooks {
			if h := &Hooks[i]; h.in([]string{name}) {
				p := Program{Hook: h.Site(), Available: absent[h.Program] == nil, name: h.Program}
				if !p.Available {
					p.Reason = absent[h.Program].Error()
				}
				g.Programs = append(g.Programs, p)
			}
		}
		list = append(list, g)
	}
	return list, nil
}

// Measure lists all groups with costs: it attaches a kernel side of its own with all
// groups for the given time, to the load that the machine has, while BPF run-time
// statistics are enabled. No process takes part: so this is what the groups cost all
// others. The list is complete even on error, which wraps eventcost.ErrPrivilege if
// privileges are missing. Needs kernel 6.1+.
func Measure(ctx context.Context, length time.Duration) ([]Group, error) {
	list, err := List()
	if err != nil {
		return nil, err
	}
	if err := measure(ctx, length, list); err != nil {
		if errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w: %w", eventcost.ErrPrivilege, err)
		}
		return list, err
	}
	return list, nil
}

func measure(ctx context.Context, length time.Duration, list []Group) error {
	spec, err := bpf.LoadActivity()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if _, err := Prepare(spec, Names()); err != nil {
		return err
	}
	objects, err := ebpf.NewCollection(spec)
	if err != nil {
		return fmt.Errorf("load the kernel side of activities: %w", err)
	}
	defer objects.Close()
	attached, err := Attach(objects.Programs)
	if err != nil {
		return err
	}
	defer attached.Close() //nolint:errcheck // it is only measured
	for _, name := range schedulerPrograms {
		l, err := link.AttachTracing(link.TracingOptions{Program: objects.Programs[name]})
		if err != nil {
			return fmt.Errorf("attach %s: %w", name, err)
		}
		attached.links = append(attached.links, l)
	}
	none, err := eventcost.NewBaseline()
	if err != nil {
		return err
	}
	defer none.Close()
	took, err := watch(ctx, length)
	if err != nil {
		return err
	}
	base, err := none.PerRun()
	if err != nil {
		return err
	}
	for i := range list {
		if err := list[i].read(objects.Programs, base, took); err != nil {
			return err
		}
	}
	return nil
}

// watch has statistics enabled for a while.
func watch(ctx context.Context, length time.Duration) (took time.Duration, err error) {
	statistics, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return 0, fmt.Errorf("enable BPF run-time statistics: %w", err)
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
	took = time.Since(begin)
	return took, errors.Join(statistics.Close(), ctx.Err())
}

// read fills in what the programs of a group have cost.
func (g *Group) read(programs map[string]*ebpf.Program, base float64, took time.Duration) error {
	var runs uint64
	var ran time.Duration
	for i := range g.Programs {
		p := &g.Programs[i]
		loaded := programs[p.name]
		if loaded == nil {
			continue
		}
		s, err := loaded.Stats()
		if err != nil {
			return fmt.Errorf("read the statistics of %s: %w", p.Hook, err)
		}
		p.Cost = eventcost.NewCost(s.RunCount, s.Runtime, base, took)
		runs, ran = runs+s.RunCount, ran+s.Runtime
	}
	if len(g.Programs) > 0 {
		g.Cost = eventcost.NewCost(runs, ran, base, took)
	}
	return nil
}
