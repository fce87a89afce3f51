package kernel

import (
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// Event is one kind of record of the recorder, and where it comes from.
type Event struct {
	Record  uint16   // its type (enum record_type of bpf/abi/record.h)
	Groups  []string // of recorder.events that have it
	Program string   // as in ProgramStats; what shares one with another event has none of its own
	Hook    string   // where that is attached
	Missing error    // why this kernel has it not; nil: it has
}

// Events asks the running kernel for every kind of event, in the order of
// kinds.Groups. It needs no privileges, but to tell whether functions can be traced.
func Events() ([]Event, error) {
	kernel, err := LoadBTF()
	if err != nil {
		return nil, err
	}
	var list []Event
	for _, g := range kinds.Groups {
		for i := range kinds.Hooks {
			h := &kinds.Hooks[i]
			if len(h.Groups) == 0 || h.Groups[0] != g {
				continue
			}
			e := Event{Record: h.Record, Groups: h.Groups, Program: h.Program, Hook: h.Site(), Missing: probe(h, kernel)}
			if h.Program == kinds.WaitStacks {
				e.Program = "" // there are none without a tracker
			}
			list = append(list, e)
			switch h.Record {
			case abi.RecSoftirqEntry:
				list = append(list, Event{
					Record: abi.RecInterrupts, Groups: h.Groups, Missing: probe(h, kernel),
					Hook: "tp_btf:irq_handler_exit, tp_btf:softirq_exit",
				})
				continue
			case abi.RecSwitch:
			default:
				continue
			}
			e = Event{Record: abi.RecSteal, Groups: h.Groups, Hook: "tp_btf:sched_switch, tp_btf:hrtimer_expire_exit"}
			if e.Missing, err = stealMissing(kernel); err != nil {
				return nil, err
			}
			list = append(list, e)
		}
	}
	return list, nil
}
