package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/bench/peer"
)

// program is one BPF program's account since it was loaded.
type program struct {
	hook string
	runs uint64
	time time.Duration
}

// running is a setup at work.
type running interface {
	programs() ([]program, error)
	stop() error
}

// setup is one thing to measure.
type setup struct {
	name    string
	start   func(context.Context) (running, error) // nil: nothing is started
	missing string                                 // why it cannot be measured; empty: it can
	against string                                 // name of the setup that does the same job another way
}

// Names that rows refer to.
const (
	sNothing    = "nothing"
	sEmpty      = "empty programs"
	sWakeup     = "wakeup"
	sTasks      = "wakeup+offcpu"
	sTasksRec   = "wakeup+offcpu+recorder"
	sTasksChain = "wakeup+offcpu+chain"
	sRecorder   = "recorder"
	sRecPerf    = "recorder in perf rings"
	sRing       = "ring alone"
	sRingPerf   = "bpf_perf_event_output alone"
	sTasksPerf  = "wakeup+offcpu+recorder in perf rings"
	sSlow       = "wakeup+offcpu+recorder, 10ms rules"
	sCalls      = "syscall, every call"
	sOtherCall  = "syscall, another call"
	sBlock      = "block"
	sAll        = "everything"
	sAllUser    = "everything, user stacks"
	sShipped    = "rules and recorder as shipped"
	sManyRules  = "everything, 50 rules"
	sBTRunq     = "bpftrace run queue"
	sBTOffcpu   = "bpftrace off-CPU"
	sBTSyscall  = "bpftrace syscall"
	sBTBlock    = "bpftrace block"
	sRunqslower = "runqslower as bcc does it"
	sLBRunq     = "libbpf-tools runqslower"
	sLBRunqSlow = "libbpf-tools runqslower, 10ms"
	sLBOffcpu   = "libbpf-tools offcputime"
	sRecCalls   = "recorder, syscall"
	sRecCallsP  = "recorder in perf rings, syscall"
	sFtrace     = "ftrace, sched"
	sFtraceCall = "ftrace, syscall"
	sPerfSched  = "perf record --overwrite, sched"
	sPerfCalls  = "perf record --overwrite, syscall"
	sPerfAll    = "perf record --overwrite, all"
)

// What bpftrace is asked to do.
const (
	btRunq = `tracepoint:sched:sched_waking, tracepoint:sched:sched_wakeup_new { @q[args->pid] = nsecs }
tracepoint:sched:sched_switch {
	if (args->prev_state == 0) { @q[args->prev_pid] = nsecs }
	$s = @q[args->next_pid];
	if ($s) { @usecs = hist((nsecs - $s) / 1000) }
	delete(@q[args->next_pid])
}`
	btOffcpu = `tracepoint:sched:sched_switch {
	@off[args->prev_pid] = nsecs; @stack[args->prev_pid] = kstack;
	$s = @off[args->next_pid];
	if ($s) { @ns[@stack[args->next_pid], args->next_comm] = sum(nsecs - $s) }
	delete(@off[args->next_pid]); delete(@stack[args->next_pid])
}`
	btSyscall = `tracepoint:raw_syscalls:sys_enter { @s[tid] = nsecs }
tracepoint:raw_syscalls:sys_exit /@s[tid]/ { @usecs = hist((nsecs - @s[tid]) / 1000); delete(@s[tid]) }`
	btBlock = `tracepoint:block:block_rq_issue { @s[args->dev, args->sector] = nsecs }
tracepoint:block:block_rq_complete /@s[args->dev, args->sector]/ {
	@usecs = hist((nsecs - @s[args->dev, args->sector]) / 1000); delete(@s[args->dev, args->sector])
}`
)

// Events that perf records: those of the recorder's groups.
var (
	perfCalls = []string{"raw_syscalls:sys_enter", "raw_syscalls:sys_exit"}
	perfSched = []string{"sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new", "sched:sched_migrate_task"}
	perfAll   = append(perfSched[:len(perfSched):len(perfSched)],
		"irq:irq_handler_entry", "irq:irq_handler_exit", "irq:softirq_entry", "irq:softirq_exit",
		"timer:hrtimer_expire_entry", "timer:hrtimer_expire_exit",
		"block:block_rq_insert", "block:block_rq_issue", "block:block_rq_complete",
		"workqueue:workqueue_execute_start", "workqueue:workqueue_execute_end",
		"sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit")
)

