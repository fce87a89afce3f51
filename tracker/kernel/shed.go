package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// Shedding is what a loaded kernel side does without for now.
type Shedding struct {
	Groups     []string      // of the recorder
	Tracks     []rules.Track // trackers none of whose rules fires
	UserStacks bool
	Wakers     bool // who wakes whom, unless a rule or the recorder needs it: the scheduler itself tells how long tasks wait
	Askers     bool // who asks for block requests, unless a rule or the recorder needs it: the kernel itself tells how long these take
	Softirqs   bool // the hooks of softirqs, unless chains need them: timers sample what runs
	Locks      bool // the hooks of contended locks
	Histograms bool // all: adaptive thresholds stand still without them
}

// shedGrace is how long a program may still be at work after it was detached. It runs with preemption off.
const shedGrace = 10 * time.Millisecond

// Shed sheds exactly what is listed: what was shed before and is not listed
// comes back. Programs that nothing else needs are detached, and attached
// again; what shares its program with others is masked. Rules of a tracker that
// is listed must be paused before it is shed, and until it is back. If a program
// cannot be attached again, the rest is brought back and the error tells.
func (o *Objects) Shed(s *Shedding) error {
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	if o.links.stopped {
		return nil
	}
	o.links.shedding = *s
	return o.shedLocked()
}

// shedLocked sheds o.links.shedding of what is loaded now. Under o.links.mu.
func (o *Objects) shedLocked() error {
	s := &o.links.shedding
	plan := o.Plan().without(s)
	errs := []error{o.Vars.HistogramsShed.Set(flag(s.Histograms)), o.Vars.RecordsShed.Set(o.recordMask(s.Groups, plan))}
	if plan.softirqs() {
		errs = append(errs, o.setUnhooked(plan))
	}
	if plan.wakersShed {
		errs = append(errs, o.setWakersShed(plan))
	}
	// What begins while programs are attached again would stay pending if its end did not look for it.
	errs = append(errs, o.Vars.AskersShed.Set(flag(plan.askersShed)), o.attachMissing(plan), o.setWakersShed(plan))
	detached, err := o.detachUnwanted(plan)
	if detached {
		time.Sleep(o.detachGrace())
		err = errors.Join(err, o.clearTables(plan), o.leaveNotes())
	}
	return errors.Join(append(errs, err, o.setUnhooked(plan))...)
}

// setUnhooked tells the programs whether softirqs have hooks. They must be gone, and
// their notes cleared, before it tells that they have none.
func (o *Objects) setUnhooked(plan *Plan) error {
	return o.Vars.SoftirqsUnhooked.Set(flag(!plan.softirqs()))
}

// setWakersShed tells the program at switches whether none are left at wake-ups. It must
// know before they are gone, and until they are back.
func (o *Objects) setWakersShed(plan *Plan) error {
	return o.Vars.WakersShed.Set(flag(plan.wakersShed))
}

// flag is how programs are told.
func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// without is the plan less what is shed.
func (p *Plan) without(s *Shedding) *Plan {
	q := *p
	q.Groups, q.Tracks = maps.Clone(p.Groups), maps.Clone(p.Tracks)
	for _, g := range s.Groups {
		delete(q.Groups, g)
	}
	for _, t := range s.Tracks {
		switch t {
		case rules.Pair, rules.Span, rules.Chain:
			continue // what they have seen begin outlives the pause
		}
		delete(q.Tracks, t)
	}
	if q.Tracks[rules.IRQ] || q.Tracks[rules.Softirq] { // their slots are on the same lines
		q.Tracks[rules.IRQ], q.Tracks[rules.Softirq] = p.Tracks[rules.IRQ], p.Tracks[rules.Softirq]
	}
	if q.softirqsShed = s.Softirqs; s.Softirqs {
		delete(q.Tracks, rules.Softirq)
	}
	q.wakersShed = s.Wakers && q.canShedWakers()
	q.askersShed = s.Askers && q.canShedAskers()
	q.locksShed = s.Locks
	q.softirqRaise = p.softirqRaise && q.Tracks[rules.Softirq]
	q.userStacksLater = p.userStacksLater && !s.UserStacks
	return &q
}

