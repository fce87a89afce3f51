package explain

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Tasks of the cases.
const (
	victim = 1
	other  = 2
	third  = 3
	worker = 4
)

var caseNames = Names{
	Syscall: func(nr int) string {
		return map[int]string{0: "read", 202: "futex", 230: "clock_nanosleep", 74: "fsync"}[nr]
	},
	Function: func(a uint64) string { return map[uint64]string{9: "hrtimer_wakeup", 80: "slow_fn", 81: "my_fn"}[a] },
	Device:   func(uint32) string { return "vda" },
	Task: func(tid int) (TaskInfo, bool) {
		f := TaskInfo{PID: tid, Comm: map[int]string{victim: "victim", other: "other", third: "third", worker: "kworker/0:1", 5: "jbd2/vda-8"}[tid], Cgroup: "/app", CPUs: []int{0}}
		f.Kernel = tid == worker || tid == 5
		if tid == third {
			f.Policy = "SCHED_FIFO"
		}
		return f, tid < 6
	},
}

// script makes a trace of events, times being microseconds.
type script struct{ list events }

func (s *script) add(us uint64, kind trace.Type, cpu, tid int, body any) *script {
	s.list = append(s.list, trace.Event{Time: us * 1000, CPU: cpu, Type: kind, TID: tid, Body: body})
	return s
}

// swap is a switch from one task to another; state as trace.Switch.PrevState.
func (s *script) swap(us uint64, cpu, from, to int, sw trace.Switch) *script {
	sw.NextTID, sw.NextPID = to, to
	for _, p := range []struct {
		prio *int
		tid  int
	}{{&sw.PrevPrio, from}, {&sw.NextPrio, to}} {
		if *p.prio = 120; p.tid == third {
			*p.prio = 49
		}
	}
	if sw.Call == 0 {
		sw.Call = trace.CallNone
	}
	return s.add(us, trace.SchedSwitch, cpu, from, sw)
}

func (s *script) wake(us uint64, cpu, by, tid, target int) *script {
	return s.add(us, trace.SchedWaking, cpu, by, trace.Wake{TID: tid, PID: tid, Prio: 120, TargetCPU: target})
}

func sleeps(call int) trace.Switch { return trace.Switch{PrevState: 1, Call: call} }

// waitsFor is a switch of a task that waits for a futex, all for the same one.
func waitsFor(op int, value uint32, shared bool) trace.Switch {
	f := trace.MakeFutex(op, value, shared, false)
	if op == trace.FutexWait && !shared {
		f = f.At(7)
	}
	return trace.Switch{PrevState: 1, Call: trace.CallFutex, Futex: f}
}

