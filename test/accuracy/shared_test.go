package accuracy

import (
	"fmt"
	"math"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/test/support/slowirq"
)

// sharedScenarios are waits for what several share: files, barriers, memory, a CPU.
func sharedScenarios(shared *resources) []scenario {
	only := func(c explain.Cause) []explain.Cause { return []explain.Cause{c} }
	held := func(says string) want {
		return want{causes: only(explain.Locked), by: "scn-holder", says: says, advice: "It is CPU time of scn-holder"}
	}
	spins := func(w want, by string) want {
		w.root, w.rootBy = explain.Running, by
		return w
	}
	return []scenario{
		{name: "file-lock", rule: trackSyscall("flock"), want: spins(held("a lock of a file"), "scn-holder")},
		{
			name: "file-try", rule: pairOf("try_file"),
			want: want{
				causes: only(explain.Locked), by: "scn-holder", root: explain.Running, rootBy: "scn-holder", pattern: explain.RetryLoop,
				says: "a lock of a file", advice: "do less while it holds the lock",
			},
		},
		{
			name: "record-lock", rule: trackSyscall("fcntl"),
			want: want{causes: only(explain.Locked), by: "scn-holder", root: explain.Timer, rootBy: "timer", says: "a lock of a file", advice: "scn-holder "},
		},
		{
			name: "pi-mutex", rule: trackSyscall("futex"),
			want: want{causes: only(explain.Locked), by: "scn-holder", root: explain.Timer, rootBy: "timer", says: "priority-inheriting mutex", advice: "scn-holder "},
		},
		{
			name: "rwlock", rule: trackSyscall("futex"),
			want: want{causes: only(explain.Locked), by: "scn-reader", root: explain.Timer, rootBy: "timer", says: "readers-writer lock", advice: "scn-reader "},
		},
		{
			name: "barrier", rule: trackSyscall("futex"),
			want: want{causes: only(explain.Task), by: "scn-late", root: explain.Running, rootBy: "scn-late", says: "at a barrier", advice: "It is CPU time of scn-late"},
		},
		{
			name: "join", rule: trackSyscall("futex"),
			want: want{causes: only(explain.Task), by: "scn-ending", root: explain.Running, rootBy: "scn-ending", says: "to end", advice: "It was CPU time of scn-ending"},
		},
		{
			name: "semaphore", rule: trackSyscall("futex"),
			want: want{causes: only(explain.Task), by: "scn-user", root: explain.Timer, rootBy: "timer", says: "semaphore"},
		},
		{name: "cond-timeout", rule: trackSyscall("futex"), want: want{causes: only(explain.Timer), by: "timer", says: "its own time limit"}},
		{
			name: "spin-holder", rule: pairOf("spin_for_lock"),
			want: want{
				causes: []explain.Cause{explain.Running, explain.RunningUser}, by: "v-spin-holder", pattern: explain.PreemptedHolder,
				says: "scn-holder", advice: "If scn-holder",
			},
		},
		{
			name: "mmap-lock", rule: trackSyscall("mmap"), long: true,
			want: want{causes: only(explain.Locked), by: "scn-unmapper", root: explain.Running, rootBy: "scn-unmapper", says: "a lock of the kernel", advice: "It is CPU time of scn-unmapper"},
		},
		{ // longer than samples are apart
			name: "spin-writer", rule: trackSyscall("pwrite64"), long: true,
			want: want{causes: only(explain.Locked), by: "scn-filler", root: explain.Running, rootBy: "scn-filler", says: "a lock of the kernel", advice: "It is CPU time of scn-filler"},
		},
		{
			name: "unix-backlog", rule: trackSyscall("connect"),
			want: want{causes: only(explain.Task), by: "scn-acceptor", root: explain.Running, rootBy: "scn-acceptor", advice: "It is CPU time of scn-acceptor"},
		},
		{
			name: "system-v", rule: trackSyscall("semop, semtimedop"),
			want: want{causes: only(explain.Task), by: "scn-poster", root: explain.Running, rootBy: "scn-poster", advice: "It is CPU time of scn-poster"},
		},
		{
			name: "signal-wait", rule: trackSyscall("rt_sigtimedwait"),
			want: want{causes: only(explain.Task), by: "scn-sender", root: explain.Running, rootBy: "scn-sender", says: "signal", advice: "It is CPU time of scn-sender"},
		},
		{
			name: "inode-lock", rule: trackSyscall("pwrite64"),
			want:    want{causes: only(explain.Locked), by: "scn-writer", root: explain.Timer, rootBy: "timer", says: "a lock of the kernel", advice: "while it holds a lock of the kernel, as a writer. loop"},
			prepare: shared.withFiles(0, 20*time.Millisecond, 0),
		},
		{
			name: "herd", rule: trackWakeup,
			want: want{causes: []explain.Cause{explain.Runnable, explain.Misplaced}, by: "scn-herd", many: true, pattern: explain.ThunderingHerd, advice: "Wake one instead of all"},
		},
		{
			name: "neighbour", rule: trackSyscall("getrandom"), prepare: withNeighbours,
			want: want{causes: []explain.Cause{explain.Runnable, explain.Misplaced}, by: "scn-neighbour", many: true, pattern: explain.NoisyNeighbour, advice: "Limit cgroup "},
		},
		{ // what it advises depends on whether the machine has a driver for idle states
			name: "idle-cpu", rule: trackWakeup, rare: true, long: true, prepare: withLateCPU,
			want: want{causes: only(explain.Runnable), by: "idle", pattern: explain.IdleWakeup, says: "idle", advice: anyAdvice},
		},
		{
			name: "retry", rule: pairOf("try_again"),
			want: want{causes: only(explain.Timer), by: "timer", pattern: explain.RetryLoop, advice: "find what it waits for by the stack of its sleeps"},
		},
		{
			name: "udp-retry", rule: pairOf("ask_again"),
			want: want{causes: only(explain.Task), by: "scn-server", root: explain.Running, rootBy: "scn-server", advice: "It is CPU time of scn-server"},
		},
	}
}

