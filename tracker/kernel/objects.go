// Package kernel loads the kernel side, attaches it, and holds what is loaded:
// typed maps, variables and programs, pending tables and the recorder.
package kernel

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
	"github.com/tailcam/tailcam/tracker/pins"
)

// Options size the kernel side.
type Options struct {
	// Slots of each pending table at first, and at most; 0: it does not grow.
	Slots, MaxSlots [abi.Tables]int
	Chains          int           // slots of chains
	ChainAge        time.Duration // for which a chain is followed
	Ring            int           // bytes of one CPU's ring of plain memory; 0: perf ring buffers
	Buffer          int           // bytes of the outliers' ring buffer
	OutlierNS       uint64        // the rate limit: time of one outlier of a rule; 0: no limit
	BurstNS         uint64        // and of as many as may come at once
	Histograms      int           // of one CPU; 0: no delay is counted
	IRQFloor        time.Duration // interrupts and softirqs that take less have no record of their own
	TrackSelf       bool          // also track this process

	Pins       pins.Store `json:"-"` // keeps all of it beyond this process; nil: nothing does
	Anew       error      `json:"-"` // why what Pins holds must not be taken over; nil: it may
	RingReason string     // why Ring is what it is, if it was measured
	Version    string     // of tailcam
}

// Calls are the programs that user space runs (BPF_PROG_TYPE_SYSCALL, kernel 5.14+).
type Calls struct {
	LearnRegs       *ebpf.Program `ebpf:"learn_regs"`
	ForgetThread    *ebpf.Program `ebpf:"forget_thread"`
	ForgetPair      *ebpf.Program `ebpf:"forget_pair"`
	ExpireSpan      *ebpf.Program `ebpf:"expire_span_at"`
	ReclaimWork     *ebpf.Program `ebpf:"reclaim_work"`
	Ratchet         *ebpf.Program `ebpf:"ratchet"`
	FreezeNow       *ebpf.Program `ebpf:"freeze_now"`
	ReleaseBank     *ebpf.Program `ebpf:"release_bank"`
	HistogramBucket *ebpf.Program `ebpf:"histogram_bucket"`
}

// specs are what is set before the kernel side is loaded.
type specs struct {
	bpf.TailcamMapSpecs
	bpf.TailcamVariableSpecs
}

// Objects is the kernel side at work. Its methods may be called from several
// goroutines at once.
type Objects struct {
	Vars          bpf.TailcamVariables
	HistogramCPUs int

	loaded    atomic.Pointer[loaded]
	replacing sync.Mutex // held during Replace
	hooks     hooks      // guarded by links.mu
	links     links
	heartbeat heartbeat
	tables    pendingTables
	sizes     MapSizes
	pairsUsed atomic.Bool // also those that came with a reload
	pinning   pinning
	reader    contextReader

	softirqSlots     []field // of the values of the map interrupts
	countsPreemption bool    // the programs can read the preempt count
}

// loaded is what one load of the kernel side has given. It does not change: Replace
// puts another in its place, with the maps whose sizes are the same. Who still reads a
// map that was replaced may do so: it is closed when nobody refers to it.
type loaded struct {
	maps      bpf.TailcamMaps
	calls     Calls
	memory    Memory
	plan      *Plan
	opts      Options
	constants map[string]*ebpf.VariableSpec
	stride    int // histograms of one CPU
	ring      int // records in one ring of plain memory
	rings     *Rings
	byName    map[string]*ebpf.Map
	programs  map[string]*ebpf.Program
}

// Maps are the maps as of now: a reload may replace those that change in size.
func (o *Objects) Maps() *bpf.TailcamMaps { return &o.loaded.Load().maps }

// Calls are the programs that user space runs, as of now.
func (o *Objects) Calls() *Calls { return &o.loaded.Load().calls }

// Memory is what both sides write, as of now.
func (o *Objects) Memory() *Memory { return &o.loaded.Load().memory }

