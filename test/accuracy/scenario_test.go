package accuracy

import (
	"cmp"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/test/support/cpus"
	"github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/test/support/slowirq"
)

// scenario is one known latency.
type scenario struct {
	name string
	rule string // tracker and conditions of the rule, beside the victim's name
	comm string // the victim's; "": one of its own
	want want
	// caughtBy is the rule, which several may share.
	caughtBy string
	// threshold of the rule; 0: 10ms
	threshold time.Duration
	// rare is what this machine cannot be made to do: where it does not happen,
	// nothing is judged, and the score says so.
	rare bool
	// long takes seconds, and is left out unless all shall be run.
	long bool
	// prepare makes what the program needs before it is started; nil: nothing.
	prepare func(t *testing.T, r *round)
}

// round is one run of a scenario's program.
type round struct {
	argument string                    // the program's
	cpu      int                       // the victim's, known when it is ready
	other    int                       // the others', as well
	env      []string                  // its environment, beside the usual
	ready    func(t *testing.T, p int) // called with its pid before it begins
	complete func(t *testing.T, tr *truth)
}

const (
	trackWakeup = "track: wakeup"
	trackOffCPU = "track: offcpu"
)

func trackSyscall(names string) string {
	return "track: syscall\n    attach: all, syscall: [" + names + "]"
}

