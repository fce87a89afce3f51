// Package fields lists what an event of a trace says, under names that stay:
// the exporters write the same list as JSON, as text and as protobuf.
//
// Names are LTTng's where it has the field: a task's own id is tid, its process's
// is pid. Priorities are the kernel's: 120 is nice 0, below 100 is real time.
package fields

import (
	"strconv"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Kind is how a field's value is meant.
type Kind uint8

// Kinds.
const (
	Int  Kind = iota // Num as int64
	Uint             // Num
	Hex              // Num: an address or bits
	Bool             // Num is not 0
	Text             // Text
)

// Field is one name and value. Text may be any bytes: the kernel does not
// promise UTF-8.
type Field struct {
	Name string
	Kind Kind
	Num  uint64
	Text string
}

// Names resolve what a trace has as numbers. Each may be nil; answers may be empty.
type Names struct {
	Syscall  func(nr int) string
	Function func(address uint64) string
	Device   func(dev uint32) string
}

// list is appended to; its methods name the kinds.
type list struct {
	out   []Field
	names *Names
}

func (l *list) int(name string, v int) { l.out = append(l.out, Field{Name: name, Num: uint64(v)}) }
func (l *list) uint(name string, v uint64) {
	l.out = append(l.out, Field{Name: name, Kind: Uint, Num: v})
}
func (l *list) hex(name string, v uint64) {
	l.out = append(l.out, Field{Name: name, Kind: Hex, Num: v})
}
func (l *list) text(name, v string) { l.out = append(l.out, Field{Name: name, Kind: Text, Text: v}) }

// flag appends only what holds.
func (l *list) flag(name string, v bool) {
	if v {
		l.out = append(l.out, Field{Name: name, Kind: Bool, Num: 1})
	}
}

// function appends an address, and its name if it has one.
func (l *list) function(v uint64) {
	l.hex("function", v)
	if l.names.Function == nil {
		return
	}
	if name := l.names.Function(v); name != "" {
		l.text("function_name", name)
	}
}

// stack appends the frames that there are, innermost first.
func (l *list) stack(s *trace.Stack) {
	l.int("pid", s.PID)
	l.flag("user", s.User)
	l.flag("outer", s.Outer)
	for i, address := range s.Frames {
		if address == 0 {
			break
		}
		name := "frame" + strconv.Itoa(i)
		l.hex(name, address)
		if l.names.Function == nil || s.User {
			continue
		}
		if function := l.names.Function(address); function != "" {
			l.text(name+"_name", function)
		}
	}
}

func (l *list) syscall(name string, nr int) {
	if l.names.Syscall != nil {
		if s := l.names.Syscall(nr); s != "" {
			l.text(name, s)
		}
	}
}

// Append appends the fields of an event to dst, in an order that stays. names
// may be nil. It keeps nothing of dst.
func Append(dst []Field, ev *trace.Event, names *Names) []Field {
	if names == nil {
		names = &Names{}
	}
	l := list{out: dst, names: names}
	switch b := ev.Body.(type) {
	case trace.Switch:
		l.swtch(ev, &b)
	case trace.Wake:
		l.text("comm", b.Comm.String())
		l.int("tid", b.TID)
		l.int("pid", b.PID)
		l.int("prio", b.Prio)
		l.int("target_cpu", b.TargetCPU)
		if b.Context != 0 {
			l.hex("context", uint64(b.Context))
		}
	case trace.Migrate:
		l.text("comm", b.Comm.String())
		l.int("tid", b.TID)
		l.int("prio", b.Prio)
		l.int("orig_cpu", b.OrigCPU)
		l.int("dest_cpu", b.DestCPU)
	case trace.IRQ:
		l.int("irq", b.IRQ)
		if ev.Type == trace.IRQEntry {
			l.text("name", b.Name)
		} else {
			l.int("ret", b.Ret)
		}
	case trace.Softirq:
		l.uint("vec", uint64(b.Vec))
		l.text("action", linux.Softirq(b.Vec, "unknown"))
		if b.AfterIRQ {
			l.int("after_irq", b.IRQ)
		}
	case trace.Hrtimer:
		l.hex("hrtimer", b.Hrtimer)
		if ev.Type == trace.HrtimerEntry {
			l.out = append(l.out, Field{Name: "now", Num: uint64(b.Now)})
			l.function(b.Function)
		}
	case trace.Block:
		l.block(ev, &b)
	case trace.Work:
		l.hex("work", b.Work)
		l.function(b.Function)
	case trace.Fork:
		l.text("parent_comm", b.ParentComm.String())
		l.int("parent_tid", ev.TID)
		l.int("parent_pid", b.ParentPID)
		l.text("child_comm", b.ChildComm.String())
		l.int("child_tid", b.ChildTID)
		l.int("child_pid", b.ChildPID)
		l.int("prio", b.Prio)
	case trace.Exec:
		l.text("comm", b.Comm.String())
		l.int("tid", ev.TID)
		l.int("pid", b.PID)
		l.int("old_tid", b.OldTID)
		l.int("prio", b.Prio)
	case trace.Exit:
		l.text("comm", b.Comm.String())
		l.int("tid", ev.TID)
		l.int("pid", b.PID)
		l.int("prio", b.Prio)
	case trace.Syscall:
		l.uint("nr", uint64(b.NR))
		l.int("pid", b.PID)
		if ev.Type == trace.SyscallExit {
			l.out = append(l.out, Field{Name: "ret", Num: uint64(b.Ret)})
			break
		}
		for i, arg := range b.Args {
			l.hex(argNames[i], arg)
		}
	case trace.Marker:
		l.text("rule", b.Rule)
		l.text("track", b.Track)
		l.out = append(l.out, Field{Name: "delay_ns", Num: uint64(b.DelayNS)})
		l.int("tid", ev.TID)
		l.int("pid", b.PID)
		l.text("comm", b.Comm.String())
		l.uint("outlier", b.Outlier)
	default:
		l.rare(ev)
	}
	return l.out
}

var argNames = [...]string{"arg0", "arg1", "arg2", "arg3", "arg4"}

func (l *list) swtch(ev *trace.Event, b *trace.Switch) {
	l.text("prev_comm", b.PrevComm.String())
	l.int("prev_tid", ev.TID)
	l.int("prev_prio", b.PrevPrio)
	l.uint("prev_state", uint64(b.Reported()))
	l.text("prev_state_text", State(b))
	l.text("next_comm", b.NextComm.String())
	l.int("next_tid", b.NextTID)
	l.int("next_pid", b.NextPID)
	l.int("next_prio", b.NextPrio)
	l.flag("preempted", b.Preempted)
	switch {
	case b.Call >= 0:
		l.int("prev_syscall", b.Call)
		l.syscall("prev_syscall_name", b.Call)
	case b.Call == trace.CallException:
		l.flag("prev_exception", true)
	case b.Call == trace.CallFutex:
		l.text("prev_syscall_name", "futex")
	}
	l.flag("prev_io_wait", b.IOWait)
	l.flag("prev_frozen", b.Frozen)
	l.flag("prev_throttled", b.Throttled)
}

func (l *list) block(ev *trace.Event, b *trace.Block) {
	l.uint("dev", uint64(b.Dev))
	device := linux.Disk(b.Dev)
	if l.names.Device != nil {
		if name := l.names.Device(b.Dev); name != "" {
			device = name
		}
	}
	l.text("device", device)
	l.uint("sector", b.Sector)
	l.uint("nr_sector", uint64(b.Bytes/512))
	l.uint("bytes", uint64(b.Bytes))
	l.text("rwbs", linux.RWBS(b.Flags))
	l.text("comm", b.Comm.String())
	if ev.Type == trace.BlockComplete {
		l.int("status", b.Status)
	}
	l.hex("rq", b.RQ)
	l.hex("cmd_flags", uint64(b.Flags))
}

// rare appends the fields of events that few traces have.
func (l *list) rare(ev *trace.Event) {
	switch b := ev.Body.(type) {
	case trace.WorkQueue:
		l.hex("work", b.Work)
		l.function(b.Function)
		l.text("workqueue", b.Name)
		l.int("req_cpu", b.ReqCPU)
	case trace.Timer:
		l.hex("timer", b.Timer)
		if ev.Type == trace.TimerEntry {
			l.uint("now", b.Now)
			l.function(b.Function)
			l.tcpTimer(&b.TCP)
		}
	case trace.Fault:
		l.hex("address", b.Address)
		l.hex("ip", b.IP)
		l.hex("error_code", b.ErrorCode)
	case trace.Reclaim:
		if ev.Type == trace.ReclaimBegin {
			l.int("order", b.Order)
		} else {
			l.uint("nr_reclaimed", b.Reclaimed)
		}
		l.flag("memcg", b.Memcg)
	case trace.Compaction:
		if ev.Type == trace.CompactionBegin {
			l.flag("sync", b.Sync)
		} else {
			l.int("status", b.Status)
		}
	case trace.Lock:
		l.hex("lock_addr", b.Lock)
		if ev.Type == trace.LockBegin {
			l.hex("flags", uint64(b.Flags))
			l.int("owner_tid", b.OwnerTID)
		} else {
			l.int("ret", b.Ret)
		}
	case trace.FileLock:
		l.uint("inode", b.Inode)
		l.uint("dev", uint64(b.Dev))
		l.int("ret", b.Ret)
		l.uint("start", b.Start)
		l.uint("end", b.End)
		l.hex("flags", uint64(b.Flags))
		l.int("type", b.Type)
		l.int("pid", b.PID)
		l.int("holder_pid", b.HolderPID)
	case trace.Idle:
		l.int("state", b.State)
		l.int("cpu_id", b.CPU)
	case trace.Frequency:
		l.uint("state", uint64(b.KHz))
		l.int("cpu_id", b.CPU)
	case trace.Net:
		l.hex("skbaddr", b.SKB)
		l.uint("len", uint64(b.Bytes))
		l.text("name", b.Dev)
	case trace.Napi:
		l.text("dev_name", b.Dev)
		l.int("work", b.Work)
		l.int("budget", b.Budget)
	case trace.Throttle:
		l.uint("cgroup", b.Cgroup)
		l.int("cpu_id", b.CPU)
	case trace.KVM:
		l.uint("vcpu_id", uint64(b.VCPU))
		if ev.Type == trace.KVMExit {
			l.uint("exit_reason", uint64(b.Reason))
			l.hex("guest_rip", b.IP)
		}
	case trace.TaskState:
		l.text("comm", b.Comm.String())
		l.int("tid", b.TID)
		l.int("pid", b.PID)
		l.int("ppid", b.PPID)
		l.flag("kernel", b.Kernel)
		l.int("status", b.Status)
		l.int("cpu_id", b.CPU)
	case trace.FileState:
		l.int("pid", b.PID)
		l.int("fd", b.FD)
		l.hex("flags", uint64(b.Flags))
		l.text("filename", b.Name)
	case trace.DeviceState:
		l.uint("dev", uint64(b.Dev))
		l.text("device", b.Name)
	case trace.Stolen:
		l.uint("stolen_ns", b.NS)
		l.uint("since_ns", b.Since)
	case trace.Stack:
		l.stack(&b)
	case trace.ShortRuns:
		l.int("vec", b.Vec)
		l.uint("total_ns", b.NS)
		l.uint("count", uint64(b.Count))
		l.uint("since_ns", b.Since)
		if b.Sampled {
			l.int("sampled", 1)
		}
	}
}