// processScenarios are waits for other processes, or for the kernel.
func processScenarios(shared *resources) []scenario {
	only := func(c explain.Cause) []explain.Cause { return []explain.Cause{c} }
	return []scenario{
		{name: "traced", rule: trackOffCPU, want: want{causes: only(explain.Stopped), by: "scn-tracer", says: "tracer"}},
		{
			name: "vfork", rule: trackSyscall("clone"),
			want: want{causes: only(explain.Task), by: "scn-child", root: explain.Running, rootBy: "scn-child", advice: "It was CPU time of scn-child"},
		},
		{
			name: "exit", rule: trackSyscall("wait4"), long: true,
			want: want{causes: only(explain.Task), by: "scn-ending", root: explain.Running, rootBy: "scn-ending", says: "freeing", advice: "It was CPU time of scn-ending", does: true},
		},
		{
			name: "user-fault", rule: trackOffCPU,
			want: want{causes: only(explain.PageFault), by: "scn-handler", root: explain.Running, rootBy: "scn-handler", advice: "It is CPU time of scn-handler"},
		},
		{
			name: "own-work", rule: trackSyscall("fallocate"), long: true,
			want: want{causes: only(explain.RunningKernel), by: "v-own-work", says: "making pages of a file in memory", advice: "It is CPU time of v-own-work", does: true},
		},
		{
			name: "quota-server", rule: trackSyscall("read"), prepare: withQuota,
			want: want{causes: only(explain.Task), by: "scn-server", root: explain.Throttled, rootBy: provoke.CgroupName("cpu"), advice: " (now 10000"},
		},
		{
			name: "quota-lock", rule: trackSyscall("flock"), prepare: withQuota,
			want: want{causes: only(explain.Locked), by: "scn-holder", root: explain.Throttled, rootBy: provoke.CgroupName("cpu"), says: "a lock of a file", advice: " (now "},
		},
		{
			name: "frozen-files", rule: trackSyscall("pwrite64"), prepare: shared.withFiles(0, 0, 0),
			want: want{
				causes: only(explain.Locked), by: "scn-freezer", root: explain.Timer, rootBy: "timer",
				says: "as its file system is frozen", advice: "scn-freezer",
			},
		},
		{
			// What a queueing discipline holds back is on its way, as far as is recorded.
			name: "shaped", rule: trackSyscall("recvfrom"),
			want: want{causes: only(explain.Task), by: "scn-peer", root: explain.Network, rootBy: "network", says: "held back by a queueing discipline: tc -s qdisc"},
		},
		{
			name: "scanned", rule: trackSyscall("openat"),
			want: want{causes: only(explain.Task), by: "scn-scanner", root: explain.Running, rootBy: "scn-scanner", advice: "Check the process that listens with fanotify"},
		},
		{
			// Where the kernel asks about a system call, trackers of system calls do not see it yet.
			name: "supervised", rule: trackOffCPU,
			want: want{causes: only(explain.Task), by: "scn-supervisor", root: explain.Running, rootBy: "scn-supervisor", advice: "It is CPU time of scn-supervisor"},
		},
		{
			name: "named-pipe", rule: trackSyscall("openat"),
			want: want{causes: only(explain.Task), by: "scn-opener", root: explain.Running, rootBy: "scn-opener", advice: "It is CPU time of scn-opener"},
		},
		{
			name: "pipeline", rule: trackSyscall("read"), prepare: shared.withDisk(40*time.Millisecond, 0, 0),
			want: want{causes: only(explain.Task), by: "scn-fetcher", root: explain.Timer, rootBy: "timer", advice: diskServer},
		},
		{name: "moved", rule: trackSyscall("sched_setaffinity"), want: want{causes: only(explain.Preempted), by: "scn-hog", advice: "Check whether scn-hog"}},
		{name: "alarm", rule: trackSyscall("rt_sigtimedwait"), want: want{causes: only(explain.Timer), by: "timer", says: "a timer of its process sent a signal"}},
		{name: "timerfd", rule: trackSyscall("read"), want: want{causes: only(explain.Timer), by: "timer", says: "timerfd"}},
		{
			name: "stop-server", rule: trackSyscall("read"),
			want: want{causes: only(explain.Task), by: "scn-server", root: explain.Stopped, rootBy: "scn-stopper"},
		},
		{
			name: "fuse-read", rule: trackSyscall("pread64"), prepare: shared.withFUSE,
			want: want{causes: only(explain.Task), by: "exe", root: explain.Timer, rootBy: "timer"},
		},
	}
}

