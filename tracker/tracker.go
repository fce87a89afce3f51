// Package tracker loads, attaches, tunes and reads the kernel side, and hands
// out outliers.
package tracker

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// Host answers what only user space knows of the machine. Its methods are
// called from the reading goroutine, and must not wait for long.
type Host interface {
	// CgroupPath returns the cgroup v2 path of a cgroup id.
	CgroupPath(id uint64) (string, error)
	// WalkCgroups calls visit for every cgroup that exists.
	WalkCgroups(visit func(id uint64, path string)) error
}

// Options tune the kernel side. The zero value of each field means its default.
type Options struct {
	// Groups of events that the recorder records (see Groups); none: no recorder.
	Groups []string
	// Ring is the size of one CPU's ring of the recorder in bytes, rounded up to
	// a power of two of at least 64 KiB, if the rings are plain memory (see
	// Records). 0: the rings are perf ring buffers (see Banks).
	Ring int
	// Tasks, Syscalls, Requests, Chains, Pairs and Spans are the places of the pending tables
	// at first, rounded up to powers of two; default 65536, 16384, 16384, 4096, 16384.
	Tasks, Syscalls, Requests, Chains, Pairs, Spans int
	// MaxTasks, MaxSyscalls and MaxRequests are how far they may grow, doubling,
	// up to eight times of what they are at first; 0: they do not.
	MaxTasks, MaxSyscalls, MaxRequests int
	// ChainAge is how long a chain is followed, at most 15 minutes; default 60s.
	ChainAge time.Duration
	// SpanAge is when a span that nobody ends is dropped (see Reclaim), but twice
	// the limits of any rule at least; default 10 minutes.
	SpanAge time.Duration
	// Buffer is the size of the outliers' ring buffer in bytes, rounded up to
	// a power of two of at least a page; default 4 MiB.
	Buffer int
	// Rate is how many outliers of one rule a second reach the daemon in the long
	// run, and Burst how many at once; others are counted as limited. Rate 0: no limit.
	Rate, Burst int
	// Host is asked where the kernel side cannot decide; required if any rule
	// has a cgroup condition.
	Host Host
	// Programs finds what rules want of programs and libraries. Nil: this process
	// opens and parses them, which only files that are trusted should make it do.
	Programs Programs
	// Unwanted is called, in Read, for an outlier that the daemon decided
	// against, or whose rule is gone, although the kernel side may have frozen
	// the recorder for it. Nil: ignored.
	Unwanted func()
	// NoHistograms removes the code that counts every delay; rules with a
	// histogram or an adaptive threshold are then refused.
	NoHistograms bool
	// TrackSelf also reports what this process does. Tests only: with
	// snapshots it would feed on itself.
	TrackSelf bool
}

func (o *Options) withDefaults() Options {
	d := Options{Tasks: 65536, Syscalls: 16384, Requests: 16384, Chains: 4096, Spans: 16384, Pairs: 16384, ChainAge: time.Minute, SpanAge: 10 * time.Minute, Buffer: 4 << 20, Programs: ownPrograms{}}
	if o == nil {
		return d
	}
	d.NoHistograms, d.Rate, d.Burst = o.NoHistograms, o.Rate, o.Burst
	d.MaxTasks, d.MaxSyscalls, d.MaxRequests = o.MaxTasks, o.MaxSyscalls, o.MaxRequests
	d.Groups, d.Host, d.TrackSelf, d.Unwanted, d.Ring = o.Groups, o.Host, o.TrackSelf, o.Unwanted, o.Ring
	for _, f := range []struct {
		to   *int
		from int
	}{{&d.Tasks, o.Tasks}, {&d.Syscalls, o.Syscalls}, {&d.Requests, o.Requests}, {&d.Chains, o.Chains}, {&d.Spans, o.Spans}, {&d.Pairs, o.Pairs}, {&d.Buffer, o.Buffer}} {
		if f.from > 0 {
			*f.to = f.from
		}
	}
	if o.Programs != nil {
		d.Programs = o.Programs
	}
	if o.ChainAge > 0 {
		d.ChainAge = min(o.ChainAge, 15*time.Minute)
	}
	if o.SpanAge > 0 {
		d.SpanAge = o.SpanAge
	}
	return d
}

