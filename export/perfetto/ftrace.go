package perfetto

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tailcam/tailcam/export/fields"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// known is how Perfetto writes a kind of event: the field of FtraceEvent, and
// the field of each of our names in it. Names that are not there are left out.
type known struct {
	field protowire.Number
	names map[string]protowire.Number
}

var (
	wakeNames   = map[string]protowire.Number{"comm": 1, "tid": 2, "prio": 3, "target_cpu": 5}
	vecNames    = map[string]protowire.Number{"vec": 1}
	stateNames  = map[string]protowire.Number{"state": 1, "cpu_id": 2}
	workNames   = map[string]protowire.Number{"work": 1, "function": 2, "req_cpu": 4, "workqueue": 6}
	blockNames  = map[string]protowire.Number{"dev": 1, "sector": 2, "nr_sector": 3, "bytes": 4, "rwbs": 5, "comm": 6}
	timerNames  = map[string]protowire.Number{"timer": 1, "hrtimer": 1, "now": 2, "function": 3}
	orderNames  = map[string]protowire.Number{"order": 1}
	pagesNames  = map[string]protowire.Number{"nr_reclaimed": 1}
	returnNames = map[string]protowire.Number{"nr": 1, "ret": 2}
)

// knownEvents has the events that Perfetto's schema has, by kind. The others
// are written as GenericFtraceEvent.
var knownEvents = map[trace.Type]known{
	trace.SchedSwitch: {4, map[string]protowire.Number{
		"prev_comm": 1, "prev_tid": 2, "prev_prio": 3, "prev_state": 4, "next_comm": 5, "next_tid": 6, "next_prio": 7,
	}},
	trace.SchedWaking:    {20, wakeNames},
	trace.SchedWakeupNew: {114, wakeNames},
	trace.SchedMigrate:   {491, map[string]protowire.Number{"comm": 1, "tid": 2, "prio": 3, "orig_cpu": 4, "dest_cpu": 5}},
	trace.IRQEntry:       {36, map[string]protowire.Number{"irq": 1, "name": 2}},
	trace.IRQExit:        {37, map[string]protowire.Number{"irq": 1, "ret": 2}},
	trace.SoftirqEntry:   {24, vecNames},
	trace.SoftirqExit:    {25, vecNames},
	trace.HrtimerEntry:   {553, timerNames},
	trace.HrtimerExit:    {554, timerNames},
	trace.TimerEntry:     {557, timerNames},
	trace.TimerExit:      {558, timerNames},
	trace.BlockInsert:    {126, blockNames},
	trace.BlockIssue:     {45, blockNames},
	trace.BlockComplete:  {125, map[string]protowire.Number{"dev": 1, "sector": 2, "nr_sector": 3, "rwbs": 5, "status": 7}},
	trace.WorkStart:      {58, workNames},
	trace.WorkEnd:        {57, workNames},
	trace.WorkQueued:     {59, workNames},
	trace.ProcessFork: {239, map[string]protowire.Number{
		"parent_comm": 1, "parent_tid": 2, "child_comm": 3, "child_tid": 4,
	}},
	trace.ProcessExec:     {237, map[string]protowire.Number{"comm": 1, "tid": 2, "old_tid": 3}},
	trace.ProcessExit:     {238, map[string]protowire.Number{"comm": 1, "tid": 2, "pid": 3, "prio": 4}},
	trace.SyscallEntry:    {329, map[string]protowire.Number{"nr": 1, "arg0": 2, "arg1": 2, "arg2": 2, "arg3": 2, "arg4": 2}},
	trace.SyscallExit:     {330, returnNames},
	trace.ReclaimBegin:    {46, orderNames},
	trace.ReclaimEnd:      {47, pagesNames},
	trace.CompactionBegin: {99, map[string]protowire.Number{"sync": 5}},
	trace.CompactionEnd:   {103, map[string]protowire.Number{"status": 6}},
	trace.CPUIdle:         {13, stateNames},
	trace.CPUFrequency:    {11, stateNames},
	trace.NetReceive:      {360, map[string]protowire.Number{"len": 1, "name": 2, "skbaddr": 3}},
}

// Reclaim for a memory cgroup is an event of its own.
const (
	memcgReclaimBegin protowire.Number = 607
	memcgReclaimEnd   protowire.Number = 608
)

const genericEvent protowire.Number = 327

// bundle is the events of one CPU that wait to be written.
type bundle struct {
	events message // FtraceEventBundle.event, complete
}

// bundleBytes is about how large a bundle gets.
const bundleBytes = 8 << 10

// maxCPUs is how many CPUs Perfetto reads; it refuses a trace with more.
const maxCPUs = 1024

// ftrace appends the event to the bundle of its CPU.
func (w *Writer) ftrace(ev *trace.Event) error {
	b := w.cpus[ev.CPU]
	if b == nil {
		b = &bundle{}
		w.cpus[ev.CPU] = b
	}
	w.fields = fields.Append(w.fields[:0], ev, w.names)
	w.body = w.body[:0]
	field := genericEvent
	if k, ok := knownEvents[ev.Type]; ok {
		field = k.field
		if r, ok := ev.Body.(trace.Reclaim); ok && r.Memcg {
			field = memcgReclaimBegin
			if ev.Type == trace.ReclaimEnd {
				field = memcgReclaimEnd
			}
		}
		w.typed(&k)
	} else {
		w.generic(ev)
	}
	// Perfetto is quick if these three come in this order.
	w.event = w.event[:0].uint(1, ev.Time).uint(2, uint64(uint32(ev.TID))).sub(field, w.body)
	b.events = b.events.sub(2, w.event)
	w.written++
	if len(b.events) < bundleBytes {
		return nil
	}
	return w.flush(ev.CPU, b, false)
}

// typed writes the fields that Perfetto knows.
func (w *Writer) typed(k *known) {
	for i := range w.fields {
		f := &w.fields[i]
		n, ok := k.names[f.Name]
		switch {
		case !ok:
		case f.Kind == fields.Text:
			w.body = w.body.text(n, f.Text)
		default:
			w.body = w.body.uint(n, w.sized(f))
		}
		if f.Name == "function_name" && i > 0 {
			w.symbol(w.fields[i-1].Num, f.Text)
		}
	}
}

// sized cuts the states of a CPU to the 32 bits that Perfetto has for them.
func (w *Writer) sized(f *fields.Field) uint64 {
	if f.Name == "state" {
		return uint64(uint32(f.Num))
	}
	return f.Num
}

// generic writes all fields with their names.
func (w *Writer) generic(ev *trace.Event) {
	w.body = w.body.text(1, ev.Type.String())
	for i := range w.fields {
		f := &w.fields[i]
		m := w.field[:0].text(1, f.Name)
		switch f.Kind {
		case fields.Text:
			m = m.text(3, f.Text)
		case fields.Int:
			m = m.uint(4, f.Num)
		default:
			m = m.uint(5, f.Num)
		}
		w.field = m
		w.body = w.body.sub(2, m)
	}
}

// flush writes a CPU's bundle.
func (w *Writer) flush(cpu int, b *bundle, lost bool) error {
	m := w.scratch[:0].uint(1, uint64(cpu))
	m = append(m, b.events...)
	if lost {
		m = m.bool(3, true)
	}
	w.scratch, b.events = m, b.events[:0]
	return w.packet(packetFtrace, 0, m)
}