// scenarios is the list. The order is that of the table.
func scenarios(shared *resources) []scenario {
	only := func(c explain.Cause) []explain.Cause { return []explain.Cause{c} }
	return []scenario{
		{name: "rt-hog", rule: trackWakeup, want: want{causes: only(explain.Preempted), by: "scn-hog", advice: "kernel.sched_rt_runtime_us (now "}},
		{
			name: "forker", rule: trackWakeup,
			want: want{causes: only(explain.Preempted), by: "scn-forker", says: "copying page tables for fork", advice: "kernel.sched_rt_runtime_us (now ", does: true},
		},
		{
			name: "work-item", rule: "track: workqueue, function: [refresh_vm_stats], phase: wait", comm: "kworker/*",
			want: want{causes: only(explain.Preempted), by: "scn-hog", says: "work refresh_vm_stats of queue events waited", advice: "kernel.sched_rt_runtime_us (now "},
		},
		{name: "nice-hog", rule: trackWakeup, want: want{causes: only(explain.Preempted), by: "scn-nicer", advice: "Check the nice values of scn-nicer"}, prepare: withWeight},
		{name: "many-equals", rule: trackWakeup, want: want{causes: only(explain.Runnable), by: "scn-equal", many: true, pattern: explain.CPUSaturation, advice: "there is more to run on those than they can"}, prepare: withWeight},
		{
			name: "pinned", rule: trackWakeup,
			want: want{
				causes: only(explain.Misplaced), by: "scn-equal", many: true,
				parts: []explain.Cause{explain.Misplaced, explain.Runnable}, advice: "taskset -cp",
			},
			prepare: withWeight,
		},
		{name: "quota", rule: trackWakeup, want: want{causes: only(explain.Throttled), by: provoke.CgroupName("cpu"), advice: " (now "}, prepare: withQuota},
		{
			name: "quota-above", rule: trackWakeup, prepare: withQuotaAbove,
			want: want{causes: only(explain.Throttled), by: provoke.CgroupName("outer"), says: provoke.CgroupName("outer") + " (cpu.", advice: "outer (now "},
		},
		{
			name: "idle-policy", rule: trackWakeup, prepare: withWeight,
			want: want{causes: only(explain.Runnable), by: "scn-hog", says: "which goes before SCHED_IDLE", advice: "v-idle-policy"},
		},
		{ // only where nobody is in a cgroup with the controller of CPU time
			name: "autogroup", rule: trackWakeup, rare: true,
			want: want{causes: only(explain.Runnable), by: "scn-hog", says: "of another session", advice: "/autogroup lets the first one's go before"},
		},
		{name: "softirq", rule: trackWakeup, want: want{causes: only(explain.Softirq), by: "NET_RX", advice: "Spread the packets over more CPUs"}, prepare: withLongSoftirq},
		{name: "softirq-storm", rule: trackWakeup, want: want{causes: only(explain.Softirq), by: "NET_RX", advice: "Spread the packets over more CPUs"}},
		{
			name: "irqs-off", rule: trackWakeup, want: want{causes: only(explain.Runnable), by: "scn-irqs-off"},
			prepare: withInterruptsOff,
		},
		{name: "stopped", rule: trackOffCPU, want: want{causes: only(explain.Stopped), by: "scn-stopper"}},
		{name: "frozen", rule: trackOffCPU, want: want{causes: only(explain.Stopped), by: "scn-freezer"}, prepare: withFreezer},
		{
			name: "futex-sleeper", rule: trackSyscall("futex"),
			want: want{causes: only(explain.Locked), by: "scn-holder", root: explain.Timer, rootBy: "timer", advice: "sleeps while it holds the lock"},
		},
		{
			name: "futex-invert", rule: trackSyscall("futex"),
			want: want{causes: only(explain.Locked), by: "scn-holder", root: explain.Preempted, rootBy: "scn-hog", pattern: explain.PreemptedHolder, advice: "holds the lock and cannot run"},
		},
		{
			name: "inversion", rule: trackSyscall("futex"),
			want: want{causes: only(explain.Locked), by: "scn-holder", root: explain.Preempted, rootBy: "scn-hog", pattern: explain.PriorityInversion, advice: "PTHREAD_PRIO_INHERIT"},
		},
		{
			name: "convoy", rule: trackSyscall("futex"),
			want: want{causes: only(explain.Locked), by: "scn-turn", root: explain.Timer, rootBy: "timer", pattern: explain.LockConvoy, advice: "Many take turns at one lock"},
		},
		{
			name: "pool", rule: trackSyscall("futex"),
			want: want{causes: only(explain.Task), by: "scn-worker", root: explain.Timer, rootBy: "timer", pattern: explain.ExhaustedPool, advice: "All threads named scn-worker-*"},
		},
		{
			name: "lock-chain", rule: trackSyscall("futex"),
			want: want{causes: only(explain.Locked), by: "scn-first", root: explain.Running, rootBy: "scn-third", advice: "It is CPU time of scn-third"},
		},
		{
			name: "pipe", rule: trackSyscall("write"),
			want: want{causes: only(explain.Task), by: "scn-reader", root: explain.Running, rootBy: "scn-reader", advice: "It is CPU time of scn-reader"},
		},
		{
			name: "local-server", rule: trackSyscall("read"),
			want: want{causes: only(explain.Task), by: "scn-server", root: explain.Running, rootBy: "scn-server", advice: "It is CPU time of scn-server"},
		},
		{
			name: "postgres", rule: trackSyscall("read"),
			want:    want{causes: only(explain.Task), by: "postgres", root: explain.Timer, rootBy: "timer", advice: diskServer},
			prepare: shared.withPostgres,
		},
		{
			name: "child", rule: trackSyscall("wait4"),
			want: want{causes: only(explain.Task), by: "scn-child", root: explain.Running, rootBy: "scn-child", advice: "It was CPU time of scn-child"},
		},
		{
			name: "network", rule: trackSyscall("recvfrom"),
			want: want{causes: []explain.Cause{explain.Task, explain.Network}, by: "scn-peer", root: explain.Timer, rootBy: "timer"},
		},
		{name: "timer", rule: trackSyscall("clock_nanosleep"), want: want{causes: only(explain.Timer), by: "timer"}},
		{
			name: "slow-disk", rule: trackSyscall("pread64"),
			want:    want{causes: only(explain.BlockDevice), by: "loop", root: explain.Timer, rootBy: "timer", advice: diskServer},
			prepare: shared.withDisk(40*time.Millisecond, 0, 0),
		},
		{
			name: "deep-queue", rule: trackSyscall("pread64"),
			want:    want{causes: only(explain.BlockQueue), by: "scn-writer", advice: "Limit what scn-writer"},
			prepare: shared.withDisk(5*time.Millisecond, 8*time.Millisecond, 0),
		},
		{
			name: "journal", rule: trackSyscall("fsync"),
			want:    want{causes: only(explain.Journal), by: "jbd2/", root: explain.Timer, rootBy: "timer", says: "in jbd2_log_wait_commit", advice: diskServer},
			prepare: shared.withFiles(0, 12*time.Millisecond, 12*time.Millisecond),
		},
		{
			name: "page-fault", rule: trackOffCPU, want: want{causes: only(explain.PageFault), by: "loop", advice: "Keep pages of v-page-fault"},
			prepare: shared.withFiles(40*time.Millisecond, 0, 0),
		},
		{
			name: "reclaim", rule: trackSyscall("madvise"), want: want{causes: only(explain.Reclaim), by: provoke.CgroupName("memory"), advice: " (now "},
			prepare: shared.withLittleMemory,
		},
		{
			name: "work-queue", rule: trackSyscall("sync_file_range"),
			want:    want{causes: only(explain.WorkQueue), by: "ext4_end_io_rsv_work", advice: "check why ext4_end_io_rsv_work takes so long"},
			prepare: shared.withLongWork,
		},
		{
			name: "steal", rule: trackSyscall("getrandom"), threshold: 900 * time.Microsecond, rare: true,
			want: want{causes: only(explain.StolenTime), by: "hypervisor", advice: "ask the operator of the host"},
		},
	}
}

