// Package kernel loads the kernel side, attaches it, and holds what is loaded:
// typed maps, variables and programs, pending tables and the recorder.
package kernel

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"runtime"
	"slices"
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

// Objects is the loaded kernel side. Its methods may be called from several
// goroutines at once.
type Objects struct {
	Maps   bpf.TailcamMaps
	Vars   bpf.TailcamVariables
	Calls  Calls
	Memory Memory
	Plan   *Plan
	// Constants are the knobs as loaded, for objects that share them.
	Constants       map[string]*ebpf.VariableSpec
	HistogramStride int // histograms of one CPU
	HistogramCPUs   int

	opts      Options
	ring      int // records in one ring of plain memory
	maps      map[string]*ebpf.Map
	programs  map[string]*ebpf.Program
	links     links
	rings     *rings
	heartbeat heartbeat
	tables    pendingTables
	pairsUsed atomic.Bool // also those that came with a reload
	pinning   pinning

	softirqSlots     []field // of the values of Maps.Interrupts
	countsPreemption bool    // the programs can read the preempt count
}

// Load sizes the maps, sets the knobs, and passes the verifier, or takes over what
// another daemon has left in Options.Pins. An error about that is a TakeoverError.
func Load(plan *Plan, types *btf.Spec, opts *Options) (*Objects, error) {
	o := &Objects{Plan: plan, opts: *opts}
	o.prepareTakeover()
	if err := o.loadAll(plan, types); err != nil {
		if o.pinning.takeover.Taken {
			err = &TakeoverError{err}
		}
		return nil, err
	}
	return o, nil
}

func (o *Objects) loadAll(plan *Plan, types *btf.Spec) error {
	o.HistogramStride = max(o.opts.Histograms, 1)
	spec, err := bpf.LoadTailcam()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	var s specs
	if err := spec.Assign(&s); err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if err := plan.configure(spec, &s.TailcamVariableSpecs); err != nil {
		return err
	}
	err = errors.Join(linkSteal(spec, &s.TailcamVariableSpecs, types), linkVariables(spec, &s.TailcamVariableSpecs, types))
	if err != nil {
		return err
	}
	o.countsPreemption = countsPreemption(&s.TailcamVariableSpecs, types)
	if err := o.size(&s); err != nil {
		return err
	}
	if o.softirqSlots, err = membersOf(s.Interrupts, "softirq", "raised"); err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	o.Constants = spec.Variables
	c, err := o.load(spec)
	var refused *ebpf.VerifierError
	switch {
	case errors.As(err, &refused):
		return err
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("load the kernel side: %w (run as root, or with CAP_BPF and CAP_PERFMON)", err)
	case err != nil:
		return fmt.Errorf("load the kernel side: %w", err)
	}
	o.maps, o.programs = maps.Clone(c.Maps), maps.Clone(c.Programs)
	var loaded struct {
		bpf.TailcamMaps
		bpf.TailcamVariables
		Calls
	}
	if err := c.Assign(&loaded); err != nil {
		return errors.Join(fmt.Errorf("read the kernel side: %w", err), o.Close())
	}
	o.Maps, o.Vars, o.Calls = loaded.TailcamMaps, loaded.TailcamVariables, loaded.Calls
	self := uint32(os.Getpid())
	if o.opts.TrackSelf {
		self = ^uint32(0)
	}
	taken := o.pinning.takeover.Taken
	o.rings, err = openRings(o.Maps.RecordRings, taken)
	if err := errors.Join(err, o.Vars.SelfPid.Set(self)); err != nil {
		return errors.Join(err, o.Close())
	}
	if taken {
		err = errors.Join(o.takeTables(), o.countLost())
	} else {
		err = errors.Join(o.learnRegs(), o.openTables(), o.setUnhooked(plan))
	}
	if err := errors.Join(err, o.openMemory()); err != nil {
		return errors.Join(err, o.Close())
	}
	if !taken {
		o.pinLoaded()
	}
	return nil
}

func (o *Objects) learnRegs() error {
	if _, err := o.Calls.LearnRegs.Run(&ebpf.RunOptions{}); err != nil {
		return fmt.Errorf("find the registers of user space: %w", err)
	}
	return nil
}

// Map finds a map by its name in the kernel side; nil: there is none.
func (o *Objects) Map(name string) *ebpf.Map { return o.maps[name] }