// pairOf is a rule for a function of the scenarios' program: the only one that sees all of it.
func pairOf(function string) string {
	return fmt.Sprintf("track: pair\n    entry: uprobe:%[1]s:%[2]s\n    exit: uretprobe:%[1]s:%[2]s\n    key: tid", built.program, function)
}

// withNeighbours lets others go before the program's own tasks.
func withNeighbours(t *testing.T, r *round) {
	weigh := func(name, v1, v2 string) string {
		g := provoke.NewNamedCgroup(t, "cpu", provoke.CgroupName(name))
		g.Set(t, "cpu.shares", "cpu.weight", map[bool]string{false: v1, true: v2}[g.V2])
		return g.Dir
	}
	r.env = []string{"SCENARIO_GROUP=" + weigh("victim", "2", "1")}
	r.argument = weigh("neighbours", "262144", "10000")
}

// fromIdle is the state of cpu_idle when a CPU comes back (PWR_EVENT_EXIT).
const fromIdle = math.MaxUint32

// withLateCPU makes a CPU's way back from its idle state long: the first time after the
// program has kept it busy for a while.
func withLateCPU(_ *testing.T, r *round) {
	var s *slowirq.Spinner
	r.ready = func(t *testing.T, _ int) {
		s = slowirq.AttachTo(t, "cpu_idle", slowirq.Filter{Arg: fromIdle, CPU: r.cpu + 1}, 40*time.Millisecond)
		time.AfterFunc(40*time.Millisecond, s.Arm)
	}
	r.complete = func(t *testing.T, tr *truth) {
		spun, err := s.Wait(nil)
		if err != nil && *loadFlag != "" {
			tr.Spoilt = "the load left no CPU idle: " + err.Error()
			return
		}
		assert.NilError(t, err)
		if tr.Part = spun.End - spun.Start; spun.Start < tr.Start || spun.End > tr.End || tr.Part*10 < (tr.End-tr.Start)*9 {
			tr.Spoilt = "the CPU was late at another time"
		}
	}
}