func TestCases(t *testing.T) {
	request := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 4096}
	theirs := trace.Block{RQ: 8, Sector: 80, Dev: 1, Bytes: 1 << 20, Flags: 1}
	for _, c := range []struct {
		name  string
		trace func(s *script)
		track string
		want  string // of the verdict
		parts []string
		more  []string // in the advice
		// It has not ended; the CPUs are covered from then on.
		timeout bool
		covered uint64
	}{
		{
			name: "preempted", track: "wakeup", want: "victim 1 waited 10.0 ms to run on CPU 0: 10.0 ms behind third 3 (SCHED_FIFO 50), woken by other 2.",
			trace: func(s *script) {
				s.swap(500, 0, 0, third, sleeps(0)).swap(600, 1, 0, other, sleeps(0)).wake(1000, 1, other, victim, 0).swap(11000, 0, third, victim, sleeps(0))
			},
			parts: []string{"preempted third 3 10000000"}, more: []string{"real-time priority"},
		},
		{
			name: "misplaced", track: "wakeup", want: "victim 1 waited 10.0 ms to run on CPU 0: 10.0 ms behind other 2, while CPU 1 was idle, on which it may not run, woken by worker.",
			trace: func(s *script) {
				s.swap(500, 0, 0, other, sleeps(0)).swap(600, 1, 0, worker, sleeps(0)).wake(1000, 1, worker, victim, 0).
					swap(1001, 1, worker, 0, sleeps(0)).swap(11000, 0, other, victim, sleeps(0))
			},
			parts: []string{"misplaced other 2 9999000", "runnable other 2 1000"}, more: []string{"taskset -cp 1"},
		},
		{
			name: "throttled", track: "wakeup", want: "victim 1 waited 10.0 ms to run on CPU 0: 8.0 ms throttled, as cgroup /app had used up its CPU quota, 2.0 ms behind third 3 (SCHED_FIFO 50).",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, third, trace.Switch{Throttled: true}).
					add(9000, trace.CgroupUnthrottle, 1, 0, trace.Throttle{CPU: 0, Cgroup: 4}).swap(11000, 0, third, victim, sleeps(0))
			},
			parts: []string{"throttled /app 8000000", "preempted third 3 2000000"}, more: []string{"cpu.max"},
		},
		{
			name: "stolen", track: "syscall", want: "victim 1 spent 10.0 ms in read: 6.0 ms stolen by the hypervisor, 4.0 ms running in the kernel.",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).add(9000, trace.Steal, 0, victim, trace.Stolen{NS: 6_000_000, Since: 2_000_000})
			},
			parts: []string{"stolen the hypervisor 6000000", "running_kernel victim 1 4000000"}, more: []string{"host"},
		},
		{
			name: "stolen, told at the tick after", track: "syscall", want: "victim 1 spent 10.0 ms in read: 6.0 ms stolen by the hypervisor, 4.0 ms running in the kernel.",
			trace: stolenBefore(10000, 13000),
			parts: []string{"stolen the hypervisor 6000000", "running_kernel victim 1 4000000"}, more: []string{"host"},
		},
		{
			name: "stolen, in what was slow rather than after it", track: "syscall", want: "victim 1 spent 10.0 ms in read: 6.0 ms stolen by the hypervisor, 4.0 ms running in the kernel.",
			trace: stolenBefore(10500, 17000),
			parts: []string{"stolen the hypervisor 6000000", "running_kernel victim 1 4000000"}, more: []string{"host"},
		},
		{
			name: "interrupted", track: "syscall", want: "victim 1 spent 10.0 ms in read: 8.0 ms interrupted by softirq NET_RX, 1.0 ms interrupted by interrupt eth0, 1.0 ms running in the kernel.",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).
					add(2000, trace.SoftirqEntry, 0, victim, trace.Softirq{Vec: 3}).
					add(3000, trace.IRQEntry, 0, victim, trace.IRQ{IRQ: 9, Name: "eth0"}).add(4000, trace.IRQExit, 0, victim, trace.IRQ{IRQ: 9}).
					add(11000, trace.SoftirqExit, 0, victim, trace.Softirq{Vec: 3})
			},
			parts: []string{"softirq NET_RX 8000000", "irq eth0 1000000", "running_kernel victim 1 1000000"}, more: []string{"RPS"},
		},
		{
			name: "interrupted by many that are short", track: "syscall",
			want: "victim 1 spent 10.0 ms in read: 5.0 ms interrupted by softirq NET_RX, 3.0 ms running in the kernel, 2.0 ms interrupted by interrupt eth0.",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).
					add(3000, trace.Interrupts, 0, victim, trace.ShortRuns{Vec: 3, NS: 1_000_000, Count: 500, Since: 1_500_000}).
					add(6000, trace.IRQEntry, 0, victim, trace.IRQ{IRQ: 9, Name: "eth0"}).add(8000, trace.IRQExit, 0, victim, trace.IRQ{IRQ: 9}).
					add(9000, trace.Interrupts, 0, victim, trace.ShortRuns{Vec: 3, NS: 4_000_000, Count: 500, Since: 3_000_000})
			},
			parts: []string{"softirq NET_RX 5000000", "running_kernel victim 1 3000000", "irq eth0 2000000"}, more: []string{"RPS"},
		},
		{
			name: "interrupted by what samples found", track: "syscall",
			want: "victim 1 spent 10.0 ms in read: 6.0 ms interrupted by softirq NET_RX, 4.0 ms running in the kernel (approximate: softirqs were sampled).",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).
					add(3000, trace.Interrupts, 0, victim, trace.ShortRuns{Vec: 3, NS: 4_000_000, Count: 2, Since: 400_000, Sampled: true}).
					add(7000, trace.Interrupts, 0, victim, trace.ShortRuns{Vec: 3, NS: 4_000_000, Since: 3_000_000, Sampled: true, Same: true})
			},
			parts: []string{"softirq NET_RX 6000000", "running_kernel victim 1 4000000"}, more: []string{"RPS"},
		},
		{
			name: "behind what samples found", track: "wakeup",
			want: "victim 1 waited 10.0 ms to run on CPU 0: 10.0 ms interrupted by softirq NET_RX, woken by a timer (approximate: softirqs were sampled).",
			trace: func(s *script) {
				s.swap(400, 0, victim, other, sleeps(0)).
					add(1000, trace.SchedWaking, 0, other, trace.Wake{TID: victim, PID: victim, Prio: 120, Context: 3 << 14}).
					add(4000, trace.Interrupts, 0, other, trace.ShortRuns{Vec: 3, NS: 4_000_000, Count: 2, Since: 500_000, Sampled: true}).
					add(8000, trace.Interrupts, 0, other, trace.ShortRuns{Vec: 3, NS: 4_000_000, Since: 4_000_000, Sampled: true, Same: true}).
					swap(11000, 0, other, victim, trace.Switch{Preempted: true})
			},
			parts: []string{"softirq NET_RX 10000000"}, more: []string{"RPS"},
		},
		{
			name: "a single sample ends where it was taken", track: "wakeup",
			want: "victim 1 waited 10.0 ms to run on CPU 0: 7.0 ms behind third 3 (SCHED_FIFO 50), 3.0 ms interrupted by a softirq, woken by a timer (approximate: softirqs were sampled).",
			trace: func(s *script) {
				s.swap(400, 0, victim, third, sleeps(0)).
					add(1000, trace.SchedWaking, 0, third, trace.Wake{TID: victim, PID: victim, Prio: 120, Context: 3 << 14}).
					add(5000, trace.SchedWaking, 0, third, trace.Wake{TID: other, PID: other, Prio: 120, TargetCPU: 1}).
					add(8000, trace.Interrupts, 0, third, trace.ShortRuns{Vec: trace.UnknownVec, NS: 4_000_000, Count: 9, Since: 4_000_000, Sampled: true}).
					swap(11000, 0, third, victim, trace.Switch{Preempted: true})
			},
			parts: []string{"preempted third 3 7000000", "softirq a softirq 3000000"},
		},
		{
			name: "woken by a packet of this machine, without events", track: "offcpu",
			want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for other 2, which ran for 10.0 ms.",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, other, sleeps(0)).
					add(11000, trace.SchedWaking, 0, other, trace.Wake{TID: victim, PID: victim, Prio: 120, Context: 1<<14 | 1<<13 | 3})
			},
			parts: []string{"task other 2 10000000"},
		},
		{
			name: "woken by a packet of anybody, without events", track: "offcpu",
			want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for the network.",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, other, sleeps(0)).
					add(11000, trace.SchedWaking, 0, other, trace.Wake{TID: victim, PID: victim, Prio: 120, Context: 1<<14 | 1<<12 | 3})
			},
			parts: []string{"network the network 10000000"},
		},
		{
			name: "woken by a softirq that has no events", track: "offcpu",
			want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for softirq BLOCK.",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, other, sleeps(0)).
					add(11000, trace.SchedWaking, 0, other, trace.Wake{TID: victim, PID: victim, Prio: 120, Context: 1<<14 | 4})
			},
			parts: []string{"block_device BLOCK 10000000"},
		},
		{
			name: "futex, holder preempted", track: "offcpu",
			want: "preempted lock holder: victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for a mutex that other 2 held, which waited 9.0 ms to run behind third 3 (SCHED_FIFO 50).",
			trace: func(s *script) {
				s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, waitsFor(trace.FutexWait, 2, false)).
					swap(1500, 1, other, third, trace.Switch{}).swap(10500, 1, third, other, sleeps(0)).wake(11000, 1, other, victim, 0)
			},
			parts: []string{"lock other 2 10000000"}, more: []string{"other 2 holds the lock and cannot run", "third 3"},
		},
		{
			name: "kernel lock, spinning", track: "syscall", want: "victim 1 spent 10.0 ms in read: 9.0 ms waiting for a spinlock of the kernel that other 2 held, which ran for 9.0 ms, 1.0 ms running in the kernel.",
			trace: func(s *script) {
				s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).
					add(2000, trace.LockBegin, 0, victim, trace.Lock{Lock: 5, Flags: 1, OwnerTID: other}).add(11000, trace.LockEnd, 0, victim, trace.Lock{Lock: 5})
			},
			parts: []string{"lock other 2 9000000", "running_kernel victim 1 1000000"},
		},
		{
			name: "kernel lock, owner known", track: "offcpu",
			want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for a mutex of the kernel that other 2 held, which slept 9.0 ms until a timer.",
			trace: func(s *script) {
				s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).add(900, trace.LockBegin, 0, victim, trace.Lock{Lock: 5, Flags: 32, OwnerTID: other}).
					swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 0}).swap(1500, 1, other, 0, sleeps(230)).
					add(10500, trace.HrtimerEntry, 1, 0, trace.Hrtimer{Hrtimer: 1, Function: 9}).wake(10500, 1, 0, other, 1).add(10501, trace.HrtimerExit, 1, 0, trace.Hrtimer{Hrtimer: 1}).
					swap(10600, 1, 0, other, sleeps(0)).wake(11000, 1, other, victim, 0)
			},
			parts: []string{"lock other 2 10000000"}, more: []string{"other 2 sleeps while it holds the lock"},
		},
		{
			name: "behind others in the device", track: "offcpu",
			want: "queue behind bulk I/O: victim 1 was off the CPU for 10.0 ms in read: 8.0 ms behind requests of other 2: read of 4 KiB was behind others in vda, 2.0 ms waiting for vda (read of 4 KiB).",
			trace: func(s *script) {
				s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).add(600, trace.BlockIssue, 1, other, theirs).add(1000, trace.BlockIssue, 0, victim, request).
					swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 0, IOWait: true}).
					add(9000, trace.BlockComplete, 1, other, theirs).
					add(11000, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: 4}).add(11000, trace.BlockComplete, 0, 0, request).wake(11000, 0, 0, victim, 0)
			},
			parts: []string{"block_queue other 2 8000000", "block_device vda 2000000"}, more: []string{"io.max"},
		},
		{
			name: "a device that works on many at once", track: "offcpu",
			want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for vda (read of 4 KiB).",
			trace: func(s *script) {
				same := theirs
				same.Bytes = 4096
				s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).add(600, trace.BlockIssue, 1, other, same).add(1000, trace.BlockIssue, 0, victim, request).
					swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 0, IOWait: true}).
					add(10990, trace.BlockComplete, 1, other, same).
					add(11000, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: 4}).add(11000, trace.BlockComplete, 0, 0, request).wake(11000, 0, 0, victim, 0)
			},
			parts: []string{"block_device vda 10000000"},
		},
		{
			name: "block queue", track: "block",
			want: "queue behind bulk I/O: a read of 4 KiB by victim 1 took 10.0 ms on vda: 7.0 ms behind requests of other 2: read of 4 KiB waited in the queue of vda behind others, 3.0 ms waiting for vda (read of 4 KiB).",
			trace: func(s *script) {
				s.add(600, trace.BlockIssue, 1, other, theirs).add(1000, trace.BlockInsert, 0, victim, request).add(7900, trace.BlockComplete, 1, other, theirs).
					add(8000, trace.BlockIssue, 0, worker, request).add(11000, trace.BlockComplete, 0, 0, request)
			},
			parts: []string{"block_queue other 2 7000000", "block_device vda 3000000"},
		},
		{
			name: "page fault", track: "offcpu",
			want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for pages from vda.",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).add(990, trace.BlockIssue, 0, victim, request).
					swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: trace.CallException, IOWait: true}).
					add(11000, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: 4}).add(11000, trace.BlockComplete, 0, 0, request).wake(11000, 0, 0, victim, 0)
			},
			parts: []string{"page_fault vda 10000000"},
		},
		{
			name: "reclaim", track: "syscall", want: "victim 1 spent 10.0 ms in read: 9.0 ms reclaiming memory for cgroup /app, where it was held up for 4.0 ms by a delay of the kernel, 1.0 ms running in the kernel.",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).add(2000, trace.ReclaimBegin, 0, victim, trace.Reclaim{Memcg: true}).
					swap(4000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 0}).
					add(8000, trace.HrtimerEntry, 0, 0, trace.Hrtimer{Hrtimer: 1, Function: 9}).wake(8000, 0, 0, victim, 0).add(8000, trace.HrtimerExit, 0, 0, trace.Hrtimer{Hrtimer: 1}).
					swap(8000, 0, 0, victim, sleeps(0)).add(11000, trace.ReclaimEnd, 0, victim, trace.Reclaim{Memcg: true})
			},
			parts: []string{"reclaim /app 9000000", "running_kernel victim 1 1000000"}, more: []string{"memory.max"},
		},
		{
			name: "work queue", track: "offcpu",
			want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for work slow_fn, queued by other 2 (its work my_fn waited in the queue behind other work)",
			trace: func(s *script) {
				s.swap(300, 1, 0, other, sleeps(0)).add(400, trace.WorkQueued, 1, other, trace.WorkQueue{Work: 100, Function: 80, Name: "single"}).
					swap(450, 1, other, worker, sleeps(0)).add(460, trace.WorkStart, 1, worker, trace.Work{Work: 100, Function: 80}).
					swap(500, 0, 0, victim, sleeps(0)).add(900, trace.WorkQueued, 0, victim, trace.WorkQueue{Work: 101, Function: 81, Name: "single"}).
					swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 0}).
					add(9000, trace.WorkEnd, 1, worker, trace.Work{Work: 100, Function: 80}).add(9000, trace.WorkStart, 1, worker, trace.Work{Work: 101, Function: 81}).
					wake(11000, 1, worker, victim, 0)
			},
			parts: []string{"workqueue slow_fn 8000000", "workqueue my_fn 2000000"}, more: []string{"one item after the other"},
		},
		{
			name: "work that a completed request queued", track: "offcpu",
			want: "victim 1 was off the CPU for 10.0 ms in read: 8.0 ms waiting for vda (read of 4 KiB), 2.0 ms waiting for work my_fn (while its work ran).",
			trace: func(s *script) {
				s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).add(1000, trace.BlockIssue, 0, victim, request).
					swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 74}).
					add(9000, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: 4}).add(9000, trace.BlockComplete, 0, 0, request).
					add(9000, trace.WorkQueued, 0, 0, trace.WorkQueue{Work: 101, Function: 81, Name: "rsv"}).add(9000, trace.SoftirqExit, 0, 0, trace.Softirq{Vec: 4}).
					swap(9000, 1, other, worker, sleeps(0)).add(9000, trace.WorkStart, 1, worker, trace.Work{Work: 101, Function: 81}).
					wake(11000, 1, worker, victim, 0)
			},
			parts: []string{"block_device vda 8000000", "workqueue my_fn 2000000"},
		},
		{
			name: "journal", track: "offcpu",
			want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for the journal of its file system, jbd2/vda-8 5, on behalf of other 2, which ran for 10.0 ms in the kernel.",
			trace: func(s *script) {
				s.swap(300, 1, 0, other, sleeps(0)).wake(400, 1, other, 5, 1).swap(450, 1, other, 5, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).
					swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 74}).wake(11000, 1, 5, victim, 0)
			},
			parts: []string{"journal jbd2/vda-8 5 10000000"}, more: []string{"other 2 shares"},
		},
		{
			name: "a packet over lo", track: "offcpu", want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for other 2, which ran for 10.0 ms.",
			trace: func(s *script) {
				s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, third, trace.Switch{PrevState: 1, Call: 0}).
					add(10900, trace.NetQueue, 1, other, trace.Net{SKB: 77, Dev: "lo"}).
					add(11000, trace.SoftirqEntry, 0, third, trace.Softirq{Vec: 3}).add(11000, trace.NetReceive, 0, third, trace.Net{SKB: 77, Dev: "lo"}).wake(11000, 0, third, victim, 0)
			},
			parts: []string{"task other 2 10000000"},
		},
		{
			name: "a packet from elsewhere", track: "offcpu", want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for the network (eth0).",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, third, trace.Switch{PrevState: 1, Call: 0}).
					add(11000, trace.SoftirqEntry, 0, third, trace.Softirq{Vec: 3}).add(11000, trace.NetReceive, 0, third, trace.Net{SKB: 77, Dev: "eth0"}).wake(11000, 0, third, victim, 0)
			},
			parts: []string{"network the network (eth0) 10000000"},
		},
		{
			name: "stopped", track: "offcpu", want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms stopped by other 2 (stopped by a signal).",
			trace: func(s *script) {
				s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(600, 0, victim, 0, sleeps(230)).
					wake(950, 1, other, victim, 0).swap(980, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, trace.Switch{PrevState: 4}).wake(11000, 1, third, victim, 0)
			},
			parts: []string{"stopped other 2 10000000"},
		},
		{
			name: "a softirq waits", track: "softirq", want: "softirq NET_RX on CPU 0 waited 10.0 ms to run: 9.0 ms behind victim 1, 1.0 ms interrupted by softirq BLOCK.",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).add(10000, trace.SoftirqEntry, 0, victim, trace.Softirq{Vec: 4}).add(11000, trace.SoftirqExit, 0, victim, trace.Softirq{Vec: 4})
			},
			parts: []string{"preempted victim 1 9000000", "softirq BLOCK 1000000"},
		},
		{
			name: "not recorded", track: "offcpu", want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms unexplained: woken by an interrupt: the recorder's event group irq is off.",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(0)).wake(11000, 0, 0, victim, 0)
			},
			parts: []string{"unexplained 10000000"}, more: []string{"recorder.events"},
		},
		{
			name: "a virtual CPU", track: "pair", want: "r of victim 1 took 10.0 ms: 8.0 ms running, 2.0 ms running in the kernel.",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).add(600, trace.KVMEntry, 0, victim, trace.KVM{}).
					add(5000, trace.KVMExit, 0, victim, trace.KVM{Reason: 1}).add(7000, trace.KVMEntry, 0, victim, trace.KVM{})
			},
			parts: []string{"running_user victim 1 8000000", "running_kernel victim 1 2000000"},
		},
		{
			name: "a disk that has not answered yet", track: "offcpu", timeout: true,
			want: "victim 1 has been off the CPU for 10.0 ms in read: 10.0 ms waiting for vda (its read of 4 KiB has not completed).",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).add(900, trace.BlockIssue, 0, victim, request).
					swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 0, IOWait: true})
			},
			parts: []string{"block_device vda 10000000"},
		},
		{
			name: "nobody has woken it yet", track: "offcpu", timeout: true,
			want: "victim 1 has been off the CPU for 10.0 ms in read: 10.0 ms waiting for a mutex (for a futex that has not been woken yet).",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, waitsFor(trace.FutexWait, 2, false))
			},
			parts: []string{"lock an unknown holder 10000000"},
		},
		{
			name: "the history is too short", track: "offcpu", covered: 6_000_000,
			want: "victim 1 was off the CPU for 10.0 ms in read: 10.0 ms waiting for other 2, which ran for 5.0 ms.",
			trace: func(s *script) {
				s.list = nil
				s.swap(6000, 1, 0, other, sleeps(0)).wake(11000, 1, other, victim, 0)
			},
			parts: []string{"task other 2 10000000"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			for cpu := range 2 {
				s.add(100, trace.CPUIdle, cpu, 0, trace.Idle{CPU: cpu})
			}
			c.trace(s)
			o := Outlier{Rule: "r", Track: c.track, TID: victim, PID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000, Syscall: "read", Device: "vda", Sector: 8, Name: "NET_RX", Raised: true}
			if c.timeout {
				o.Cause = "timeout"
			}
			names := caseNames
			if c.covered > 0 {
				names.Covered = map[int][]Interval{0: {{c.covered, forever}}, 1: {{c.covered, forever}}}
			}
			r := explained(t, &s.list, []Outlier{o}, names).Outliers[0]
			want := strings.ReplaceAll(c.want, "woken by worker", "woken by kworker/0:1 4")
			assert.Check(t, strings.HasPrefix(r.Verdict, want), "verdict\n%s\nwant\n%s", r.Verdict, want)
			var parts []string
			for i := range r.Parts {
				p := &r.Parts[i]
				name := ""
				if p.By != nil {
					name = p.By.Name + " "
				}
				parts = append(parts, string(p.Cause)+" "+name+strconv.FormatInt(p.NS, 10))
			}
			assert.Check(t, slices.Equal(parts, c.parts), "parts %q, want %q", parts, c.parts)
			for _, m := range c.more {
				assert.Check(t, strings.Contains(r.Advice, m), "advice %q lacks %q", r.Advice, m)
			}
		})
	}
}