// Tracker is the loaded and attached kernel side. All methods but Read may be
// called from several goroutines at once; Read from one.
type Tracker struct {
	opts     Options
	plan     *plan
	objects  *ebpf.Collection
	links    []attached
	reader   *ringbuf.Reader
	inactive map[string]error
	rings    *rings
	ring     int  // records in one ring of plain memory
	owed     owed // belongs to Read
	pulse    pulse
	growth   growth
	limits   limits
	progress progress // belongs to Read

	pairs         *pairs
	pairScratches *ebpf.Map
	constants     map[string]*ebpf.VariableSpec // of the main object, as loaded

	distributions   *ebpf.Memory // of all CPUs, nil: none
	ruleMemory      *ebpf.Memory
	overrideMemory  *ebpf.Memory
	histogramStride int // histograms of one CPU
	histogramCPUs   int

	stopping sync.Mutex // guards links

	mu       sync.Mutex // guards what follows, and the order of changes
	live     *compiled
	list     []rules.Rule // what it was made of
	old      []*compiled  // the generations before, newest first, for outliers still on their way
	stale    uint64       // outliers of generations before those
	ids      ruleIDs
	past     map[string]RuleCounters // by name: decided here, or of an id that another rule has now
	allotted allotted                // histograms of the live rules
}

type attached struct {
	hook  *hook
	link  link.Link
	prog  *ebpf.Program
	where string // of a declared pair: the hook as the rule names it
	rule  string // and the rule
}

// New loads the kernel side for a list of rules; Attach sets it to work. Rules
// that this kernel cannot serve are left out: see Inactive. Needs kernel 6.1+
// with BTF, and CAP_BPF with CAP_PERFMON, or root.
func New(list []rules.Rule, opts *Options) (*Tracker, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's BTF: %w (tailcam needs a kernel with CONFIG_DEBUG_INFO_BTF)", err)
	}
	t := &Tracker{opts: opts.withDefaults(), past: map[string]RuleCounters{}}
	var served []rules.Rule
	t.plan, served, t.inactive, err = newPlan(list, t.opts.Groups, kernel)
	if err != nil {
		return nil, err
	}
	var absent map[string]error
	if t.pairs, absent, err = newPairs(served, kernel, t.opts.Programs); err != nil {
		return nil, err
	}
	served = t.leaveOut(served, absent)
	t.histogramStride = 1
	if !t.opts.NoHistograms {
		t.histogramStride = histogramsNeeded(served)
	}
	if err := t.load(kernel); err != nil {
		if t.objects != nil {
			t.objects.Close()
		}
		return nil, err
	}
	if err := t.loadPairs(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	served = t.leaveOut(served, t.pairs.failed)
	if err := t.openHistograms(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if t.reader, err = ringbuf.NewReader(t.objects.Maps["outliers"]); err != nil {
		return nil, errors.Join(fmt.Errorf("open the outliers' ring buffer: %w", err), t.Close())
	}
	if err := t.openLimits(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.mu.Lock()
	err = t.install(served)
	t.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Attach attaches every program that is needed. The recorder's rings should
// stand in Banks by then.
func (t *Tracker) Attach() error {
	for i := range hooks {
		p := t.objects.Programs[hooks[i].program]
		if p == nil {
			continue
		}
		l, err := hooks[i].attach(p)
		if err != nil && len(hooks[i].trackers) == 0 {
			t.plan.unrecorded[hooks[i].site()] = err
			continue
		}
		if err != nil {
			return err
		}
		t.stopping.Lock()
		t.links = append(t.links, attached{hook: &hooks[i], link: l, prog: p})
		t.stopping.Unlock()
	}
	if err := t.attachPairs(); err != nil {
		return err
	}
	return t.startPulse()
}

// load sizes the maps, sets the knobs, and passes the verifier.
func (t *Tracker) load(kernel *btf.Spec) error {
	spec, err := bpf.LoadTailcam()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if err := t.plan.configure(spec); err != nil {
		return err
	}
	if err := linkSteal(spec, kernel); err != nil {
		return err
	}
	if err := t.size(spec); err != nil {
		return err
	}
	t.constants = spec.Variables
	t.objects, err = newCollection(spec, t.plan.unrecorded)
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		return err
	}
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("load the kernel side: %w (run as root, or with CAP_BPF and CAP_PERFMON)", err)
	}
	if err != nil {
		return fmt.Errorf("load the kernel side: %w", err)
	}
	if t.rings, err = openRings(t.objects.Maps["record_rings"]); err != nil {
		return err
	}
	return t.beginTables()
}

// size sets the number of elements of every map, and the masks that go with it.
func (t *Tracker) size(spec *ebpf.CollectionSpec) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	set := func(name string, n int) { spec.Maps[name].MaxEntries = uint32(n) }
	set("cpus", cpus)
	set("scratches", cpus*(trackers+1)) // one is the tick's
	interrupted := 1
	if t.plan.tracks[rules.IRQ] || t.plan.tracks[rules.Softirq] {
		interrupted = cpus
	}
	set("interrupts", interrupted)
	set("waker_scratch", cpus)
	set("chain_cpus", 1)
	if t.plan.tracks[rules.Chain] {
		set("chain_cpus", cpus)
	}
	set("waker_stacks", 1)
	if t.plan.wakerStacksAlways || t.plan.wakerStacksSlow {
		set("waker_stacks", wakerStacks)
	}
	set("pair_states", maxPairs)
	if t.plan.tracks[rules.Pair] {
		set("pair_states", cpus*maxPairs)
	}
	set("outliers", powerOfTwo(max(t.opts.Buffer, os.Getpagesize())))

	knobs := map[string]any{
		"self_pid":       uint32(os.Getpid()),
		"chain_age_ns":   uint64(t.opts.ChainAge),
		"weakly_ordered": runtime.GOARCH != "amd64",
		"interrupt_cpus": uint32(interrupted),
	}
	t.ring = RingParts
	if t.opts.Ring > 0 && t.Recording() {
		t.ring = powerOfTwo(max(t.opts.Ring, smallestRing)) / recordSize
		knobs["record_mmap"] = true
		knobs["record_mask"] = uint32(t.ring/RingParts - 1)
		knobs["record_shift"] = uint32(bits.Len(uint(t.ring/RingParts)) - 1)
	}
	// Rings are large, and a virtual machine may be prepared for hundreds of
	// CPUs that never come: only those that there are get one, online or not.
	highest, err := highestCPU("present")
	if err != nil {
		return err
	}
	set("record_rings", cpus)
	set("records", (highest+1)*t.ring)
	t.histogramCPUs = highest + 1
	set("distributions", t.histogramCPUs*t.histogramStride)
	set("class_keys", max(t.histogramStride/8, 1))
	knobs["histograms"] = !t.opts.NoHistograms
	knobs["histogram_stride"] = uint32(t.histogramStride)
	if t.opts.TrackSelf {
		knobs["self_pid"] = ^uint32(0)
	}
	t.rateKnobs(knobs)
	t.sizeTables(spec, knobs)
	if err := t.sizeSpans(spec, knobs); err != nil {
		return err
	}
	places := 8
	if t.plan.tracks[rules.Chain] {
		places = powerOfTwo(max(t.opts.Chains, 8))
	}
	set("chain_keys", places/8)
	set("chain_slots", places)
	knobs["chain_mask"] = uint32(places/8 - 1)
	set("progresses", 1)
	if t.plan.progress {
		set("progresses", progresses)
	}
	for name, value := range knobs {
		if v, ok := spec.Variables[name]; ok {
			if err := v.Set(value); err != nil {
				return fmt.Errorf("set %s: %w", name, err)
			}
		}
	}
	return nil
}