// size sets the number of elements of every map, and the masks that go with it.
func (o *Objects) size(s *specs) error {
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
	o.HistogramCPUs = highest + 1
	knobs := []knob{
		{s.ChainAgeNs, uint64(o.opts.ChainAge)},
		{s.WeaklyOrdered, runtime.GOARCH != "amd64"},
		{s.OutlierEachNs, o.opts.OutlierNS},
		{s.OutlierRoomNs, o.opts.BurstNS},
		{s.Histograms, o.opts.Histograms > 0},
		{s.HistogramStride, uint32(o.HistogramStride)},
		{s.RecordIrqFloor, uint64(o.opts.IRQFloor)},
	}
	o.ring = abi.RingParts
	if o.opts.Ring > 0 && o.Recording() {
		o.ring = kinds.PowerOfTwo(max(o.opts.Ring, smallestRing)) / abi.RecordSize
		part := o.ring / abi.RingParts
		knobs = append(knobs, knob{s.RecordMmap, true}, knob{s.RecordMask, uint32(part - 1)}, knob{s.RecordShift, uint32(bits.Len(uint(part)) - 1)})
	}
	// Of what is not used, one element is left.
	used := func(on bool, n int) uint32 {
		if !on {
			return 1
		}
		return uint32(n)
	}
	tracks := o.Plan.Tracks
	interrupted := used(tracks[rules.IRQ] || tracks[rules.Softirq], cpus)
	chains := 8
	if tracks[rules.Chain] {
		chains = kinds.PowerOfTwo(max(o.opts.Chains, 8))
	}
	knobs = append(knobs, knob{s.InterruptCpus, interrupted}, knob{s.ChainMask, uint32(chains/abi.BucketKeys - 1)})
	s.Cpus.MaxEntries = uint32(cpus)
	s.Scratches.MaxEntries = uint32(cpus * abi.Scratches)
	s.Interrupts.MaxEntries = used(o.Plan.interrupts(), cpus)
	s.WakerScratch.MaxEntries = uint32(cpus)
	s.WakerStacks.MaxEntries = used(o.Plan.wakerStacksAlways || o.Plan.wakerStacksSlow, wakerStacks)
	s.ChainCpus.MaxEntries = used(tracks[rules.Chain], cpus)
	s.ChainKeys.MaxEntries = uint32(chains / abi.BucketKeys)
	s.ChainSlots.MaxEntries = uint32(chains)
	s.PairStates.MaxEntries = uint32(cpus) * abi.MaxPairs // also without pairs: see sparePairs
	s.Progresses.MaxEntries = used(o.Plan.progress, progresses)
	s.Outliers.MaxEntries = uint32(kinds.PowerOfTwo(max(o.opts.Buffer, os.Getpagesize())))
	s.RecordRings.MaxEntries = uint32(cpus)
	s.SoftirqSamples.MaxEntries = used(o.Plan.Groups["sched"], cpus)
	s.TaskNames.MaxEntries = used(o.Plan.Groups["sched"], liveNames)
	s.GoneNames.MaxEntries = used(o.Plan.Groups["sched"], goneNames)
	s.Records.MaxEntries = uint32((highest + 1) * o.ring)
	s.Distributions.MaxEntries = uint32(o.HistogramCPUs * o.HistogramStride)
	s.ClassKeys.MaxEntries = uint32(max(o.HistogramStride/abi.BucketKeys, 1))
	knobs = append(knobs, o.sizeTables(s)...)
	return set(knobs)
}

const (
	progresses  = 512       // slow system calls whose progress is kept at once
	liveNames   = 128 << 10 // threads whose names are known; those beyond have none in the history
	goneNames   = 8 << 10   // threads that are gone whose names are kept
	wakerStacks = 8192      // threads on a run queue at once whose waker's stack is kept
)

// sizeSpans sizes what goes with the pending table of spans.
func sizeSpans(s *specs, slots int) []knob {
	var seed [8]byte
	_, _ = rand.Read(seed[:])  // a secret for the keys; it never fails
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
	return o.Plan.Tracks[t] || t == rules.Pair && o.pairsUsed.Load()
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
func (o *Objects) Unrecorded() map[string]error { return o.Plan.Unrecorded }

// Close stops, and unloads the kernel side; see Leave.
func (o *Objects) Close() error {
	errs := []error{o.Stop(), o.closePins(), o.rings.close()}
	for _, p := range o.programs {
		errs = append(errs, p.Close())
	}
	for _, m := range o.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(append(errs, o.closeTables())...)
}

// EachCPU visits the state of every CPU that may come.
func (o *Objects) EachCPU(visit func(s *abi.CpuState)) error {
	for i := range o.Maps.Cpus.MaxEntries() {
		var s abi.CpuState
		if err := o.Maps.Cpus.Lookup(i, &s); err != nil {
			return fmt.Errorf("read counters of CPU %d: %w", i, err)
		}
		visit(&s)
	}
	return nil
}
