package trigger

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/rules"
)

// coredump is told by two BPF programs of threads that end by a signal that dumps core.
type coredump struct {
	spec    *rules.CoredumpSource
	path    func(cgroup uint64) (string, error)
	lost    func(uint64)
	objects bpf.CoredumpObjects
	links   []link.Link
	ring    *ringbuf.Reader
	counted uint64 // of deaths_lost
}

func openCoredump(spec *rules.CoredumpSource, path func(uint64) (string, error), lost func(uint64)) (source, error) {
	c := &coredump{spec: spec, path: path, lost: lost}
	if err := bpf.LoadCoredumpObjects(&c.objects, nil); err != nil {
		return nil, fmt.Errorf("watch for core dumps: %w", err)
	}
	// The end first: what dies meanwhile is told without its signal's details.
	for _, p := range []*ebpf.Program{c.objects.SchedProcessExit, c.objects.SignalDeliver} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			c.close()
			return nil, fmt.Errorf("watch for core dumps: %w", err)
		}
		c.links = append(c.links, l)
	}
	var err error
	if c.ring, err = ringbuf.NewReader(c.objects.Deaths); err != nil {
		c.close()
		return nil, fmt.Errorf("watch for core dumps: %w", err)
	}
	return c, nil
}

func (c *coredump) close() {
	if c.ring != nil {
		_ = c.ring.Close() // only read from
	}
	for _, l := range c.links {
		_ = l.Close() // the programs end with their links
	}
	_ = c.objects.Close()
}

func (c *coredump) watch(ctx context.Context, fire func(*Event)) error {
	defer context.AfterFunc(ctx, func() { _ = c.ring.Flush() })() // only fails if it is closed
	var record ringbuf.Record
	for {
		err := c.ring.ReadInto(&record)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read core dumps: %w", err)
		}
		if len(record.RawSample) < int(unsafe.Sizeof(abi.Death{})) {
			return errors.New("read core dumps: a message is too short")
		}
		c.countLost()
		if ev := c.event((*abi.Death)(unsafe.Pointer(&record.RawSample[0]))); ev != nil {
			fire(ev)
		}
	}
}

// countLost is called for each message: there are some where others were lost.
func (c *coredump) countLost() {
	var n uint64
	if c.objects.DeathsLost.Get(&n) == nil && n > c.counted {
		c.lost(n - c.counted)
		c.counted = n
	}
}

// event returns what a death means for the rule, or nil. Everything in it that a program
// chooses may be any bytes.
func (c *coredump) event(d *abi.Death) *Event {
	signal := unix.SignalName(unix.Signal(d.Status & abi.DeathSignal))
	comm := unix.ByteSliceToString(d.Comm[:])
	dumped := d.Status&abi.DeathDumped != 0
	if !c.spec.Wants(signal, comm, dumped) {
		return nil
	}
	task := &Task{
		PID: int(d.Pid), TID: int(d.Tid), UID: int(d.Uid), Comm: comm, Past: true,
		Cmdline: process.CommandLine(d.Args[:min(int(d.ArgsBytes), len(d.Args))]),
	}
	if p, err := c.path(d.Cgroup); err == nil {
		task.Cgroup = p
	}
	ev := &Event{Task: task, End: d.SignalNs, Reason: signal}
	switch {
	case d.SignalNs == 0:
		ev.End = d.ExitNs
	case d.Code <= 0 && d.Sender != 0 && d.Sender != d.Pid:
		ev.Reason += fmt.Sprintf(" sent by process %d", d.Sender)
	case faults[signal] && d.Code > 0 && d.Code < siKernel:
		ev.Reason += fmt.Sprintf(" at address %#x", d.Address)
	}
	switch {
	case !dumped:
		ev.Reason += ", no core dumped"
	case d.SignalNs == 0:
		ev.Reason += ", core dumped"
	default:
		ev.Reason += fmt.Sprintf(", core dumped in %s", time.Duration(d.ExitNs-d.SignalNs).Round(10*time.Microsecond))
	}
	return ev
}

// siKernel is SI_KERNEL: sent by the kernel, and no details.
const siKernel = 0x80

// faults are the signals that have an address.
var faults = map[string]bool{"SIGSEGV": true, "SIGBUS": true, "SIGILL": true, "SIGFPE": true, "SIGTRAP": true}
