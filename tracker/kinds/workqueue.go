package kinds

import (
	"fmt"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// inWorkPhase: classes are by phase.
func inWorkPhase(class int, m *rules.Match) bool {
	return Admits(m.Phase, nil, rules.Phases(rules.Workqueue)[class])
}

// The task is the worker. Work that waits has none yet, and neither has work
// that runs in a softirq.
func decodeWork(o *events.Outlier, m *Message) {
	x := extra[abi.WorkExtra](m)
	o.Key = map[string]uint64{"work": x.Work}
	o.Work = &events.WorkInfo{
		Queue:    Text(x.Queue[:]),
		Function: fmt.Sprintf("%#x", x.Function), // named by whoever knows symbols
		Address:  x.Function,
		Phase:    string(phaseOf(rules.Workqueue, x.Phase)),
	}
	if x.Queued == 0 {
		return
	}
	if wait := int64(x.WaitNs); x.Phase == abi.PhaseRun {
		o.Work.WaitNS = &wait
	}
	o.Work.QueuedBy = waker(m)
}

func workFacts(f *rules.Facts, m *Message) {
	x := extra[abi.WorkExtra](m)
	f.Name, f.Phase = Text(x.Queue[:]), phaseOf(rules.Workqueue, x.Phase)
}

// workerUnknown: work that waits has no worker whose state could be told.
func workerUnknown(m *Message) bool { return m.Tid == 0 }

// Function is the address of the function of a work item.
func (m *Message) Function() uint64 { return extra[abi.WorkExtra](m).Function }
