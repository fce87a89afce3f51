// Package kinds holds the table of trackers: all that is particular to one, in
// one place. Whoever plans, compiles, loads, decodes or reports reads it.
package kinds

import (
	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// Kind is what is particular to one tracker.
type Kind struct {
	Track  rules.Track
	Number int // in the kernel side's tables (enum tracker_kind), and in All
	// Enabled is the knob that compiles the tracker in; nil: it has none.
	Enabled func(*bpf.TailcamVariableSpecs) *ebpf.VariableSpec
	// Hooks are the programs that it cannot do without (see Hooks).
	Hooks []string
	// Table holds its pending work; nil: none that grows.
	Table *Table
	// Threads: the keys of its pending work are thread ids, so that work of
	// threads that are gone can be reclaimed. One of those that share a table.
	Threads bool

	// Classes is how many floors it has, and InClass tells whether the
	// conditions let work of one of the classes pass. Nil: the class is the
	// number of the rule's declared pair.
	Classes int
	InClass func(class int, when *rules.Match) bool
	// Floor and Timeout are where the kernel side has the floors of delays and of
	// timeouts. Nil Timeout: it has no timeouts.
	Floor, Timeout func(*bpf.TailcamVariables) *ebpf.Variable
	// Fold makes of the floors what Timeout holds; nil: the same.
	Fold func(floors []uint64) []uint64

	// Decode fills in what only its outliers carry; any bytes will do. Facts, if
	// set, adds what its rules ask for.
	Decode func(o *events.Outlier, m *Message)
	Facts  func(f *rules.Facts, m *Message)
	// Stateless: an outlier by timeout says nothing of what its task does.
	Stateless func(m *Message) bool

	// Full and Replaced say what to do about entries that found the pending table
	// full, and that met an older one of their key. Losses are its own others.
	Full, Replaced string
	Losses         []Loss
}

// Loss is something that can be lost, summed over CPUs.
type Loss struct {
	Cause  string
	Advice string
	Count  func(*abi.CpuState) uint64
}

const exitUnseen = "an exit was missed: see switch_unseen and program_missed"

// All is the table, in the order of rules.Tracks, which is that of the kernel side.
var All = []Kind{
	{
		Track: rules.Wakeup, Number: abi.TrackWakeup, Table: &Tables[abi.TableTasks], Threads: true,
		Enabled: func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.TrackWakeup },
		Hooks:   []string{"sched_waking", "sched_migrate_task", "sched_wakeup_new", "sched_switch"},
		Classes: abi.FloorThreads, InClass: inThread,
		Floor:   func(v *bpf.TailcamVariables) *ebpf.Variable { return v.FloorWakeup },
		Timeout: func(v *bpf.TailcamVariables) *ebpf.Variable { return v.TimeoutWakeup },
		Fold:    least, Decode: decodeWakeup,
		Full: "raise capacity.max.tasks", Replaced: exitUnseen,
		Losses: []Loss{
			{"wait_stack_left_out", "more than 200 long uninterruptible waits a second on a CPU: explanations of the others do not say where they waited", func(s *abi.CpuState) uint64 { return s.Waits.LeftOut }},
		},
	},
	{
		Track: rules.OffCPU, Number: abi.TrackOffcpu, Table: &Tables[abi.TableTasks],
		Enabled: func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.TrackOffcpu },
		Hooks:   []string{"sched_waking", "sched_switch"},
		Classes: abi.FloorThreads * abi.FloorStates, InClass: inState,
		Floor:   func(v *bpf.TailcamVariables) *ebpf.Variable { return v.FloorOffcpu },
		Timeout: func(v *bpf.TailcamVariables) *ebpf.Variable { return v.TimeoutOffcpu },
		Fold:    leastOfStates, Decode: decodeOffCPU,
		Full: "raise capacity.max.tasks", Replaced: exitUnseen,
	},
	{
		Track: rules.Syscall, Number: abi.TrackSyscall, Table: &Tables[abi.TableCalls], Threads: true,
		Enabled: func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.TrackSyscall },
		Hooks:   []string{"sched_process_exit", "sched_process_exec", "sys_exit", "sys_enter"},
		Classes: abi.Syscalls, InClass: inSyscall,
		Floor:   func(v *bpf.TailcamVariables) *ebpf.Variable { return v.FloorSyscall },
		Timeout: func(v *bpf.TailcamVariables) *ebpf.Variable { return v.TimeoutSyscall },
		Decode:  decodeSyscall,
		Full:    "raise capacity.max.syscalls", Replaced: exitUnseen,
		Losses: []Loss{
			{"call_crowded", "more than four slow calls ended at once on a CPU, in tasks that preempt each other: raise the rule's threshold", func(s *abi.CpuState) uint64 { return s.CallCrowded }},
		},
	},
	{
		Track: rules.Block, Number: abi.TrackBlock, Table: &Tables[abi.TableRequests],
		Enabled: func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.TrackBlock },
		Hooks:   []string{"block_rq_complete", "block_rq_merge", "block_rq_requeue", "block_rq_issue", "block_rq_insert"},
		Classes: abi.FloorOps, InClass: inOp,
		Floor:   func(v *bpf.TailcamVariables) *ebpf.Variable { return v.FloorBlock },
		Timeout: func(v *bpf.TailcamVariables) *ebpf.Variable { return v.TimeoutBlock },
		Decode:  decodeBlock, Stateless: always,
		Full: "raise capacity.max.block", Replaced: exitUnseen,
	},
	{
		Track: rules.IRQ, Number: abi.TrackIrq,
		Enabled: func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.TrackIrq },
		Hooks:   []string{"irq_handler_exit", "irq_handler_entry"},
		Classes: abi.IrqClasses, InClass: inIRQ,
		Floor:   func(v *bpf.TailcamVariables) *ebpf.Variable { return v.FloorIrq },
		Timeout: func(v *bpf.TailcamVariables) *ebpf.Variable { return v.TimeoutIrq },
		Decode:  decodeIRQ, Facts: interruptFacts, Stateless: always,
		Full: nestedHandlers, Replaced: exitUnseen,
	},
	{
		Track: rules.Softirq, Number: abi.TrackSoftirq,
		Enabled: func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.TrackSoftirq },
		Hooks:   []string{"softirq_exit", "softirq_entry", "softirq_raise"},
		Classes: abi.Phases * abi.Softirqs, InClass: inSoftirq,
		Floor:   func(v *bpf.TailcamVariables) *ebpf.Variable { return v.FloorSoftirq },
		Timeout: func(v *bpf.TailcamVariables) *ebpf.Variable { return v.TimeoutSoftirq },
		Decode:  decodeSoftirq, Facts: interruptFacts, Stateless: always,
		Full: nestedHandlers, Replaced: exitUnseen,
	},
	{
		// Its hooks are those that its rules declare.
		Track: rules.Pair, Number: abi.TrackPair, Table: &Tables[abi.TablePairs],
		Classes: abi.MaxPairs,
		Floor:   func(v *bpf.TailcamVariables) *ebpf.Variable { return v.FloorPair },
		Timeout: func(v *bpf.TailcamVariables) *ebpf.Variable { return v.TimeoutPair },
		Decode:  decodePair,
		Full:    "raise capacity.pairs", Replaced: exitUnseen,
	},
	{
		Track: rules.Chain, Number: abi.TrackChain, Threads: true,
		Enabled: func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.TrackChain },
		Hooks: []string{
			"sched_waking", "sched_wakeup_new", "sched_switch", "irq_handler_exit", "irq_handler_entry",
			"softirq_exit", "softirq_entry", "softirq_raise", "hrtimer_expire_exit", "hrtimer_expire_entry",
		},
		Classes: abi.FloorEnds, InClass: inEnd,
		Floor:  func(v *bpf.TailcamVariables) *ebpf.Variable { return v.FloorChain },
		Decode: decodeChain, Facts: chainFacts,
		Full: "raise capacity.chains", Replaced: exitUnseen,
		Losses: []Loss{
			{"chain_cut", "a chain is limited to 12 stages and 64 tasks: list fewer origins in from, or use an earlier end in to", func(s *abi.CpuState) uint64 { return s.ChainTruncated }},
			{"chain_met", "the woken task was still working for an older chain, which is kept: list fewer origins in from", func(s *abi.CpuState) uint64 { return s.ChainMet }},
			{"chain_ended", "a chain is limited to 60s: its task neither slept nor exited within that time", func(s *abi.CpuState) uint64 { return s.ChainEnded }},
			{"chain_unseen", "the task was woken in a page fault, whose return to user space is not traced: use to: run or block", func(s *abi.CpuState) uint64 { return s.ChainUnseen }},
		},
	},
	{
		Track: rules.Span, Number: abi.TrackSpan, Table: &Tables[abi.TableSpans],
		Enabled: func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.TrackSpan },
		Hooks:   []string{"sys_enter"},
		Classes: 1, InClass: func(int, *rules.Match) bool { return true },
		Floor:   func(v *bpf.TailcamVariables) *ebpf.Variable { return v.FloorSpan },
		Timeout: func(v *bpf.TailcamVariables) *ebpf.Variable { return v.TimeoutSpan },
		Decode:  decodeSpan, Facts: spanFacts, Stateless: spanOwnerGone,
		Full:     "raise capacity.spans",
		Replaced: "a span was begun again before its end: use a unique key for each span",
		Losses: []Loss{
			{"span_unknown", "ended without a begin by the same user and pid namespace; harmless if it began before tailcam started", func(s *abi.CpuState) uint64 { return s.Span.Unknown }},
			{"span_bad_key", "a key must be 1 to 63 bytes without NUL, in resident memory: use tailcam's header or package", func(s *abi.CpuState) uint64 { return s.Span.BadKey }},
			{"span_forgotten", "the oldest was dropped for a newer one of the same user: end each span, or raise capacity.spans", func(s *abi.CpuState) uint64 { return s.Span.Forgotten }},
			{"span_outvied", "the oldest of the user with the most spans was dropped for another user: end each span, or raise capacity.spans", func(s *abi.CpuState) uint64 { return s.Span.Outvied }},
			{"span_expired", "not ended within ten minutes or twice the rules' limits: end each span", func(s *abi.CpuState) uint64 { return s.Span.Expired }},
		},
	},
	{
		Track: rules.Workqueue, Number: abi.TrackWorkqueue, Table: &Tables[abi.TableWorks],
		Enabled: func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.TrackWorkqueue },
		Hooks:   []string{"workqueue_execute_end", "workqueue_execute_start", "workqueue_queue_work"},
		Classes: abi.Phases, InClass: inWorkPhase,
		Floor:   func(v *bpf.TailcamVariables) *ebpf.Variable { return v.FloorWorkqueue },
		Timeout: func(v *bpf.TailcamVariables) *ebpf.Variable { return v.TimeoutWorkqueue },
		Decode:  decodeWork, Facts: workFacts, Stateless: workerUnknown,
		Full: "raise capacity.max.workqueue", Replaced: exitUnseen,
	},
}

// Of returns the kind of a tracker; nil: there is no such tracker.
func Of(track rules.Track) *Kind {
	for i := range All {
		if All[i].Track == track {
			return &All[i]
		}
	}
	return nil
}

// always is Stateless of trackers whose key is not a task.
func always(*Message) bool { return true }