// TestWork: a work item waits behind whoever keeps its worker, and its run is the worker's.
func TestWork(t *testing.T) {
	for _, c := range []struct {
		name, want string
		outlier    Outlier
		parts      int
	}{
		{"waited", "work my_fn of queue events waited 10.0 ms for kworker/0:1 4: 10.0 ms behind third 3 (SCHED_FIFO 50).",
			Outlier{TID: worker, Queue: "events", Waiting: true}, 1},
		{"waits", "work my_fn of queue events has waited 10.0 ms, and no worker has taken it: 10.0 ms unexplained: which worker will take it is not known.",
			Outlier{Cause: "timeout", Queue: "events", Waiting: true}, 1},
		{"ran", "work my_fn took 9.0 ms in kworker/0:1 4: 9.0 ms running in the kernel.", Outlier{TID: worker, Start: 11_000_000, End: 20_000_000}, 1},
		{"runs in a softirq", "work my_fn of queue events_bh has taken 10.0 ms in a softirq: 10.0 ms unexplained: it runs in a softirq.",
			Outlier{Cause: "timeout", Queue: "events_bh"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			s.swap(500, 0, 0, third, sleeps(0)).swap(600, 1, 0, other, sleeps(0)).wake(1000, 1, other, worker, 0).
				swap(11000, 0, third, worker, sleeps(0)).swap(20000, 0, worker, 0, sleeps(0))
			o := c.outlier
			o.Rule, o.Track, o.PID, o.Name = "r", "workqueue", o.TID, "my_fn"
			o.Start, o.End = cmp.Or(o.Start, 1_000_000), cmp.Or(o.End, 11_000_000)
			r := explained(t, &s.list, []Outlier{o}, caseNames).Outliers[0]
			assert.Check(t, strings.HasPrefix(r.Verdict, c.want) && len(r.Parts) == c.parts,
				"verdict\n%s\nwant\n%s\nparts %+v", r.Verdict, c.want, r.Parts)
		})
	}
}

