// Package eventcost measures on this machine what each kind of the recorder's
// events costs, and how many there are.
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

// ring is the size of one CPU's ring while it is measured, in bytes:
// recorder.size's default.
const ring = 1 << 20

// Event is one kind of event.
type Event struct {
	Group     string   `json:"group"`  // the narrowest of recorder.events that has it
	Groups    []string `json:"groups"` // all of them
	Event     string   `json:"event"`  // LTTng's name
	Fields    []string `json:"fields"` // LTTng's names, ours behind them
	Hook      string   `json:"hook"`
	Available bool     `json:"available"`
	Reason    string   `json:"reason,omitempty"` // why not
	Cost      *Cost    `json:"measured,omitempty"`
}

// Cost is what was measured of one kind of event.
type Cost struct {
	Events     uint64  `json:"events"`
	ForNS      int64   `json:"for_ns"`
	PerSecond  float64 `json:"events_per_second"`
	NS         float64 `json:"ns_per_event"`       // less what an empty program is said to take
	NSGross    float64 `json:"ns_per_event_gross"` // as the kernel counts
	CPUPercent float64 `json:"cpu_percent"`        // of one CPU
}

// ErrPrivilege tells that the machine was not measured, and what it takes.
var ErrPrivilege = errors.New("not measured: it needs root, or the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN")

// List lists all kinds of events, without prices.
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

// eventName is the event's name: system calls have their own in place of the star,
// and two tracepoints of reclaim share a type of record.
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

// Measure lists them with prices: it records every group on this machine for
// that long, with a kernel side of its own that no daemon knows of, while the
// kernel counts the time of all BPF programs. It never leaves that on. The
// list is complete even if there is an error, which wraps ErrPrivilege where
// that is why nothing was measured. Needs kernel 6.1+.
func Measure(ctx context.Context, length time.Duration) ([]Event, error) {
	list, err := List()
	if err != nil {
		return nil, err
	}
	kernel, err := tracker.New(nil, &tracker.Options{Groups: tracker.Groups, Ring: ring, NoHistograms: true, Tasks: 64, Syscalls: 64, Requests: 64})
	if err != nil {
		return list, privilegeError(err)
	}
	defer kernel.Close() //nolint:errcheck // it is only measured
	none, err := startBaseline()
	if err != nil {
		return list, privilegeError(err)
	}
	defer none.close()
	if err := kernel.Attach(); err != nil {
		return list, privilegeError(err)
	}
	statistics, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return list, privilegeError(fmt.Errorf("let the kernel count the time of BPF programs: %w", err))
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
	took := time.Since(begin)
	programs, err := kernel.ProgramStats()
	base, errBase := none.perRun()
	if err := errors.Join(err, errBase, statistics.Close(), ctx.Err()); err != nil {
		return list, err
	}
	return list, addCosts(list, programs, base, took)
}

// addCosts notes what was counted. What shares a program with another event is
// counted there.
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
		list[i].Cost = newCost(programs[at].Runs, programs[at].RunTime, base, took)
	}
	return nil
}

func newCost(runs uint64, ran time.Duration, base float64, took time.Duration) *Cost {
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
