package tracker

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/rules"
)

// hook is one program on one kernel tracepoint.
type hook struct {
	program    string // in bpf/tailcam.bpf.c
	tracepoint string // its BTF name is btf_trace_<tracepoint>
	trackers   []rules.Track
	groups     []string
}

// name is where the program is attached.
func (a *attached) name() string {
	if a.where != "" {
		return a.where
	}
	return "tp_btf:" + a.hook.tracepoint
}

// hooks lists every program, in the order of attaching: whatever ends pending
// work comes before what begins it, so nothing is left pending by the start.
var hooks = []hook{
	{"sched_waking", "sched_waking", []rules.Track{rules.Wakeup, rules.OffCPU, rules.Chain}, []string{"sched"}},
	{"sched_migrate_task", "sched_migrate_task", []rules.Track{rules.Wakeup}, []string{"sched"}},
	{"sched_wakeup_new", "sched_wakeup_new", []rules.Track{rules.Wakeup, rules.Chain}, []string{"sched"}},
	{"sched_switch", "sched_switch", []rules.Track{rules.Wakeup, rules.OffCPU, rules.Chain}, []string{"sched"}},
	{"sched_process_exit", "sched_process_exit", []rules.Track{rules.Syscall}, []string{"process"}},
	{"sched_process_exec", "sched_process_exec", []rules.Track{rules.Syscall}, []string{"process"}},
	{"sched_process_fork", "sched_process_fork", nil, []string{"process"}},
	{"sys_exit", "sys_exit", []rules.Track{rules.Syscall}, []string{"syscall"}},
	{"sys_enter", "sys_enter", []rules.Track{rules.Syscall, rules.Span}, []string{"syscall"}},
	{"block_rq_complete", "block_rq_complete", []rules.Track{rules.Block}, []string{"block"}},
	{"block_rq_merge", "block_rq_merge", []rules.Track{rules.Block}, nil},
	{"block_rq_requeue", "block_rq_requeue", []rules.Track{rules.Block}, nil},
	{"block_rq_issue", "block_rq_issue", []rules.Track{rules.Block}, []string{"block"}},
	{"block_rq_insert", "block_rq_insert", []rules.Track{rules.Block}, []string{"block"}},
	{"irq_handler_exit", "irq_handler_exit", []rules.Track{rules.IRQ, rules.Chain}, []string{"irq"}},
	{"irq_handler_entry", "irq_handler_entry", []rules.Track{rules.IRQ, rules.Chain}, []string{"irq"}},
	{"softirq_exit", "softirq_exit", []rules.Track{rules.Softirq, rules.Chain}, []string{"irq"}},
	{"softirq_entry", "softirq_entry", []rules.Track{rules.Softirq, rules.Chain}, []string{"irq"}},
	{"softirq_raise", "softirq_raise", []rules.Track{rules.Softirq, rules.Chain}, nil},
	{"hrtimer_expire_exit", "hrtimer_expire_exit", []rules.Track{rules.Chain}, []string{"timer"}},
	{"hrtimer_expire_entry", "hrtimer_expire_entry", []rules.Track{rules.Chain}, []string{"timer"}},
	{"workqueue_execute_end", "workqueue_execute_end", nil, []string{"workqueue"}},
	{"workqueue_execute_start", "workqueue_execute_start", nil, []string{"workqueue"}},
}

// Groups are the names that recorder.events may hold.
var Groups = []string{"sched", "irq", "timer", "block", "workqueue", "process", "syscall"}

// Probe is one hook of the kernel and whether this kernel has it.
type Probe struct {
	Name      string        `json:"name"`     // tp_btf:<tracepoint>
	Trackers  []rules.Track `json:"trackers"` // that need it
	Groups    []string      `json:"groups"`   // of the recorder that record it
	Available bool          `json:"available"`
	Reason    string        `json:"reason,omitempty"` // why not
}

// Probes asks the running kernel's BTF for every hook. It needs no privileges.
func Probes() ([]Probe, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's BTF: %w (tailcam needs a kernel with CONFIG_DEBUG_INFO_BTF)", err)
	}
	probes := make([]Probe, 0, len(hooks))
	for _, h := range hooks {
		p := Probe{Name: "tp_btf:" + h.tracepoint, Trackers: h.trackers, Groups: h.groups, Available: true}
		if err := h.probe(kernel); err != nil {
			p.Available, p.Reason = false, err.Error()
		}
		probes = append(probes, p)
	}
	return append(probes, pairProbes()...), nil
}

func (h *hook) probe(kernel *btf.Spec) error {
	var t *btf.Typedef
	err := kernel.TypeByName("btf_trace_"+h.tracepoint, &t)
	if errors.Is(err, btf.ErrNotFound) {
		return fmt.Errorf("this kernel has no tracepoint %s", h.tracepoint)
	}
	return err
}

// attach attaches the program to its tracepoint. Needs kernel 5.5+.
func (h *hook) attach(p *ebpf.Program) (link.Link, error) {
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return nil, fmt.Errorf("attach to tracepoint %s: %w", h.tracepoint, err)
	}
	return l, nil
}
