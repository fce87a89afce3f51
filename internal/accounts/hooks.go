package accounts

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/tracker/kernel"
)

// Hook is a program of bpf/activity.bpf.c that a group beside the scheduler's has, and
// where it is attached.
type Hook struct {
	Program string // also the name of its tracepoint, but for those of the scheduler
	Groups  []string
	event   uint64 // it is no tracepoint but this software event of perf, on each CPU
	others  string // what the event's name is
}

// Site is where the program is attached.
func (h *Hook) Site() string {
	if h.others != "" {
		return "perf_event:" + h.others
	}
	return "tp_btf:" + cmp.Or(ofScheduler[h.Program], h.Program)
}

// ofScheduler are the tracepoints of the scheduler's programs.
var ofScheduler = map[string]string{
	"activity_switch": "sched_switch", "activity_waking": "sched_waking", "activity_fork": "sched_process_fork",
	"activity_exec": "sched_process_exec", "activity_exit": "sched_process_exit",
}

// Hooks lists the programs of all groups but the scheduler's. What ends something comes
// before what begins it, as it is attached in this order.
var Hooks = []Hook{
	{Program: "block_rq_complete", Groups: []string{Block}},
	{Program: "block_rq_issue", Groups: []string{Block}},
	{Program: "block_split", Groups: []string{Block}},
	{Program: "block_bio_queue", Groups: []string{Block}},
	{Program: "writeback_single_inode", Groups: []string{Block}},
	{Program: "writeback_single_inode_start", Groups: []string{Block}},
	{Program: "writeback_dirty_folio", Groups: []string{Block, PageCache}},
	{Program: "io_uring_queue_async_work", Groups: []string{Block, PageCache, Network, Memory, Workqueues}},
	{Program: "mm_filemap_delete_from_page_cache", Groups: []string{PageCache}},
	{Program: "mm_filemap_get_pages", Groups: []string{PageCache}},
	{Program: "mm_filemap_fault", Groups: []string{PageCache}},
	{Program: "mm_filemap_map_pages", Groups: []string{PageCache}},
	{Program: "mm_filemap_add_to_page_cache", Groups: []string{PageCache}},
	{Program: "tcp_retransmit_skb", Groups: []string{Network}},
	{Program: "sock_recv_length", Groups: []string{Network}},
	{Program: "sock_send_length", Groups: []string{Network}},
	{Program: "fault_minor", Groups: []string{Memory}, event: unix.PERF_COUNT_SW_PAGE_FAULTS_MIN, others: "page-faults-min"},
	{Program: "fault_major", Groups: []string{Memory}, event: unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ, others: "page-faults-maj"},
	{Program: "page_fault_user", Groups: []string{Memory}},
	{Program: "page_fault_kernel", Groups: []string{Memory}},
	{Program: "mm_page_alloc", Groups: []string{Memory}},
	{Program: "workqueue_execute_end", Groups: []string{Workqueues}},
	{Program: "workqueue_execute_start", Groups: []string{Workqueues}},
	{Program: "workqueue_queue_work", Groups: []string{Workqueues}},
	{Program: "contention_end", Groups: []string{Locks}},
	{Program: "contention_begin", Groups: []string{Locks}},
	{Program: "softirq_exit", Groups: []string{Interrupts}},
	{Program: "softirq_entry", Groups: []string{Interrupts}},
	{Program: "irq_handler_exit", Groups: []string{Interrupts}},
	{Program: "irq_handler_entry", Groups: []string{Interrupts}},
	{Program: "sys_exit", Groups: []string{Syscalls}},
	{Program: "sys_enter", Groups: []string{Syscalls}},
}

// hookOf returns the hook of a program.
func hookOf(program string) *Hook {
	if i := slices.IndexFunc(Hooks, func(h Hook) bool { return h.Program == program }); i >= 0 {
		return &Hooks[i]
	}
	return &Hook{Program: program}
}

// in reports whether one of the groups has the hook.
func (h *Hook) in(groups []string) bool {
	return slices.ContainsFunc(h.Groups, func(g string) bool { return slices.Contains(groups, g) })
}

