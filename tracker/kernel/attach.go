package kernel

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/tracker/kinds"
	"github.com/tailcam/tailcam/tracker/pins"
)

// Attachment is one program on one hook.
type Attachment struct {
	Program string
	Hook    string
	Rule    string // whose declared pair it is; empty: none's
	Slow    bool   // detaching it may take 100 ms and more: Stop does not wait for it
	Link    link.Link
	Loaded  *ebpf.Program
}

// links are what is attached.
type links struct {
	mu      sync.Mutex
	list    []Attachment
	shed    map[string]bool // programs that Shed has detached
	stopped bool

	shedding Shedding // as Shed was told last
}

// Attach attaches the programs of trackers and recorder, in an order in which
// nothing is left pending by the start. The recorder's rings should stand in
// Banks by then.
func (o *Objects) Attach() error {
	if o.pinning.takeover.Taken {
		return o.attachTaken()
	}
	for i := range kinds.Hooks {
		h := &kinds.Hooks[i]
		j := o.hooks[h.Program]
		if j == nil {
			continue
		}
		a, err := o.attachHook(h, j)
		if err != nil && h.Trackers() == nil {
			o.Plan().Unrecorded[h.Site()] = err
			continue
		}
		if err != nil {
			return err
		}
		o.AddLink(a)
	}
	err := o.seedNames()
	o.pinning.since = linux.Monotonic()
	o.pinComplete()
	return err
}

// AddLink takes over what was attached elsewhere: Stop detaches it.
func (o *Objects) AddLink(a Attachment) {
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	o.links.list = append(o.links.list, a)
}

// DetachRule detaches the hooks of a declared pair.
func (o *Objects) DetachRule(rule string) error {
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	var errs []error
	o.links.list = slices.DeleteFunc(o.links.list, func(a Attachment) bool {
		if a.Rule != rule {
			return false
		}
		errs = append(errs, a.Link.Close())
		return true
	})
	return errors.Join(errs...)
}

// DetachProgram detaches a program.
func (o *Objects) DetachProgram(p *ebpf.Program) error {
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	var errs []error
	o.links.list = slices.DeleteFunc(o.links.list, func(a Attachment) bool {
		if a.Loaded != p {
			return false
		}
		errs = append(errs, a.Link.Close())
		return true
	})
	return errors.Join(errs...)
}

// Programs lists what is attached: BPF program and hook.
func (o *Objects) Programs() [][2]string {
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	var list [][2]string
	for _, a := range o.links.list {
		list = append(list, [2]string{a.Program, a.Hook})
	}
	return list
}

// ProgramStats is what the kernel has counted of one attached program.
type ProgramStats struct {
	Name    string // in bpf/tailcam.bpf.c, which is also its hook's name
	Runs    uint64 // while statistics were enabled
	RunTime time.Duration
	Missed  uint64 // runs that the kernel skipped: the program would have interrupted itself
}

// ProgramStats reads the run time of every attached program. The kernel counts
// only while BPF statistics are enabled (ebpf.EnableStats, or the sysctl
// kernel.bpf_stats_enabled); otherwise Runs and RunTime stand still. Needs
// kernel 5.12+ and CAP_SYS_ADMIN. After Stop the list is empty.
func (o *Objects) ProgramStats() ([]ProgramStats, error) {
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	list := make([]ProgramStats, 0, len(o.links.list))
	for _, a := range o.links.list {
		s, err := a.Loaded.Stats()
		if err != nil {
			return nil, fmt.Errorf("read statistics of program %s: %w", a.Program, err)
		}
		list = append(list, ProgramStats{a.Program, s.RunCount, s.Runtime, s.RecursionMisses})
	}
	parts, err := o.partStats()
	return append(list, parts...), err
}

// Missed are runs that the kernel skipped, by program: it would have interrupted itself, or
// another task was preempted in it (see Preemption).
type Missed map[string]uint64

// Sum is that of all programs.
func (m Missed) Sum() (sum uint64) {
	for _, n := range m {
		sum += n
	}
	return sum
}

// Missed counts them, where the kernel tells (5.12+).
func (o *Objects) Missed() Missed {
	o.links.mu.Lock()
	list := slices.Clone(o.links.list)
	o.links.mu.Unlock()
	missed := Missed{}
	for _, a := range list {
		if h := kinds.HookOf(a.Program); h != nil && h.Skipped != "" {
			continue // it has nothing to tell of its own
		}
		if s, err := a.Loaded.Stats(); err == nil && s.RecursionMisses > 0 {
			missed[a.Program] = s.RecursionMisses
		}
	}
	return missed
}

// stopTime is how long Stop waits for what is slow to detach.
const stopTime = 300 * time.Millisecond

// Stop detaches everything. Counters and the recorder can still be read until
// Close. What is slow to detach (see Attachment) goes on in the background, or
// at the end of the process, in the kernel; it must do nothing by then.
func (o *Objects) Stop() error {
	o.links.mu.Lock()
	list, first := slices.Clone(o.links.list), !o.links.stopped
	o.links.list, o.links.stopped = nil, true
	errs := []error{o.stopHeartbeat()}
	o.links.mu.Unlock()
	if store := o.pinning.to(); store != nil && first && !o.Leaves() { // else the store's owner is the last who has them, and waits for the kernel
		errs = append(errs, pins.Clear(store), store.Sync())
	}
	var slow []Attachment
	for _, a := range slices.Backward(list) {
		if a.Slow {
			slow = append(slow, a)
			continue
		}
		errs = append(errs, o.endLink(a.Link))
	}
	done := make(chan error, 1)
	go func() { done <- o.endLinks(slow) }()
	select {
	case err := <-done:
		errs = append(errs, err)
	case <-time.After(stopTime):
	}
	return errors.Join(errs...)
}

func (o *Objects) endLinks(list []Attachment) error {
	var errs []error
	for _, a := range list {
		errs = append(errs, o.endLink(a.Link))
	}
	return errors.Join(errs...)
}
