package tracker

import (
	"fmt"

	"github.com/cilium/ebpf/btf"
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
// Groups. It needs no privileges, but to tell whether functions can be traced.
func Events() ([]Event, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's BTF: %w (tailcam needs a kernel with CONFIG_DEBUG_INFO_BTF)", err)
	}
	var list []Event
	for _, g := range Groups {
		for i := range hooks {
			h := &hooks[i]
			if len(h.groups) == 0 || h.groups[0] != g {
				continue
			}
			list = append(list, Event{Record: h.record, Groups: h.groups, Program: h.program, Hook: h.site(), Missing: h.probe(kernel)})
			if h.record != recSwitch {
				continue
			}
			e := Event{Record: recSteal, Groups: h.groups, Hook: "tp_btf:sched_switch, tp_btf:hrtimer_expire_exit"}
			if e.Missing, err = stealMissing(kernel); err != nil {
				return nil, err
			}
			list = append(list, e)
		}
	}
	return list, nil
}
