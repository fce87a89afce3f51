package export

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/export/fields"
	"github.com/tailcam/tailcam/internal/linux"
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
	trace.Steal: "tailcam:steal", trace.Interrupts: "tailcam:interrupts",
	trace.FileLockRequest: "tailcam:file_lock",
	trace.WaitStack:       "tailcam:wait_stack", trace.Sample: "tailcam:sample", trace.RunStack: "tailcam:run_stack",
	trace.OutlierEntry: "tailcam:entry", trace.OutlierExit: "tailcam:exit",
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
	b = t.body(b, ev)
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

// body writes what the kernel prints of an event where scripts read that: the
// scheduler's, softirqs, requests, calls. There a task's id is its pid, and its
// process's the tgid. Others are names and values.
func (t *textSink) body(b []byte, ev *trace.Event) []byte {
	switch e := ev.Body.(type) {
	case trace.Switch:
		b = fmt.Appendf(b, "prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s ==> next_comm=%s next_pid=%d next_prio=%d",
			term.Clean(e.PrevComm.String()), ev.TID, e.PrevPrio, fields.State(&e), term.Clean(e.NextComm.String()), e.NextTID, e.NextPrio)
		return t.rest(b, "prev_comm", "prev_tid", "prev_prio", "prev_state", "prev_state_text", "next_comm", "next_tid", "next_prio", "preempted")
	case trace.Wake:
		b = fmt.Appendf(b, "comm=%s pid=%d prio=%d target_cpu=%03d", term.Clean(e.Comm.String()), e.TID, e.Prio, e.TargetCPU)
		return t.rest(b, "comm", "tid", "prio", "target_cpu")
	case trace.Softirq:
		return fmt.Appendf(b, "vec=%d [action=%s]", e.Vec, linux.Softirq(e.Vec, "unknown"))
	case trace.Block:
		b = fmt.Appendf(b, "%d,%d %s ", e.Dev>>20, e.Dev&(1<<20-1), linux.RWBS(e.Flags))
		if ev.Type == trace.BlockComplete {
			b = fmt.Appendf(b, "() %d + %d [%d]", e.Sector, e.Bytes/512, e.Status)
		} else {
			b = fmt.Appendf(b, "%d () %d + %d [%s]", e.Bytes, e.Sector, e.Bytes/512, term.Clean(e.Comm.String()))
		}
		return t.rest(b, "dev", "sector", "nr_sector", "bytes", "rwbs", "comm", "status", "cmd_flags")
	case trace.Syscall:
		if ev.Type == trace.SyscallExit {
			return fmt.Appendf(b, "NR %d = %d", e.NR, e.Ret)
		}
		return fmt.Appendf(b, "NR %d (%x, %x, %x, %x, %x)", e.NR, e.Args[0], e.Args[1], e.Args[2], e.Args[3], e.Args[4])
	}
	b = t.rest(b)
	return bytes.TrimSuffix(b, []byte(" ")) // of an event without fields
}

// rest appends the fields that have not been written.
func (t *textSink) rest(b []byte, written ...string) []byte {
	for i := range t.fields {
		f := t.fields[i]
		if slices.Contains(written, f.Name) {
			continue
		}
		switch f.Name {
		case "tid", "old_tid", "parent_tid", "child_tid", "owner_tid":
			f.Name = strings.TrimSuffix(f.Name, "tid") + "pid"
		case "pid", "parent_pid", "child_pid", "next_pid":
			f.Name = strings.TrimSuffix(f.Name, "pid") + "tgid"
		}
		if len(b) > 0 && b[len(b)-1] != ' ' {
			b = append(b, ' ')
		}
		b = appendPair(b, &f)
	}
	return b
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