// TestStacks: each stack goes to the step that it was taken at.
func TestStacks(t *testing.T) {
	s := &script{}
	s.swap(300, 1, 0, other, sleeps(0)).swap(400, 0, 0, victim, sleeps(0)).swap(2000, 0, victim, 0, sleeps(0)).
		wake(5000, 1, other, victim, 0).swap(5500, 0, 0, victim, sleeps(0)).swap(7000, 0, victim, 0, sleeps(0))
	o := Outlier{Track: "syscall", Cause: "timeout", TID: victim, Start: 1_000_000, End: 9_000_000, Stacks: []Stack{
		{At: 2_010_000, Frames: []string{"first"}}, {At: 5_000_000, Frames: []string{"waker"}, Waker: true},
		{At: 9_000_000, Frames: []string{"now"}}, {At: 3_500_000, Frames: []string{"never"}},
	}}
	r := explained(t, &s.list, []Outlier{o}, caseNames).Outliers[0]
	var got []string
	for i := range r.Path {
		if p := &r.Path[i]; p.Depth == 0 {
			got = append(got, p.State+":"+strings.Join(append(p.Stack, p.WakerStack...), ","))
		}
	}
	want := []string{"running:", "blocked:first,waker", "runnable:", "running:", "blocked:now"}
	assert.Check(t, slices.Equal(got, want), "%q, want %q", got, want)
}

// stolenBefore has the victim lose 6 ms of its CPU between an interrupt at 2 ms
// and what it does then, in us, which is told at a tick after that.
func stolenBefore(then, tick uint64) func(*script) {
	return func(s *script) {
		s.swap(500, 0, 0, victim, sleeps(0)).
			add(2000, trace.IRQEntry, 0, victim, trace.IRQ{IRQ: 9, Name: "eth0"}).add(2000, trace.IRQExit, 0, victim, trace.IRQ{IRQ: 9}).
			wake(then, 0, victim, other, 0).
			add(tick, trace.Steal, 0, victim, trace.Stolen{NS: 6_000_000, Since: 500_000})
	}
}
