// Package perfetto writes a trace for ui.perfetto.dev and trace_processor.
//
// Every event of the trace becomes one ftrace event, from which Perfetto draws
// the CPUs, the states of threads, interrupts, system calls and work. What it
// does not draw from these (requests of disks, locks, throttling, stolen time)
// and what tailcam found out (the outliers, who woke whom, the critical path)
// become tracks of their own. trace.proto says what is written in which field.
package perfetto

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/export/fields"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// Task is what is known of a task beside the trace.
type Task struct {
	TID, PID, PPID int
	Comm, Cmdline  string
	Kernel         bool
}

// Options are what a Writer is told of the trace beforehand. Any may be empty.
type Options struct {
	Env         trace.Env
	ClockOffset time.Duration // CLOCK_REALTIME minus CLOCK_MONOTONIC
	CPUs        []int
	Tasks       []Task
	Names       fields.Names
	Outliers    []events.Outlier // by the numbers of the trace's markers
	Explained   *explain.Report
}

// Fields of TracePacket.
const (
	packetFtrace   protowire.Number = 1
	packetTree     protowire.Number = 2
	packetClock    protowire.Number = 6
	packetEvent    protowire.Number = 11
	packetSystem   protowire.Number = 45
	packetTrack    protowire.Number = 60
	packetSample   protowire.Number = 66
	packetInterned protowire.Number = 12
)

// Writer writes one trace. Its memory is bounded by the number of CPUs, of
// tasks and requests that are there at a time, and of outliers. It is not safe
// for concurrent use.
type Writer struct {
	out     *bufio.Writer
	opts    *Options
	names   *fields.Names
	begun   bool
	written uint64

	cpus     map[int]*bundle
	tasks    map[int]task // by tid
	tracks   map[uint64]bool
	symbols  map[uint64]bool
	open     map[uint64]int // slices that have begun on a track
	requests map[uint64]request
	lanes    map[uint32][]bool
	where    map[int]*context // by CPU
	current  map[int]*current // by CPU
	inserted uint64
	active   map[int][]*slow // by tid
	flows    uint64
	stacks   interned

	interned                            message // to go with the next packet
	fields                              []fields.Field
	body, event, field, scratch, packed message
}

// NewWriter returns a writer to out. Close it, and out after it.
func NewWriter(out io.Writer, opts *Options) *Writer {
	return &Writer{
		out: bufio.NewWriterSize(out, 64<<10), opts: opts, names: &opts.Names,
		cpus: map[int]*bundle{}, tasks: map[int]task{}, tracks: map[uint64]bool{}, symbols: map[uint64]bool{},
		open: map[uint64]int{}, requests: map[uint64]request{}, lanes: map[uint32][]bool{},
		where: map[int]*context{}, current: map[int]*current{}, active: map[int][]*slow{}, stacks: newInterned(),
	}
}

// Written returns how many ftrace events there are so far: one for each event
// of the trace that is not a marker.
func (w *Writer) Written() uint64 { return w.written }

// Event writes the next event in the order of time.
func (w *Writer) Event(ev *trace.Event) error {
	if ev.CPU >= maxCPUs {
		return fmt.Errorf("CPU %d: Perfetto reads traces of up to %d CPUs: choose another format", ev.CPU, maxCPUs)
	}
	if !w.begun {
		if err := w.begin(ev.Time); err != nil {
			return err
		}
	}
	if err := w.learn(ev); err != nil {
		return err
	}
	if m, ok := ev.Body.(trace.Marker); ok {
		return w.marker(ev, &m)
	}
	if err := w.follow(ev); err != nil {
		return err
	}
	if err := w.ftrace(ev); err != nil {
		return err
	}
	w.context(ev)
	if err := w.states(ev); err != nil {
		return err
	}
	return w.trackEvents(ev)
}

// Close writes what is left. discarded tells how many events of a CPU were lost.
func (w *Writer) Close(discarded func(cpu int) uint64) error {
	if !w.begun {
		if err := w.begin(0); err != nil {
			return err
		}
	}
	for _, cpu := range w.opts.CPUs {
		if w.cpus[cpu] == nil && cpu < maxCPUs {
			w.cpus[cpu] = &bundle{}
		}
	}
	for _, cpu := range slices.Sorted(maps.Keys(w.cpus)) {
		if err := w.flush(cpu, w.cpus[cpu], discarded(cpu) > 0); err != nil {
			return err
		}
	}
	return w.out.Flush()
}

// sequence is the number of our one sequence of packets.
const sequence = 1

// Bits of TracePacket.sequence_flags.
const (
	stateCleared = 1
	stateNeeded  = 2
)

// packet writes a packet with one message; now is 0 where none is needed.
func (w *Writer) packet(field protowire.Number, now uint64, m message) error {
	flags := uint64(stateNeeded)
	p := w.packed[:0]
	if now != 0 {
		p = p.uint(8, now)
	}
	p = p.uint(10, sequence)
	if !w.begun {
		w.begun = true
		flags |= stateCleared
		defaults := message{}.sub(12, message{}.sub(1, message{}.uint(1, 1).text(10, "outlier")))
		p = p.bool(87, true).sub(59, defaults)
	}
	p = p.uint(13, flags)
	if len(w.interned) > 0 {
		p = p.sub(packetInterned, w.interned)
		w.interned = w.interned[:0]
	}
	p = p.sub(field, m)
	w.packed = p
	_, err := w.out.Write(protowire.AppendVarint(protowire.AppendTag(w.scratchHead(), 1, protowire.BytesType), uint64(len(p))))
	if err == nil {
		_, err = w.out.Write(p)
	}
	return err
}

// scratchHead is room for a packet's head, on the stack of the caller.
func (w *Writer) scratchHead() []byte { return make([]byte, 0, 16) }

// begin writes what a reader must know first.
func (w *Writer) begin(now uint64) error {
	clock := func(id uint64, at int64) message { return message{}.uint(1, id).uint(2, uint64(max(at, 0))) }
	clocks := message{}.sub(1, clock(6, int64(now))).sub(1, clock(3, int64(now)))
	clocks = clocks.sub(1, clock(1, int64(now)+int64(w.opts.ClockOffset)))
	if err := w.packet(packetClock, now, clocks); err != nil {
		return err
	}
	e := &w.opts.Env
	uts := message{}.text(1, "Linux").text(2, e.KernelVersion).text(3, e.KernelRelease).text(4, e.Machine)
	system := message{}.sub(1, uts).uint(8, uint64(len(w.opts.CPUs)))
	if err := w.packet(packetSystem, now, system); err != nil {
		return err
	}
	if err := w.tree(now); err != nil {
		return err
	}
	return w.paths()
}