// Plan is what is loaded now.
func (o *Objects) Plan() *Plan { return o.loaded.Load().plan }

// HistogramStride is how many histograms one CPU has.
func (o *Objects) HistogramStride() int { return o.loaded.Load().stride }

// Load sizes the maps, sets the knobs, and passes the verifier, or takes over what
// another daemon has left in Options.Pins. An error about that is a TakeoverError.
func Load(plan *Plan, types *btf.Spec, opts *Options) (*Objects, error) {
	o := &Objects{hooks: hooks{}}
	err := o.first(plan, types, o.prepareTakeover(opts))
	if err != nil && o.pinning.takeover.Taken {
		err = &TakeoverError{err}
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// first loads, or takes over. If it fails, nothing of this process is left.
func (o *Objects) first(plan *Plan, types *btf.Spec, opts *Options) error {
	n, err := o.build(plan, types, opts)
	if err != nil {
		return errors.Join(err, o.closeStates())
	}
	o.loaded.Store(n.loaded)
	var vars struct{ bpf.TailcamVariables }
	if err := n.collection.Assign(&vars); err != nil {
		return errors.Join(fmt.Errorf("read the kernel side: %w", err), o.Close())
	}
	o.Vars = vars.TailcamVariables
	self := uint32(os.Getpid())
	if opts.TrackSelf {
		self = ^uint32(0)
	}
	if err := errors.Join(o.Vars.SelfPid.Set(self), o.SetHelpers(nil)); err != nil {
		return errors.Join(err, o.Close())
	}
	if n.taken {
		err = o.take(n)
	} else {
		err = o.begin(n)
	}
	if err != nil {
		return errors.Join(err, o.Close())
	}
	return nil
}

// SetHelpers names the processes that work for this one: what they do is no outlier either,
// of abi.SelfHelpers of them.
func (o *Objects) SetHelpers(pids []int) error {
	var list [abi.SelfHelpers]uint32
	for i, pid := range pids[:min(len(pids), len(list))] {
		list[i] = uint32(pid)
	}
	return o.Vars.SelfHelpers.Set(list)
}

// begin prepares what was loaded anew.
func (o *Objects) begin(n *build) (err error) {
	if _, err := o.Calls().LearnRegs.Run(&ebpf.RunOptions{}); err != nil {
		return fmt.Errorf("find the registers of user space: %w", err)
	}
	if err := errors.Join(n.openTables(nil), o.setUnhooked(n.plan)); err != nil {
		return err
	}
	o.tables.use(n)
	if o.hooks, err = newHooks(n.specs, n.programs); err != nil {
		return err
	}
	o.pinLoaded()
	return nil
}

// learn notes what no load changes.
func (o *Objects) learn(s *specs, types *btf.Spec) error {
	highest, err := highestCPU("present")
	if err != nil {
		return err
	}
	o.HistogramCPUs = highest + 1
	o.countsPreemption = countsPreemption(&s.TailcamVariableSpecs, types)
	if o.softirqSlots, err = membersOf(s.Interrupts, "softirq", "raised"); err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	o.tables.interrupts = limitedIn(s.Interrupts.Value, 0)
	return nil
}

// build is a load of the kernel side in the making.
type build struct {
	*loaded
	taken      bool // over, from another daemon
	collection *ebpf.Collection
	specs      map[string]*ebpf.ProgramSpec // of the programs on hooks
	tables     [abi.Tables]pendingTable
}

// build loads the kernel side; the maps that are loaded already are used again if
// they have the right size. Nothing that runs changes.
func (o *Objects) build(plan *Plan, types *btf.Spec, opts *Options) (*build, error) {
	n := &build{loaded: &loaded{plan: plan, opts: *opts, stride: max(opts.Histograms, 1)}}
	spec, err := bpf.LoadTailcam()
	if err != nil {
		return nil, fmt.Errorf("read the embedded BPF object: %w", err)
	}
	var s specs
	if err := spec.Assign(&s); err != nil {
		return nil, fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if err := plan.configure(spec, &s.TailcamVariableSpecs); err != nil {
		return nil, err
	}
	err = errors.Join(linkSteal(spec, &s.TailcamVariableSpecs, types), LinkVariables(spec, types),
		linkFunctions(&s.TailcamVariableSpecs))
	if err != nil {
		return nil, err
	}
	before := o.loaded.Load()
	if before == nil {
		if err := o.learn(&s, types); err != nil {
			return nil, err
		}
	}
	if err := o.size(n, &s); err != nil {
		return nil, err
	}
	n.constants = maps.Clone(spec.Variables)
	kept := before.keep(spec, n.ring)
	c, err := o.collect(n, spec, kept)
	var refused *ebpf.VerifierError
	switch {
	case errors.As(err, &refused):
		return nil, err
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("load the kernel side: %w (run as root, or with CAP_BPF and CAP_PERFMON; "+
			"in a container, with a seccomp filter that allows bpf to these: seccomp=unconfined)", err)
	case err != nil:
		return nil, fmt.Errorf("load the kernel side: %w", err)
	}
	for name, m := range kept {
		_ = c.Maps[name].Close() // another descriptor of the same map
		c.Maps[name] = m
	}
	return n, n.open(c, spec, before)
}

// open takes over what was loaded. If it fails, nothing is left.
func (b *build) open(c *ebpf.Collection, spec *ebpf.CollectionSpec, before *loaded) error {
	b.byName, b.programs, b.collection = maps.Clone(c.Maps), maps.Clone(c.Programs), c
	b.specs = maps.Clone(spec.Programs)
	var into struct {
		bpf.TailcamMaps
		Calls
	}
	if err := c.Assign(&into); err != nil {
		return errors.Join(fmt.Errorf("read the kernel side: %w", err), b.drop(before))
	}
	b.maps, b.calls = into.TailcamMaps, into.Calls
	var err error
	if before != nil && b.maps.RecordRings == before.maps.RecordRings {
		b.rings = before.rings
	} else if b.rings, err = b.openRings(before); err != nil {
		return errors.Join(err, b.drop(before))
	}
	if err := b.openMemory(); err != nil {
		return errors.Join(err, b.drop(before))
	}
	return nil
}

// keep lists the maps that spec can go on with, and takes out of it what would set
// them anew. Rings of another size begin with nothing.
func (l *loaded) keep(spec *ebpf.CollectionSpec, ring int) map[string]*ebpf.Map {
	kept := map[string]*ebpf.Map{}
	if l == nil {
		return kept
	}
	maps.DeleteFunc(spec.Variables, func(_ string, v *ebpf.VariableSpec) bool { return !v.Constant() })
	for name, m := range spec.Maps {
		have := l.byName[name]
		if have == nil || name == constantsMap {
			continue
		}
		if m.MaxEntries == 0 { // the library counts CPUs
			m.MaxEntries = have.MaxEntries()
		}
		resized := ring != l.ring && (name == "records" || name == "record_rings")
		if m.MaxEntries == have.MaxEntries() && !resized {
			m.ValueSize = have.ValueSize()
			kept[name] = have
		}
	}
	return kept
}

// drop unloads what before has not.
func (l *loaded) drop(before *loaded) error {
	var errs []error
	for _, p := range l.programs {
		errs = append(errs, p.Close())
	}
	for name, m := range l.byName {
		if before == nil || before.byName[name] != m {
			errs = append(errs, m.Close())
		}
	}
	if before == nil || l.rings != before.rings {
		errs = append(errs, l.rings.close())
	}
	return errors.Join(errs...)
}

// Map finds a map by its name in the kernel side; nil: there is none.
func (o *Objects) Map(name string) *ebpf.Map { return o.loaded.Load().byName[name] }

// futexCall returns the number of the system call futex.
func futexCall() uint32 {
	if nr, ok := rules.SyscallNumber("futex"); ok {
		return uint32(nr)
	}
	return math.MaxUint32
}

// size sets the number of elements of every map, and the masks that go with it.
func (o *Objects) size(n *build, s *specs) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	// Rings are large, and a virtual machine may be prepared for hundreds of
	// CPUs that never come: only those that there are get one, online or not.
	highest, err := highestCPU("present")
	if err != nil {
		return err
	}
	histogramCPUs := highest + 1
	knobs := []knob{
		{s.ChainAgeNs, uint64(n.opts.ChainAge)},
		{s.WeaklyOrdered, runtime.GOARCH != "amd64"},
		{s.OutlierEachNs, n.opts.OutlierNS},
		{s.OutlierRoomNs, n.opts.BurstNS},
		{s.Histograms, n.opts.Histograms > 0},
		{s.HistogramStride, uint32(n.stride)},
		{s.RecordIrqFloor, uint64(n.opts.IRQFloor)},
		{s.FutexCall, futexCall()},
	}
	n.ring = abi.RingParts
	if n.opts.Ring > 0 && len(n.plan.Groups) > 0 {
		n.ring = kinds.PowerOfTwo(max(n.opts.Ring, smallestRing)) / abi.RecordSize
		part := n.ring / abi.RingParts
		knobs = append(knobs, knob{s.RecordMmap, true}, knob{s.RecordMask, uint32(part - 1)}, knob{s.RecordShift, uint32(bits.Len(uint(part)) - 1)})
	}
	// Of what is not used, one element is left.
	used := func(on bool, n int) uint32 {
		if !on {
			return 1
		}
		return uint32(n)
	}
	tracks := n.plan.Tracks
	interrupted := used(tracks[rules.IRQ] || tracks[rules.Softirq], cpus)
	chains := 8
	if tracks[rules.Chain] {
		chains = kinds.PowerOfTwo(max(n.opts.Chains, 8))
	}
	knobs = append(knobs, knob{s.InterruptCpus, interrupted}, knob{s.ChainMask, uint32(chains/abi.BucketKeys - 1)})
	s.Cpus.MaxEntries = uint32(cpus)
	s.Scratches.MaxEntries = uint32(cpus * abi.Scratches)
	s.Interrupts.MaxEntries = used(n.plan.interrupts(), cpus)
	if !n.plan.Contexts {
		s.ContextPlaces.Type, s.ContextPlaces.Flags, s.ContextPlaces.MaxEntries = ebpf.Array, 0, 1
	}
	s.WakerScratch.MaxEntries = uint32(cpus)
	s.RunScratch.MaxEntries = used(n.plan.Groups["run"], cpus)
	s.KeptContexts.MaxEntries = used(n.plan.Contexts && (tracks[rules.OffCPU] || tracks[rules.Wakeup] || tracks[rules.Block]), keptContexts)
	s.WakerStacks.MaxEntries = used(n.plan.wakerStacksAlways || n.plan.wakerStacksSlow, wakerStacks)
	s.ChainCpus.MaxEntries = used(tracks[rules.Chain], cpus)
	s.ChainKeys.MaxEntries = uint32(chains / abi.BucketKeys)
	s.ChainSlots.MaxEntries = uint32(chains)
	s.PairStates.MaxEntries = uint32(cpus) * abi.MaxPairs // also without pairs: see sparePairs
	s.Progresses.MaxEntries = used(n.plan.progress, progresses)
	s.Outliers.MaxEntries = uint32(kinds.PowerOfTwo(max(n.opts.Buffer, os.Getpagesize())))
	s.RecordRings.MaxEntries = uint32(cpus)
	s.SoftirqSamples.MaxEntries = used(n.plan.Groups["sched"], cpus)
	s.TaskNames.MaxEntries = used(n.plan.Groups["sched"], liveNames)
	s.GoneNames.MaxEntries = used(n.plan.Groups["sched"], goneNames)
	s.Records.MaxEntries = uint32((highest + 1) * n.ring)
	s.Distributions.MaxEntries = uint32(histogramCPUs * n.stride)
	s.ClassKeys.MaxEntries = uint32(max(n.stride/abi.BucketKeys, 1))
	knobs = append(knobs, o.sizeTables(n, s)...)
	return set(knobs)
}

const (
	progresses   = 512       // slow system calls whose progress is kept at once
	liveNames    = 128 << 10 // threads whose names are known; those beyond have none in the history
	goneNames    = 8 << 10   // threads that are gone whose names are kept
	wakerStacks  = 8192      // threads on a run queue at once whose waker's stack is kept
	keptContexts = 8192      // what wakers, threads that run for long, and submitters of block requests work for
)

// spanSeed is the name of a constant that is not the same in each load.
const spanSeed = "span_seed"

// sizeSpans sizes what goes with the pending table of spans.
func sizeSpans(s *specs, slots int, before *loaded) []knob {
	var seed [8]byte
	if before != nil {
		copy(seed[:], before.constants[s.SpanSeed.Name].Value) // the keys of those that are pending have it
	} else {
		_, _ = rand.Read(seed[:]) // a secret for the keys; it never fails
	}
	owners := max(2*slots, 16) // each has a span at least; in two buckets that are not full
	s.SpanOwnerKeys.MaxEntries = uint32(owners / abi.BucketKeys)
	s.SpanOwnerCounts.MaxEntries = uint32(owners)
	return []knob{
		{s.SpanSeed, binary.LittleEndian.Uint64(seed[:])},
		{s.SpanShare, uint32(slots / 2)},
		{s.SpanOwnerMask, uint32(owners/abi.BucketKeys - 1)},
	}
}

// SamplesSoftirqs reports whether this kernel tells what interrupts a task although no
// hooks of softirqs are attached. Without, tasks would be taken for the wakers.
func (o *Objects) SamplesSoftirqs() bool { return o.countsPreemption }

// Trackers lists those that run, in the order of rules.Tracks.
func (o *Objects) Trackers() []rules.Track {
	return slices.DeleteFunc(slices.Clone(rules.Tracks), func(t rules.Track) bool { return !o.tracks(t) })
}

// tracks reports whether a tracker runs. That of declared pairs may begin at any time.
func (o *Objects) tracks(t rules.Track) bool {
	return o.Plan().Tracks[t] || t == rules.Pair && o.pairsUsed.Load()
}

// UsePairs notes that there are declared pairs.
func (o *Objects) UsePairs() {
	o.tables.mu.Lock()
	defer o.tables.mu.Unlock()
	o.tables.list[abi.TablePairs].used = true
	o.pairsUsed.Store(true)
}

// Unrecorded returns what the recorder's groups would have and this kernel has
// not, by where it would be attached, and why. Complete after Attach.
func (o *Objects) Unrecorded() map[string]error { return o.Plan().Unrecorded }

// Close stops, and unloads the kernel side; see Leave.
func (o *Objects) Close() error {
	err := o.Stop()
	o.replacing.Lock() // whoever is at it finds that it has stopped
	defer o.replacing.Unlock()
	return errors.Join(err, o.closePins(), o.reader.close(), o.hooks.close(), o.loaded.Load().drop(nil), o.closeTables())
}

// EachCPU visits the state of every CPU that may come.
func (o *Objects) EachCPU(visit func(s *abi.CpuState)) error {
	for i := range o.Maps().Cpus.MaxEntries() {
		var s abi.CpuState
		if err := o.Maps().Cpus.Lookup(i, &s); err != nil {
			return fmt.Errorf("read counters of CPU %d: %w", i, err)
		}
		visit(&s)
	}
	return nil
}