// wakerHooks are those that only tell who wakes whom, and when.
var wakerHooks = []string{"sched_waking", "sched_wakeup_new", "sched_migrate_task"}

// canShedWakers reports whether how long tasks wait would be known without the hooks at wake-ups.
func (p *Plan) canShedWakers() bool {
	return p.queuesTellWaits && !p.wakersNeeded && !p.Groups["sched"] && !p.Tracks[rules.Chain] && (p.Tracks[rules.Wakeup] || p.Tracks[rules.OffCPU])
}

// askerHooks are those that only tell of requests which have not completed, and who asks for them.
var askerHooks = []string{"block_rq_insert", "block_rq_issue", "block_rq_merge", "block_rq_requeue", "block_rq_complete_skipped"}

// canShedAskers reports whether how long block requests take would be known without the hooks at their begin.
func (p *Plan) canShedAskers() bool {
	return p.Tracks[rules.Block] && !p.askersNeeded && !p.Groups["block"]
}

// keeps reports whether the program of h stays attached. What notes at its
// entry where a CPU is needs the exit that clears the note.
func (p *Plan) keeps(h *kinds.Hook) bool {
	if h.Program == "hrtimer_expire_exit" && !p.Groups["run"] {
		h = &kinds.Hook{Program: tickProgram, Groups: h.Groups}
	}
	return p.wants(h)
}

// recordMask has the bit of each record type all of whose groups are shed.
func (o *Objects) recordMask(groups []string, plan *Plan) (mask uint64) {
	for i := range kinds.Hooks {
		h := &kinds.Hooks[i]
		wanted := func(g string) bool { return o.Plan().Groups[g] && !slices.Contains(groups, g) }
		if len(h.Groups) > 0 && !slices.ContainsFunc(h.Groups, wanted) {
			mask |= 1 << h.Record
		}
	}
	if mask>>abi.RecSwitch&1 != 0 {
		mask |= 1 << abi.RecSteal
	}
	// Interrupts are written when they end, in one record or as a sum.
	if mask>>abi.RecIrqExit&1 != 0 {
		mask |= 1 << abi.RecIrq
		if plan.softirqs() { // else they are samples, which cost nothing
			mask |= 1 << abi.RecInterrupts
		}
	}
	if mask>>abi.RecSoftirqExit&1 != 0 {
		mask |= 1 << abi.RecSoftirq
	}
	if mask>>abi.RecHrtimerExit&1 != 0 {
		mask |= 1 << abi.RecTick
	}
	if mask>>abi.RecLockEnd&1 != 0 {
		mask |= 1 << abi.RecLockSpin
	}
	return mask
}