// leaveOut drops rules that this kernel cannot serve, and notes why.
func (t *Tracker) leaveOut(list []rules.Rule, absent map[string]error) []rules.Rule {
	for name, err := range absent {
		t.inactive[name] = err
	}
	return slices.DeleteFunc(list, func(r rules.Rule) bool { return absent[r.Name] != nil })
}

// Inactive returns the rules that this kernel cannot serve, by name, and why.
func (t *Tracker) Inactive() map[string]error { return t.inactive }

// Unrecorded returns what the recorder's groups would have and this kernel has
// not, by where it would be attached, and why. Complete after Attach.
func (t *Tracker) Unrecorded() map[string]error { return t.plan.unrecorded }

// attachments is what is attached now.
func (t *Tracker) attachments() []attached {
	t.stopping.Lock()
	defer t.stopping.Unlock()
	return slices.Clone(t.links)
}

// Stop detaches everything. Read returns os.ErrClosed afterwards; counters
// and the recorder can still be read until Close.
func (t *Tracker) Stop() error {
	t.stopping.Lock()
	defer t.stopping.Unlock()
	errs := []error{t.stopPulse()}
	for i := len(t.links) - 1; i >= 0; i-- {
		errs = append(errs, t.links[i].link.Close())
	}
	t.links = nil
	if t.reader != nil { // it stays: Read may be about to use it
		errs = append(errs, t.reader.Close())
	}
	return errors.Join(errs...)
}

// Close stops, and unloads the kernel side.
func (t *Tracker) Close() error {
	err := t.Stop()
	t.closePairs()
	err = errors.Join(err, t.rings.close())
	t.objects.Close()
	return errors.Join(err, t.closeTables())
}