// rules is a rule file with one for all scenarios of a kind, which has the name of the first.
func rules(list []scenario) string {
	victims := map[string][]string{} // by the rule's name
	names := map[string]string{}     // by what it says
	for i := range list {
		s := &list[i]
		kind := s.least().String() + " " + s.rule
		if names[kind] == "" {
			names[kind] = s.name
		}
		s.caughtBy = names[kind]
		victims[s.caughtBy] = append(victims[s.caughtBy], cmp.Or(s.comm, victim(s.name)))
	}
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range list {
		s := &list[i]
		if s.caughtBy != s.name {
			continue
		}
		track, call, _ := strings.Cut(s.rule, ", ")
		b.WriteString("  - name: " + s.name + "\n    " + track + "\n    threshold: " + s.least().String() +
			"\n    when: {comm: [" + strings.Join(victims[s.name], ", ") + "]")
		if call != "" {
			b.WriteString(", " + call)
		}
		b.WriteString("}\n    snapshot: {before: 100ms, after: 20ms, every: 1ms, burst: 1000}\n")
	}
	return b.String()
}

// least is how long a latency must be to be caught.
func (s *scenario) least() time.Duration { return cmp.Or(s.threshold, 10*time.Millisecond) }

// victim is the name of a scenario's victim, which its rule goes by.
func victim(scenario string) string { return "v-" + scenario }

// spins has the harness make something of the kernel long, once. ofProgram: what
// the scenario's program does, and the victim runs soon after it is over: that
// is the truth's part. Otherwise that is all the time, of which it is nearly all.
func spins(tracepoint string, f slowirq.Filter, d time.Duration, ofProgram bool) func(t *testing.T, r *round) {
	return func(_ *testing.T, r *round) {
		var s *slowirq.Spinner
		r.ready = func(t *testing.T, pid int) {
			if ofProgram {
				f.PID = pid
			}
			s = slowirq.AttachTo(t, tracepoint, f, d)
			s.Arm()
		}
		r.complete = func(t *testing.T, tr *truth) {
			spun, err := s.Wait(nil)
			assert.NilError(t, err)
			if spun.Start > tr.Start+uint64(d/4) || spun.End < tr.Start || spun.End > tr.End {
				tr.Spoilt = "the kernel was long at another time"
				return
			}
			within := spun.End - max(spun.Start, tr.Start)
			switch whole := tr.End - max(spun.Start, tr.Start); {
			case ofProgram && within > whole/2:
				tr.Part = within
			case !near(int64(whole), int64(within)):
				tr.Spoilt = "it took long afterwards"
			}
		}
	}
}

func withLongSoftirq(t *testing.T, r *round) {
	spins("softirq_entry", slowirq.Filter{Arg: cpus.NetRX}, 40*time.Millisecond, true)(t, r)
}

func withInterruptsOff(t *testing.T, r *round) {
	woken := slowirq.Filter{
		Arg: slowirq.Any, Struct: "task_struct", Field: "comm", Bytes: 8, Value: binary.NativeEndian.Uint64([]byte("scn-sleeper")),
	}
	spins("sched_waking", woken, 40*time.Millisecond, true)(t, r)
}