// Missing says which programs of the groups have no hook in this kernel, and why. It
// needs no privileges.
func Missing(groups []string) (map[string]error, error) {
	types, err := kernel.LoadBTF()
	if err != nil {
		return nil, err
	}
	absent := map[string]error{}
	for i := range Hooks {
		h := &Hooks[i]
		if !h.in(groups) || h.others != "" {
			continue
		}
		var t *btf.Typedef
		err := types.TypeByName("btf_trace_"+h.Program, &t)
		if errors.Is(err, btf.ErrNotFound) {
			err = fmt.Errorf("this kernel has no tracepoint %s", h.Program)
		}
		if err != nil {
			absent[h.Program] = err
		}
	}
	return absent, nil
}

// Prepare makes ready to load what the groups need of the kernel side of activities: it
// drops the programs of other groups and those that this kernel has no hook for, and sets
// what they want to know. absent says which these are, and why.
func Prepare(spec *ebpf.CollectionSpec, groups []string) (absent map[string]error, err error) {
	absent, err = Missing(groups)
	if err != nil {
		return nil, err
	}
	for i := range Hooks {
		h := &Hooks[i]
		if !h.in(groups) || absent[h.Program] != nil {
			delete(spec.Programs, h.Program)
		}
	}
	shrinkMaps(spec)
	types, err := kernel.LoadBTF()
	if err != nil {
		return nil, err
	}
	if err := kernel.LinkVariables(spec, types); err != nil {
		return nil, err
	}
	return absent, setVariables(spec, groups)
}

// shrinkMaps makes those small that no program is left for: they take memory.
func shrinkMaps(spec *ebpf.CollectionSpec) {
	used := map[string]bool{}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			used[p.Instructions[i].Reference()] = true
		}
	}
	for name, m := range spec.Maps {
		if m.Type == ebpf.LRUHash && !used[name] {
			m.MaxEntries = 1
		}
	}
}

func setVariables(spec *ebpf.CollectionSpec, groups []string) error {
	for name, value := range map[string]any{
		"account_block": slices.Contains(groups, Block), "account_pagecache": slices.Contains(groups, PageCache),
		"account_workqueues": slices.Contains(groups, Workqueues), "account_syscalls": slices.Contains(groups, Syscalls),
		"account_locks":    slices.Contains(groups, Locks),
		"account_hardware": slices.Contains(groups, Hardware) && noCounters() == "",
		"page_shift":       uint32(bits.TrailingZeros(uint(os.Getpagesize()))),
	} {
		v := spec.Variables[name]
		if v == nil {
			return fmt.Errorf("the kernel side of activities has no variable %s", name)
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// Attach attaches the programs of the groups that were loaded. Close undoes it.
func Attach(programs map[string]*ebpf.Program) (*Attached, error) {
	a := &Attached{}
	for i := range Hooks {
		h := &Hooks[i]
		p := programs[h.Program]
		if p == nil {
			continue
		}
		if err := a.attach(h, p); err != nil {
			return nil, errors.Join(fmt.Errorf("attach to %s: %w", h.Site(), err), a.Close())
		}
	}
	return a, nil
}

// Attached are programs at their hooks.
type Attached struct{ links []link.Link }

func (a *Attached) attach(h *Hook, p *ebpf.Program) error {
	if h.others != "" {
		return a.count(h, p)
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return err
	}
	a.links = append(a.links, l)
	return nil
}

// count has a program run at each software event of each CPU that is online. Those of CPUs
// that come online later are not seen.
func (a *Attached) count(h *Hook, p *ebpf.Program) error {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: h.event, Sample: 1}
	for cpu := range n {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
			continue // it is offline
		}
		if err != nil {
			return fmt.Errorf("count events on CPU %d: %w", cpu, err)
		}
		l, err := link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: p, Attach: ebpf.AttachPerfEvent})
		if err := errors.Join(err, unix.Close(fd)); err != nil { // the link holds the event
			return err
		}
		a.links = append(a.links, l)
	}
	return nil
}

// Close detaches them.
func (a *Attached) Close() error {
	var errs []error
	for _, l := range slices.Backward(a.links) {
		errs = append(errs, l.Close())
	}
	a.links = nil
	return errors.Join(errs...)
}
