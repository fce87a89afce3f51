package explain

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// ioTimers are functions of timers with which controllers of block I/O let a task go on.
var ioTimers = []string{"iocg_waitq_timer_fn", "blkiolatency_timer_fn"}

// throttledBios is the function of the work item that submits what io.max has held back.
const throttledBios = "blk_throtl_dispatch_work_fn"

// writes are the system calls that make pages dirty.
var writes = []string{
	"write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "sendfile64", "splice", "copy_file_range", "fallocate",
	"io_uring_enter", "io_submit",
}

// minRTLimit is how long a real-time task that had the CPU is at least kept from it by the
// limit of all real-time tasks: 50 ms of each second by default.
const minRTLimit = 1_000_000

// isRealTime reports whether a task had a real-time priority in a segment.
func (t *task) isRealTime(s *segment) bool { return t.prioIn(s) < realTime }

// reclaimBefore is how long after it has reclaimed memory a task is put to sleep by
// memory.high at most (mem_cgroup_handle_over_high of the kernel).
const reclaimBefore = 2_000_000

// limited explains a sleep whose length the kernel chose: tasks that want to sleep do so
// interruptibly. False: the sleep is not of that kind.
func (w *walker) limited(t *task, p *piece, full *segment, call string) bool {
	fn := ""
	if x := full.wake.ctx; x != nil {
		fn = w.m.function(x.function)
	}
	ours := slices.Contains(ioTimers, fn)
	if !ours && (full.bits&taskUninterruptible == 0 || w.m.kernelThread(t.tid)) {
		return false
	}
	p.cause, p.evidence, p.by = Limited, byKernelsChoice, w.m.whoIOWeight(t)
	switch {
	case ours:
		p.wait, p.evidence = waitIODelay, byRecords
	case full.iowait && (slices.Contains(writes, call) || full.call == trace.CallException):
		p.wait, p.by = waitDirtyPages, w.m.whoIsWritten(p.from, p.to)
	case full.iowait:
		p.wait = waitIODelay
	case t.reclaimedBefore(full.from):
		p.wait, p.evidence, p.by = waitMemoryHigh, byReclaimBefore, w.m.whoMemoryLimit(t, "memory.high")
	default:
		p.wait, p.by = waitDelay, w.m.whoSelf("delay")
	}
	return true
}

// limitedBySite explains a wait whose place in the kernel is that of a limit, whoever woke it.
func (w *walker) limitedBySite(t *task, p *piece) bool {
	if p.site.Site == nil || p.site.Limit == "" {
		return false
	}
	p.cause, p.wait = Limited, waitOf(p.site.Limit)
	switch p.wait {
	case waitDirtyPages:
		p.by = w.m.whoIsWritten(p.from, p.to)
	case waitMemoryHigh:
		p.by = w.m.whoMemoryLimit(t, "memory.high")
	case waitMemoryMax:
		p.by = w.m.whoMemoryLimit(t, "memory.max", "memory.limit_in_bytes")
	default:
		p.by = w.m.whoIOWeight(t)
	}
	return true
}

// reclaimedBefore reports whether a task has just reclaimed memory of its cgroup.
func (t *task) reclaimedBefore(at uint64) bool {
	for i := len(t.memoryWaits) - 1; i >= 0; i-- {
		if e := &t.memoryWaits[i]; e.to <= at {
			return e.memcg && e.cause == Reclaim && at-e.to < reclaimBefore
		}
	}
	return false
}

// whoIsWritten returns the device to which most was written meanwhile: dirty pages are
// limited for each, and in total.
func (m *model) whoIsWritten(from, to uint64) *Who {
	sums := map[uint32]uint64{}
	var most *request
	for _, r := range m.requests {
		if m.scanned++; m.scanned > maxScanned {
			break
		}
		if r.flags&1 == 0 || r.complete <= from || r.started() == 0 || r.started() >= to { // REQ_OP of writes is odd
			continue
		}
		sums[r.dev] += uint64(r.bytes)
		if most == nil || sums[r.dev] > sums[most.dev] {
			most = r
		}
	}
	if most == nil {
		return m.whoUnknown("a device that is not known")
	}
	return m.whoDevice(most)
}

