// Package eventcost measures the rate and the cost of the recorder's events on this
// machine.
package eventcost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker"
)

// ring is the ring size per CPU in bytes, the default of recorder.size.
const ring = 1 << 20

// irqFloor is the default of recorder.irq_floor.
const irqFloor = 10 * time.Microsecond

// Event is a type of event.
type Event struct {
	Group     string   `json:"group"`  // the narrowest group of recorder.events that contains it
	Groups    []string `json:"groups"` // all groups that contain it
	Event     string   `json:"event"`  // LTTng's name
	Fields    []string `json:"fields"` // LTTng's names, followed by ours
	Hook      string   `json:"hook"`
	Available bool     `json:"available"`
	Reason    string   `json:"reason,omitempty"` // why it is not available
	Cost      *Cost    `json:"measured,omitempty"`
}

// Cost is the measured cost of an event.
type Cost struct {
	Events     uint64  `json:"events"`
	ForNS      int64   `json:"for_ns"`
	PerSecond  float64 `json:"events_per_second"`
	NS         float64 `json:"ns_per_event"`       // net of an empty program
	NSGross    float64 `json:"ns_per_event_gross"` // as measured by the kernel
	CPUPercent float64 `json:"cpu_percent"`        // of one CPU
}

// ErrPrivilege means that privileges for measuring are missing.
var ErrPrivilege = errors.New("not measured: it needs root, or the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN")

// List lists all types of events without costs.
func List() ([]Event, error) {
	events, err := tracker.Events()
	if err != nil {
		return nil, err
	}
	list := make([]Event, 0, len(events))
	for i := range events {
		e := &events[i]
		t := trace.Type(e.Record)
		out := Event{
			Group: e.Groups[0], Groups: e.Groups, Event: eventName(e), Fields: t.Fields(),
			Hook: e.Hook, Available: e.Missing == nil,
		}
		if e.Missing != nil {
			out.Reason = e.Missing.Error()
		}
		list = append(list, out)
	}
	return list, nil
}

// eventName returns the event's name. System calls share one with a star, and two
// tracepoints of reclaim share a record type.
func eventName(e *tracker.Event) string {
	switch t := trace.Type(e.Record); t {
	case trace.SyscallEntry:
		return "syscall_entry_*"
	case trace.SyscallExit:
		return "syscall_exit_*"
	case trace.ReclaimBegin, trace.ReclaimEnd:
		return e.Hook[len("tp_btf:"):]
	default:
		return t.String()
	}
}

// Measure lists all events with costs. It records all groups for the given time with a
// kernel side of its own, while BPF run-time statistics are enabled; they are always
// disabled again. The list is complete even on error, which wraps ErrPrivilege if
// privileges are missing. Needs kernel 6.1+.
func Measure(ctx context.Context, length time.Duration) ([]Event, error) {
	list, err := List()
	if err != nil {
		return nil, err
	}
	kernel, err := tracker.New(nil, &tracker.Options{Groups: tracker.Groups, Ring: ring, IRQFloor: irqFloor, NoHistograms: true, Tasks: 64, Syscalls: 64, Requests: 64})
	if err != nil {
		return list, privilegeError(err)
	}
	defer kernel.Close() //nolint:errcheck // it is only measured
	none, err := NewBaseline()
	if err != nil {
		return list, privilegeError(err)
	}
	defer none.Close()
	if err := kernel.Attach(); err != nil {
		return list, privilegeError(err)
	}
	statistics, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return list, privilegeError(fmt.Errorf("enable BPF run-time statistics: %w", err))
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
	took := time.Since(begin)
	programs, err := kernel.ProgramStats()
	base, errBase := none.PerRun()
	if err := errors.Join(err, errBase, statistics.Close(), ctx.Err()); err != nil {
		return list, err
	}
	return list, addCosts(list, programs, base, took)
}

// addCosts fills in the costs. Events that share a program are counted with the first
// one.
func addCosts(list []Event, programs []tracker.ProgramStats, base float64, took time.Duration) error {
	events, err := tracker.Events()
	if err != nil {
		return err
	}
	for i := range events {
		at := slices.IndexFunc(programs, func(p tracker.ProgramStats) bool { return p.Name == events[i].Program })
		if at < 0 || i >= len(list) {
			continue
		}
		list[i].Cost = NewCost(programs[at].Runs, programs[at].RunTime, base, took)
	}
	return nil
}

// NewCost is the cost of a program that ran so often and so long; base: nanoseconds of an empty one.
func NewCost(runs uint64, ran time.Duration, base float64, took time.Duration) *Cost {
	p := &Cost{Events: runs, ForNS: took.Nanoseconds(), PerSecond: float64(runs) / took.Seconds()}
	if runs > 0 {
		p.NSGross = float64(ran.Nanoseconds()) / float64(runs)
		p.NS = max(p.NSGross-base, 0)
		p.CPUPercent = p.NS * p.PerSecond / 1e7
	}
	return p
}

func privilegeError(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: %w", ErrPrivilege, err)
	}
	return err
}
