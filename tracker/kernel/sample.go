package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// sampleNS is the period of samples: 99 Hz, so that they do not follow what runs in ticks.
const sampleNS = 10_101_010

// clocks is a program on a timer of each CPU: perf events of the kernel's CPU clock. It is
// a link, but for what links of one descriptor can do.
type clocks struct {
	link.Link // nil
	mu        sync.Mutex
	program   *ebpf.Program // nil: closed
	links     map[int]link.Link
}

// probeClock tells why this kernel has no CPU clocks.
func probeClock() error {
	if _, err := os.Stat("/proc/sys/kernel/perf_event_paranoid"); err != nil {
		return errors.New("this kernel has no perf events")
	}
	return nil
}

// attachClocks has a program run on every CPU that is online. Needs kernel 5.15+ (links of
// perf events).
func attachClocks(p *ebpf.Program) (*clocks, error) {
	c := &clocks{program: p, links: map[int]link.Link{}}
	if err := c.renew(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// renew attaches to CPUs that have come online, and forgets those that have gone: the
// kernel ends an event with its CPU.
func (c *clocks) renew() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.program == nil {
		return nil
	}
	online, err := onlineCPUs()
	if err != nil {
		return err
	}
	for cpu := range online {
		if c.links[cpu] != nil {
			continue
		}
		l, err := clockLink(c.program, cpu)
		if errors.Is(err, unix.ENODEV) {
			continue // it has just gone
		}
		if err != nil {
			return err
		}
		c.links[cpu] = l
	}
	for cpu, l := range c.links {
		if !online[cpu] {
			err = errors.Join(err, l.Close())
			delete(c.links, cpu)
		}
	}
	return err
}

func clockLink(p *ebpf.Program, cpu int) (link.Link, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: sampleNS, Bits: unix.PerfBitExcludeIdle}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a sampling timer on CPU %d: %w", cpu, err)
	}
	l, err := link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: p, Attach: ebpf.AttachPerfEvent})
	if err = errors.Join(err, unix.Close(fd)); err != nil { // the link holds the event
		return nil, fmt.Errorf("sample CPU %d: %w", cpu, err)
	}
	return l, nil
}

// Close ends it.
func (c *clocks) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, l := range c.links {
		errs = append(errs, l.Close())
	}
	c.program, c.links = nil, nil
	return errors.Join(errs...)
}

// KeepSampling samples CPUs that have come online. Once a second is often enough.
func (o *Objects) KeepSampling() error {
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	var errs []error
	for i := range o.links.list {
		if c, ok := o.links.list[i].Link.(*clocks); ok {
			errs = append(errs, c.renew())
		}
	}
	return errors.Join(errs...)
}

// takesWaitStacks reports whether stacks of long waits are taken, or shed.
func (o *Objects) takesWaitStacks() bool {
	p := o.Plan()
	return p.Groups["wait"] && p.tracksTasks()
}

// tracksTasks reports whether the tracker is there that knows how long tasks wait.
func (p *Plan) tracksTasks() bool { return p.Tracks[rules.Wakeup] || p.Tracks[rules.OffCPU] }

// partStats is what the parts of programs that take stacks have done: they count that
// themselves.
func (o *Objects) partStats() (list []ProgramStats, err error) {
	waits, runs := ProgramStats{Name: kinds.WaitStacks}, ProgramStats{Name: kinds.RunStacks}
	err = o.EachCPU(func(state *abi.CpuState) {
		waits.Runs += state.Waits.Taken
		waits.RunTime += time.Duration(state.Waits.TakenNs)
		runs.Runs += state.Runs.Taken
		runs.RunTime += time.Duration(state.Runs.TakenNs)
	})
	if o.takesWaitStacks() {
		list = append(list, waits)
	}
	if o.Plan().Groups["run"] {
		list = append(list, runs)
	}
	return list, err
}
