package daemon

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// lttngModel computes from our own reader what lttng-analyses reports, by the
// definitions that its documentation and its output give. Times are wall time.
type lttngModel struct {
	begin, end uint64 // of what is analysed
	dumped     uint64 // time of the state dump

	current map[int]int // task on each CPU, 0: idle
	woken   map[int]wakeup
	waits   []schedWait
	// Tasks of which two CPUs tell at once: what came first is not known.
	unclear map[int]bool

	cpuTime, taskTime map[int]uint64
	cpuSince          map[int]uint64
	taskSince         map[int]uint64

	hard, soft  map[[2]int]uint64 // since when, by CPU and number
	irqs, softs []irqRun

	issued map[[2]uint64]trace.Block
	issues map[[2]uint64]uint64
	disks  map[string][]uint64
	bytes  map[string]uint64
	names  map[uint32]string

	calls  map[int]openCall
	io     []ioCall
	readBy map[int]uint64
}

type wakeup struct {
	at    uint64
	waker int
}

type schedWait struct {
	wakeup, run uint64
	tid, cpu    int
	prio, waker int
}

type irqRun struct {
	begin, end  uint64
	cpu, number int
}

type openCall struct {
	begin uint64
	trace.Syscall
}

type ioCall struct {
	begin, end uint64
	tid        int
	name       string
	size, fd   int64 // -1: none
}

// ioCalls has the calls that lttng-analyses counts as input and output.
var ioCalls = map[string]string{
	"open": "Open", "openat": "Open", "socket": "Open", "fcntl": "Open", "dup": "Open", "dup2": "Open", "dup3": "Open", "close": "Close",
	"read": "Read", "recvmsg": "Read", "recvfrom": "Read", "readv": "Read", "pread64": "Read", "preadv": "Read",
	"write": "Write", "sendmsg": "Write", "sendto": "Write", "writev": "Write", "pwrite64": "Write", "pwritev": "Write",
	"sync": "Sync", "sync_file_range": "Sync", "fsync": "Sync", "fdatasync": "Sync", "splice": "Both", "sendfile": "Both",
}

// modelTrace reads the events of a trace from begin to end.
func modelTrace(t *testing.T, dir string, begin, end uint64) *lttngModel {
	t.Helper()
	m := &lttngModel{
		begin: begin, end: end, unclear: map[int]bool{}, current: map[int]int{}, woken: map[int]wakeup{},
		cpuTime: map[int]uint64{}, taskTime: map[int]uint64{}, cpuSince: map[int]uint64{}, taskSince: map[int]uint64{},
		hard: map[[2]int]uint64{}, soft: map[[2]int]uint64{}, issued: map[[2]uint64]trace.Block{}, issues: map[[2]uint64]uint64{},
		disks: map[string][]uint64{}, bytes: map[string]uint64{}, names: map[uint32]string{}, calls: map[int]openCall{}, readBy: map[int]uint64{},
	}
	r, err := trace.Read(dir)
	assert.NilError(t, err)
	defer r.Close() // only read
	var last uint64
	told := map[int]int{} // which CPU tells of a task at that time
	for {
		ev, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		assert.NilError(t, err)
		now := uint64(r.Wall(ev.Time).UnixNano())
		if now >= begin && now <= end {
			m.feed(&ev, now)
		}
		if ev.Time != last {
			last = ev.Time
			clear(told)
		}
		for _, tid := range concerns(&ev) {
			if cpu, ok := told[tid]; ok && cpu != ev.CPU {
				m.unclear[tid] = tid != 0
			}
			told[tid] = ev.CPU
		}
	}
	for cpu, since := range m.cpuSince {
		m.cpuTime[cpu] += end - since
	}
	for tid, since := range m.taskSince {
		m.taskTime[tid] += end - since
	}
	return m
}

// concerns are the tasks whose state an event is about.
func concerns(ev *trace.Event) []int {
	switch b := ev.Body.(type) {
	case trace.Switch:
		return []int{ev.TID, b.NextTID}
	case trace.Wake:
		return []int{b.TID}
	}
	return nil
}

