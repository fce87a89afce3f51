package export

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"github.com/tailcam/tailcam/export/fields"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// textSink writes lines as `perf script --ns` prints them: the task, its id, the
// CPU, seconds of CLOCK_MONOTONIC, the kernel's name of the event, its fields.
type textSink struct {
	out    *bufio.Writer
	names  *names
	line   []byte
	fields []fields.Field
	cpus   map[int]current
}

// current is the task that has a CPU.
type current struct {
	tid  int
	comm trace.Comm
}

func newTextSink(w io.Writer, s *source) *textSink {
	return &textSink{out: bufio.NewWriterSize(w, 64<<10), names: s.names, cpus: map[int]current{}}
}

// kernelNames are the tracepoints behind the events, by kind.
var kernelNames = map[trace.Type]string{
	trace.SchedSwitch: "sched:sched_switch", trace.SchedWaking: "sched:sched_waking",
	trace.SchedWakeupNew: "sched:sched_wakeup_new", trace.SchedMigrate: "sched:sched_migrate_task",
	trace.IRQEntry: "irq:irq_handler_entry", trace.IRQExit: "irq:irq_handler_exit",
	trace.SoftirqEntry: "irq:softirq_entry", trace.SoftirqExit: "irq:softirq_exit",
	trace.HrtimerEntry: "timer:hrtimer_expire_entry", trace.HrtimerExit: "timer:hrtimer_expire_exit",
	trace.TimerEntry: "timer:timer_expire_entry", trace.TimerExit: "timer:timer_expire_exit",
	trace.BlockInsert: "block:block_rq_insert", trace.BlockIssue: "block:block_rq_issue",
	trace.BlockComplete: "block:block_rq_complete",
	trace.WorkStart:     "workqueue:workqueue_execute_start", trace.WorkEnd: "workqueue:workqueue_execute_end",
	trace.WorkQueued:  "workqueue:workqueue_queue_work",
	trace.ProcessFork: "sched:sched_process_fork", trace.ProcessExec: "sched:sched_process_exec",
	trace.ProcessExit:  "sched:sched_process_exit",
	trace.SyscallEntry: "raw_syscalls:sys_enter", trace.SyscallExit: "raw_syscalls:sys_exit",
	trace.FaultUser: "exceptions:page_fault_user", trace.FaultKernel: "exceptions:page_fault_kernel",
	trace.ReclaimBegin:    "vmscan:mm_vmscan_direct_reclaim_begin",
	trace.ReclaimEnd:      "vmscan:mm_vmscan_direct_reclaim_end",
	trace.CompactionBegin: "compaction:mm_compaction_begin", trace.CompactionEnd: "compaction:mm_compaction_end",
	trace.LockBegin: "lock:contention_begin", trace.LockEnd: "lock:contention_end",
	trace.CPUIdle: "power:cpu_idle", trace.CPUFrequency: "power:cpu_frequency",
	trace.NetQueue: "net:net_dev_queue", trace.NetReceive: "net:netif_receive_skb", trace.NapiPoll: "napi:napi_poll",
	trace.KVMEntry: "kvm:kvm_entry", trace.KVMExit: "kvm:kvm_exit",
	trace.CgroupThrottle: "tailcam:cgroup_throttle", trace.CgroupUnthrottle: "tailcam:cgroup_unthrottle",
	trace.Steal: "tailcam:steal", trace.OutlierEntry: "tailcam:entry", trace.OutlierExit: "tailcam:exit",
}

func kernelName(ev *trace.Event) string {
	if r, ok := ev.Body.(trace.Reclaim); ok && r.Memcg {
		if ev.Type == trace.ReclaimBegin {
			return "vmscan:mm_vmscan_memcg_reclaim_begin"
		}
		return "vmscan:mm_vmscan_memcg_reclaim_end"
	}
	if c, ok := ev.Body.(trace.Syscall); ok && c.Name != "" {
		if ev.Type == trace.SyscallEntry {
			return "syscalls:sys_enter_" + c.Name
		}
		return "syscalls:sys_exit_" + c.Name
	}
	if name := kernelNames[ev.Type]; name != "" {
		return name
	}
	return "tailcam:" + ev.Type.String()
}

// Event implements sink.
func (t *textSink) Event(ev *trace.Event) error {
	b := t.line[:0]
	b = fmt.Appendf(b, "%16s %7d [%03d] %d.%09d: %s: ",
		term.Clean(t.comm(ev)), ev.TID, ev.CPU, ev.Time/1e9, ev.Time%1e9, kernelName(ev))
	t.fields = fields.Append(t.fields[:0], ev, &t.names.fields)
	switch ev.Type {
	case trace.SchedSwitch:
		b = t.swtch(b)
	case trace.SyscallEntry, trace.SyscallExit:
		b = t.call(b, ev)
	default:
		for i := range t.fields {
			if i > 0 {
				b = append(b, ' ')
			}
			b = appendPair(b, &t.fields[i])
		}
	}
	b = append(b, '\n')
	t.line = b
	_, err := t.out.Write(b)
	return err
}

// Close implements sink.
func (t *textSink) Close(func(int) uint64) error { return t.out.Flush() }

// comm finds the name of the current task.
func (t *textSink) comm(ev *trace.Event) string {
	c := t.cpus[ev.CPU]
	switch b := ev.Body.(type) {
	case trace.Switch:
		t.cpus[ev.CPU] = current{b.NextTID, b.NextComm}
		return b.PrevComm.String()
	case trace.Exec:
		t.cpus[ev.CPU] = current{ev.TID, b.Comm}
		return b.Comm.String()
	case trace.Marker:
		return b.Comm.String()
	}
	switch {
	case ev.TID == 0:
		return "swapper"
	case c.tid == ev.TID:
		return c.comm.String()
	}
	if _, comm := t.names.known(ev.TID); comm != "" {
		return comm
	}
	return ":" + strconv.Itoa(ev.TID)
}

// swtch puts an arrow between who leaves and who comes, and says a task's id
// pid, as the kernel does.
func (t *textSink) swtch(b []byte) []byte {
	for i := range t.fields {
		f := t.fields[i]
		switch f.Name {
		case "prev_tid":
			f.Name = "prev_pid"
		case "next_tid":
			f.Name = "next_pid"
		case "next_pid":
			f.Name = "next_tgid"
		case "prev_state":
			continue
		case "prev_state_text":
			f.Name = "prev_state"
		case "next_comm":
			b = append(b, "==> "...)
		}
		b = append(appendPair(b, &f), ' ')
	}
	return b[:len(b)-1]
}

// call writes the number, and the arguments or the result.
func (t *textSink) call(b []byte, ev *trace.Event) []byte {
	c, ok := ev.Body.(trace.Syscall)
	if !ok {
		return b
	}
	if ev.Type == trace.SyscallExit {
		return fmt.Appendf(b, "NR %d = %d", c.NR, c.Ret)
	}
	return fmt.Appendf(b, "NR %d (%x, %x, %x, %x, %x)", c.NR, c.Args[0], c.Args[1], c.Args[2], c.Args[3], c.Args[4])
}

func appendPair(b []byte, f *fields.Field) []byte {
	b = append(append(b, f.Name...), '=')
	switch f.Kind {
	case fields.Text:
		return append(b, term.Clean(f.Text)...)
	case fields.Int:
		return strconv.AppendInt(b, int64(f.Num), 10)
	case fields.Hex:
		return strconv.AppendUint(append(b, "0x"...), f.Num, 16)
	}
	return strconv.AppendUint(b, f.Num, 10)
}