// setups lists everything to measure, in the order of a round. Nothing comes
// several times: all wall clocks are compared with it.
func setups(dir string) []setup {
	all := oneRule(builtin...)
	tasks := oneRule(rules.Wakeup, rules.OffCPU)
	usec := fmt.Sprint(threshold.Microseconds())
	return append([]setup{
		{name: sNothing},
		{name: sEmpty, start: startEmpty},
		{name: sWakeup, start: tailcamWith(oneRule(rules.Wakeup)), against: sBTRunq},
		{name: sBTRunq, start: bpftrace(btRunq, 3), missing: needs("bpftrace", "bpftrace")},
		{name: sTasksRec, start: tailcamWith(tasks, "sched"), against: sRunqslower},
		{name: sRunqslower, start: startRunqslower},
		{name: sNothing},
		{name: sLBRunq, start: libbpfTool("runqslower", usec), missing: needs("runqslower", "libbpf-tools")},
		{name: sTasksPerf, start: startTailcam(tasks, "perf", []string{"sched"}), against: sTasksRec},
		{name: sSlow, start: tailcamWith(withThreshold(tasks, 10*time.Millisecond), "sched"), against: sLBRunqSlow},
		{name: sLBRunqSlow, start: libbpfTool("runqslower", "10000"), missing: needs("runqslower", "libbpf-tools")},
		{name: sTasks, start: tailcamWith(tasks), against: sBTOffcpu},
		{name: sTasksChain, start: tailcamWith(oneRule(rules.Wakeup, rules.OffCPU, rules.Chain)), against: sTasks},
		{name: sBTOffcpu, start: bpftrace(btOffcpu, 1), missing: needs("bpftrace", "bpftrace")},
		{name: sLBOffcpu, start: libbpfTool("offcputime"), missing: needs("offcputime", "libbpf-tools")},
		{name: sNothing},
		{name: sRecorder, start: tailcamWith(nil, "sched"), against: sRecPerf},
		{name: sRecPerf, start: startTailcam(nil, "perf", []string{"sched"})},
		{name: sRing, start: startRing("mmap"), against: sRingPerf},
		{name: sRingPerf, start: startRing("perf")},
		{name: sFtrace, start: ftrace(perfSched)},
		{name: sPerfSched, start: perfRecord(dir, perfSched), missing: needs("perf", "linux-perf")},
		{name: sRecCalls, start: tailcamWith(nil, "syscall"), against: sRecCallsP},
		{name: sRecCallsP, start: startTailcam(nil, "perf", []string{"syscall"})},
		{name: sFtraceCall, start: ftrace(perfCalls)},
		{name: sPerfCalls, start: perfRecord(dir, perfCalls), missing: needs("perf", "linux-perf")},
		{name: sCalls, start: tailcamWith(oneRule(rules.Syscall)), against: sBTSyscall},
		{name: sBTSyscall, start: bpftrace(btSyscall, 2), missing: needs("bpftrace", "bpftrace")},
		{name: sNothing},
		{name: sOtherCall, start: tailcamWith(callRule("fsync"))},
		{name: sBlock, start: tailcamWith(oneRule(rules.Block)), against: sBTBlock},
		{name: sBTBlock, start: bpftrace(btBlock, 2), missing: needs("bpftrace", "bpftrace")},
		{name: sNothing},
		{name: sAll, start: tailcamWith(all, everyGroup...), against: sPerfAll},
		{name: sManyRules, start: tailcamWith(manyRules(50), everyGroup...), against: sAll},
		{name: sShipped, start: startShipped},
		{name: sAllUser, start: tailcamWith(withUserStacks(all), everyGroup...), against: sAll},
		{name: sPerfAll, start: perfRecord(dir, perfAll), missing: needs("perf", "linux-perf")},
	}, append(pendingSetups(all), histogramSetups()...)...)
}

func needs(name, debian string) string {
	if peer.Find(name) != "" {
		return ""
	}
	return fmt.Sprintf("not measured: %s is not installed (apt-get install %s)", name, debian)
}

// other is another tool at work.
type other struct{ *peer.Peer }

func (o other) programs() ([]program, error) {
	accounts, err := o.Programs()
	list := make([]program, len(accounts))
	for i, a := range accounts {
		list[i] = program{a.Hook, a.Runs, a.Time}
	}
	return list, err
}

func (o other) stop() error { return o.Stop() }

func bpftrace(script string, programs int) func(context.Context) (running, error) {
	return func(ctx context.Context) (running, error) {
		return started(peer.Bpftrace(ctx, script, programs))
	}
}

func libbpfTool(name string, args ...string) func(context.Context) (running, error) {
	return func(ctx context.Context) (running, error) {
		return started(peer.Start(ctx, append([]string{peer.Find(name)}, args...),
			func(f peer.Files) bool { return len(f.Programs) > 0 }))
	}
}

// perfRecord keeps the last events in rings as large as each of tailcam's banks.
func perfRecord(dir string, events []string) func(context.Context) (running, error) {
	return func(ctx context.Context) (running, error) {
		return started(peer.PerfRecord(ctx, dir, ringSize/2, events))
	}
}

func ftrace(events []string) func(context.Context) (running, error) {
	return func(ctx context.Context) (running, error) {
		return started(peer.Ftrace(ctx, ringSize, events))
	}
}

// started keeps a nil pointer from becoming a setup at work.
func started(p *peer.Peer, err error) (running, error) {
	if err != nil {
		return nil, err
	}
	return other{p}, nil
}