func (m *lttngModel) feed(ev *trace.Event, now uint64) {
	switch b := ev.Body.(type) {
	case nil:
		if ev.Type == trace.DumpStart {
			m.dumped = now
		}
	case trace.DeviceState:
		m.names[b.Dev] = b.Name
	case trace.Switch:
		m.account(ev, &b, now)
		m.current[ev.CPU] = b.NextTID
		if w, ok := m.woken[b.NextTID]; ok {
			m.waits = append(m.waits, schedWait{w.at, now, b.NextTID, ev.CPU, b.NextPrio - 100, w.waker})
			delete(m.woken, b.NextTID)
		}
	case trace.Wake:
		for _, tid := range m.current {
			if tid == b.TID {
				return
			}
		}
		if _, already := m.woken[b.TID]; !already {
			m.woken[b.TID] = wakeup{now, m.current[ev.CPU]}
		}
	case trace.Migrate:
		if _, seen := m.taskTime[b.TID]; !seen && b.TID != 0 {
			m.taskTime[b.TID] = 0
		}
	case trace.Fork:
		delete(m.woken, b.ChildTID)
		delete(m.calls, b.ChildTID)
	case trace.IRQ:
		m.irq(ev, b.IRQ, now)
	case trace.Softirq:
		key := [2]int{ev.CPU, int(b.Vec)}
		if since, ok := m.soft[key]; ev.Type == trace.SoftirqEntry {
			m.soft[key] = now
		} else if ok {
			m.softs = append(m.softs, irqRun{since, now, ev.CPU, int(b.Vec)})
			delete(m.soft, key)
		}
	case trace.Block:
		m.block(ev, &b, now)
	case trace.Syscall:
		m.syscall(ev, &b, now)
	}
}

// account adds up who used the CPUs. What ran first on a CPU is taken to have
// run from the begin.
func (m *lttngModel) account(ev *trace.Event, b *trace.Switch, now uint64) {
	if _, seen := m.cpuTime[ev.CPU]; !seen {
		m.cpuTime[ev.CPU], m.cpuSince[ev.CPU] = 0, m.begin
	}
	if since, ok := m.cpuSince[ev.CPU]; ok {
		m.cpuTime[ev.CPU] += now - since
		delete(m.cpuSince, ev.CPU)
	}
	if _, seen := m.taskTime[ev.TID]; !seen {
		m.taskTime[ev.TID], m.taskSince[ev.TID] = 0, m.begin
	}
	if since, ok := m.taskSince[ev.TID]; ok {
		m.taskTime[ev.TID] += now - since
		delete(m.taskSince, ev.TID)
	}
	if b.NextTID == 0 {
		return
	}
	m.cpuSince[ev.CPU], m.taskSince[b.NextTID] = now, now
	m.taskTime[b.NextTID] += 0
}

// irq knows one interrupt a CPU: one within another makes it forget the outer.
func (m *lttngModel) irq(ev *trace.Event, number int, now uint64) {
	for key, since := range m.hard {
		if key[0] != ev.CPU {
			continue
		}
		delete(m.hard, key)
		if ev.Type == trace.IRQExit && key[1] == number {
			m.irqs = append(m.irqs, irqRun{since, now, ev.CPU, number})
		}
	}
	if ev.Type == trace.IRQEntry {
		m.hard[[2]int{ev.CPU, number}] = now
	}
}

// block pairs requests by disk and sector, those of the same size.
func (m *lttngModel) block(ev *trace.Event, b *trace.Block, now uint64) {
	key := [2]uint64{uint64(b.Dev), b.Sector}
	switch {
	case b.Bytes/512 == 0:
	case ev.Type == trace.BlockIssue:
		m.issued[key], m.issues[key] = *b, now
	case ev.Type == trace.BlockComplete:
		issue, ok := m.issued[key]
		if !ok || issue.Bytes/512 != b.Bytes/512 {
			return
		}
		delete(m.issued, key)
		name := m.names[b.Dev]
		if name == "" {
			name = fmt.Sprintf("(%d,%d)", b.Dev>>20, b.Dev&0xfffff)
		}
		m.disks[name] = append(m.disks[name], now-m.issues[key])
		m.bytes[name] += uint64(b.Bytes)
	}
}

func (m *lttngModel) syscall(ev *trace.Event, b *trace.Syscall, now uint64) {
	tid := m.current[ev.CPU]
	if tid == 0 {
		return
	}
	if ev.Type == trace.SyscallEntry {
		m.calls[tid] = openCall{now, *b}
		return
	}
	begun, ok := m.calls[tid]
	delete(m.calls, tid)
	kind := ioCalls[begun.Name]
	if !ok || kind == "" || begun.Name == "fcntl" && begun.Args[1] != 0 {
		return
	}
	c := ioCall{begin: begun.begin, end: now, tid: tid, name: begun.Name, size: -1, fd: -1}
	switch kind {
	case "Open":
		if b.Ret >= 0 {
			c.fd = b.Ret
		}
	case "Read", "Write", "Both":
		if b.Ret >= 0 {
			c.size = b.Ret
			if kind != "Write" {
				m.readBy[tid] += uint64(b.Ret)
			}
		}
		if kind != "Both" {
			c.fd = int64(begun.Args[0])
		}
	default:
		if begun.Name != "sync" {
			c.fd = int64(begun.Args[0])
		}
	}
	if c.name == "sendfile" {
		c.name = "sendfile64"
	}
	m.io = append(m.io, c)
}