// attachMissing attaches what the plan wants and is not attached, in the order of
// Attach. Under o.links.mu.
func (o *Objects) attachMissing(plan *Plan) error {
	var errs []error
	for i := range kinds.Hooks {
		h := &kinds.Hooks[i]
		p := o.hooks[h.Program]
		if !o.links.shed[h.Program] || p == nil || !plan.keeps(h) {
			continue
		}
		a, err := o.attachHook(h, p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		delete(o.links.shed, h.Program)
		o.links.list = append(o.links.list, a)
	}
	return errors.Join(errs...)
}

// detachUnwanted detaches what the plan does not want: what begins work before
// what ends it. Under o.links.mu.
func (o *Objects) detachUnwanted(plan *Plan) (any bool, err error) {
	var errs []error
	for i := len(kinds.Hooks) - 1; i >= 0; i-- {
		h := &kinds.Hooks[i]
		if plan.keeps(h) {
			continue
		}
		o.links.list = slices.DeleteFunc(o.links.list, func(a Attachment) bool {
			if a.Program != h.Program || a.Rule != "" {
				return false
			}
			errs = append(errs, a.Link.Close())
			if o.links.shed == nil {
				o.links.shed = map[string]bool{}
			}
			o.links.shed[h.Program], any = true, true
			return true
		})
	}
	return any, errors.Join(errs...)
}

// clearTables empties the pending tables of trackers that are shed, or do without them, so that
// nothing pending meets an exit after they are back: it began long before.
func (o *Objects) clearTables(plan *Plan) error {
	pending := func(t rules.Track) bool { return plan.Tracks[t] && !(t == rules.Block && plan.askersShed) }
	resting := func(t rules.Track) bool { return o.Plan().Tracks[t] && !pending(t) }
	var errs []error
	o.tables.mu.Lock()
	defer o.tables.mu.Unlock()
	for n := range o.tables.list {
		p := &o.tables.list[n]
		if !p.used || !slices.ContainsFunc(kinds.Trackers(n), resting) ||
			slices.ContainsFunc(kinds.Trackers(n), pending) {
			continue
		}
		keys, slots, _ := p.Maps(o.Maps())
		for _, m := range append([]*ebpf.Map{keys, slots}, p.maps...) {
			errs = append(errs, clearArray(m))
		}
	}
	return errors.Join(errs...)
}

// clearArray zeroes an array that no program uses.
func clearArray(m *ebpf.Map) error {
	memory, err := m.Memory()
	if errors.Is(err, ebpf.ErrNotSupported) { // of a table that has grown
		zero := make([]byte, m.ValueSize())
		for i := range m.MaxEntries() {
			if err := m.Put(i, zero); err != nil {
				return fmt.Errorf("clear %s: %w", m, err)
			}
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("clear %s: %w", m, err)
	}
	size, zero := int(memory.Size()), make([]byte, 64<<10)
	for at := 0; at < size; at += len(zero) {
		if _, err := memory.WriteAt(zero[:min(len(zero), size-at)], int64(at)); err != nil {
			return fmt.Errorf("clear %s: %w", m, err)
		}
	}
	return nil
}

// leaveNotes clears the notes of CPUs that are in an interrupt, or spin for a lock,
// whose end was detached before it came. Under o.links.mu.
func (o *Objects) leaveNotes() error {
	memory, err := o.Maps().Cpus.Memory()
	if err != nil {
		return err
	}
	var s abi.CpuState
	var errs []error
	if o.links.shed["hrtimer_expire_exit"] {
		errs = append(errs, o.clearOfCPUs(memory, unsafe.Offsetof(s.InHrtimer), unsafe.Sizeof(s.InHrtimer)),
			o.clearOfCPUs(memory, unsafe.Offsetof(s.TickNs), unsafe.Sizeof(s.TickNs)))
	}
	if o.links.shed["contention_end"] {
		errs = append(errs, o.clearOfCPUs(memory, unsafe.Offsetof(s.Spins), unsafe.Sizeof(s.Spins)))
	}
	switch {
	case o.links.shed["irq_handler_exit"]:
		errs = append(errs, clearArray(o.Maps().Interrupts))
	case o.links.shed["softirq_exit"]:
		errs = append(errs, o.leaveSoftirqs())
	}
	return errors.Join(errs...)
}

// clearOfCPUs zeroes a field of each CPU's state.
func (o *Objects) clearOfCPUs(memory *ebpf.Memory, offset, size uintptr) error {
	var errs []error
	for cpu := range o.Maps().Cpus.MaxEntries() {
		_, err := memory.WriteAt(make([]byte, size), ofCPU(cpu, offset))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ofCPU is where a field of a CPU's state is in the map cpus.
func ofCPU(cpu uint32, offset uintptr) int64 {
	return int64(uintptr(cpu)*unsafe.Sizeof(abi.CpuState{}) + offset)
}

// leaveSoftirqs clears the slots of softirqs. Those of interrupts are in use.
func (o *Objects) leaveSoftirqs() error {
	memory, err := o.Maps().Interrupts.Memory()
	if err != nil {
		return err
	}
	var errs []error
	for cpu := range int(o.Maps().Interrupts.MaxEntries()) {
		for _, f := range o.softirqSlots {
			_, err := memory.WriteAt(make([]byte, f.size), int64(cpu*int(o.Maps().Interrupts.ValueSize())+f.offset))
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// field is where a member of a map's values is.
type field struct{ offset, size int }

// membersOf finds members of a map's values, in the order of the names.
func membersOf(m *ebpf.MapSpec, names ...string) ([]field, error) {
	value, ok := m.Value.(*btf.Struct)
	if !ok {
		return nil, fmt.Errorf("map %s has no structures", m.Name)
	}
	var list []field
	for _, name := range names {
		i := slices.IndexFunc(value.Members, func(f btf.Member) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("map %s has no %s", m.Name, name)
		}
		size, err := btf.Sizeof(value.Members[i].Type)
		if err != nil {
			return nil, err
		}
		list = append(list, field{int(value.Members[i].Offset.Bytes()), size})
	}
	return list, nil
}

// Contended counts the waits for locks of the kernel that hooks have seen begin, by CPU.
func (o *Objects) Contended() ([]uint64, error) {
	memory, err := o.Maps().Cpus.Memory()
	if err != nil {
		return nil, err
	}
	var s abi.CpuState
	counts, b := make([]uint64, o.Maps().Cpus.MaxEntries()), make([]byte, unsafe.Sizeof(s.Contended))
	for cpu := range counts {
		if _, err := memory.ReadAt(b, ofCPU(uint32(cpu), unsafe.Offsetof(s.Contended))); err != nil {
			return nil, err
		}
		counts[cpu] = binary.NativeEndian.Uint64(b)
	}
	return counts, nil
}

// Served says what a loaded program is for.
type Served struct {
	Program string
	Groups  []string      // of the recorder
	Tracks  []rules.Track // trackers that need it
	Stacks  bool          // user stacks that follow later need it
	Wakers  bool          // it does less, or nothing, while wakers are shed
	Askers  bool          // the same while askers are
	Always  bool          // it is never shed
}

// Serves lists the programs that are attached, or shed.
func (o *Objects) Serves() []Served {
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	unrecorded := *o.Plan()
	unrecorded.Groups = nil
	attached := map[string]bool{}
	var list []Served
	for _, a := range o.links.list {
		if attached[a.Program] = true; a.Rule != "" {
			list = append(list, Served{Program: a.Program, Tracks: []rules.Track{rules.Pair}, Always: true})
		}
	}
	for i := range kinds.Hooks {
		h := &kinds.Hooks[i]
		if !attached[h.Program] && !o.links.shed[h.Program] {
			continue
		}
		s := Served{Program: h.Program, Stacks: h.Program == laterProgram && o.Plan().userStacksLater}
		s.Always = h.Program == tickProgram && o.Plan().Timeouts || h.Program == laterProgram && o.Plan().contextsLater()
		groups := h.Groups
		if slices.Contains(kinds.RunHooks, h.Program) {
			groups = append(slices.Clone(groups), "run")
		}
		if h.Program == "sched_switch" || slices.Contains(wakerHooks, h.Program) {
			s.Wakers = unrecorded.canShedWakers()
		}
		if h.Program == "block_rq_complete" || slices.Contains(askerHooks, h.Program) {
			s.Askers = unrecorded.canShedAskers()
		}
		for _, g := range groups {
			if o.Plan().Groups[g] {
				s.Groups = append(s.Groups, g)
			}
		}
		for _, t := range h.Trackers() {
			if o.Plan().Tracks[t] {
				s.Tracks = append(s.Tracks, t)
			}
		}
		list = append(list, s)
	}
	if o.takesWaitStacks() {
		list = append(list, Served{Program: kinds.WaitStacks, Groups: []string{"wait"}})
	}
	if o.Plan().Groups["run"] {
		list = append(list, Served{Program: kinds.RunStacks, Groups: []string{"run"}})
	}
	return list
}