// ioCgroup returns the cgroup whose limits of block I/O apply to a task; "": not known.
func (m *model) ioCgroup(t *task) string {
	f, _ := m.taskInfo(t.tid)
	switch {
	case f.IOCgroup == "/" || f.IOCgroup == "" && (f.CPUCgroup != "" || f.MemoryCgroup != "") && m.limit(f.Cgroup, "io.weight") == "":
		return "" // an exiting task, or a controller of version 1 in a trace of before its path was recorded
	case f.IOCgroup != "":
		return f.IOCgroup
	}
	return f.Cgroup
}

// whoIOWeight returns the cgroup whose share of a disk was used up.
func (m *model) whoIOWeight(t *task) *Who {
	at := m.ioCgroup(t)
	for _, c := range m.path(at) {
		if v := m.limit(c, "io.weight"); v != "" {
			return m.whoLimit(knob{c, "io.weight", strings.TrimPrefix(v, "default ")}, true, c)
		}
	}
	return m.whoCgroup(at)
}

// heldBack reports whether a limit of block I/O kept a request from its device.
func (m *model) heldBack(r *request) bool {
	return r.by != nil && m.function(r.by.function) == throttledBios
}

// limitPiece explains the time before a request that was held back was submitted.
func (w *walker) limitPiece(p piece, r *request) piece {
	p.cause, p.wait, p.evidence = Limited, waitIOLimit, byDispatch
	t, whose, of := w.m.task(p.task), "its "+w.m.requestText(r), ""
	if o := w.m.heldBackFor(t, p.from, r); o != nil {
		by := w.m.whoTask(o.tid)
		of = cmp.Or(by.Comm, by.Name)
		t, whose, p.evidence = o, "the "+w.m.requestText(r)+" of "+by.Name, bySameRequest
	}
	k, limited, known := w.m.ioLimitOf(t, r)
	p.by = w.m.whoLimit(k, limited, w.m.ioCgroup(t))
	switch {
	case of != "" && !known:
		p.by = w.m.who(whoKey{kind: KindCgroup, name: "the cgroup of " + of}, func(*Who) {})
	case known && !limited:
		// Such as the rest of what another one has read ahead, who waits for it no more.
		whose, p.evidence = "the "+w.m.requestText(r), byNoLimit
		p.by = w.m.who(whoKey{kind: KindCgroup, name: "the cgroup of another task"}, func(*Who) {})
	}
	p.why = whose + " to " + w.m.whoDevice(r).Name + " was held back"
	return p
}

// heldBackFor returns for which other task a request was held back that t waits for, too, at a time;
// nil: it was t's own. Of tasks that want the same page of a file the first one asks the disk for it,
// and the others wait for what comes of that; a limit is that of who asked.
func (m *model) heldBackFor(t *task, at uint64, r *request) (first *task) {
	var mine, since uint64
	if i := t.segmentAt(at); i < len(t.segments) {
		mine = t.segments[i].from
	}
	_, limited, known := m.ioLimitOf(t, r)
	free := known && !limited
	for _, o := range m.tasks {
		i := o.segmentAt(r.complete)
		if o == t || i == len(o.segments) {
			continue
		}
		s := &o.segments[i]
		if s.state != blocked || s.wake == nil || s.wake.request != r {
			continue
		}
		_, limited, known := m.ioLimitOf(o, r)
		if known && !limited || s.from >= mine && !(limited && free) {
			continue
		}
		if first == nil || s.from < since || s.from == since && o.tid < first.tid {
			first, since = o, s.from
		}
	}
	return first
}

// ofEach are files of every cgroup of version 2 that has controllers, one of which has been read if
// its limits have.
var ofEach = []string{"cpu.weight", "cpu.max", "memory.max", "io.weight"}

// ioLimitOf returns the limit that holds for the requests of a task to the disk of one, whether there
// is one, and whether that is known.
func (m *model) ioLimitOf(t *task, r *request) (k knob, limited, known bool) {
	at := m.ioCgroup(t)
	if f, _ := m.taskInfo(t.tid); f.IOCgroup == "/" || at == "/" {
		return knob{}, false, true
	}
	if k, limited = m.ioLimit(at, linux.Disk(r.dev), r.isWrite()); limited {
		return k, true, true
	}
	return knob{}, false, slices.ContainsFunc(ofEach, func(name string) bool { return m.limit(at, name) != "" })
}

// limitWords describes by what a task was held up.
func limitWords(k wait, name string) string {
	if k == waitDelay || k == waitRTRuntime || k == waitDLRuntime {
		return waits[k].words
	}
	return waits[k].words + " of " + name
}
