// Package tracker is the kernel side as the daemon uses it: New loads it for a
// list of rules, Attach sets it to work, Read hands out outliers.
//
// The work is done by the packages below: kinds (the table of trackers),
// compile (rules to kernel tables), kernel (load, attach, pending tables,
// recorder), pair (declared hooks), stats (counters, histograms), install
// (rules that run) and reader (messages), which import each other in this order.
package tracker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/call"
	"github.com/tailcam/tailcam/tracker/compile"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/install"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/pair"
	"github.com/tailcam/tailcam/tracker/pins"
	"github.com/tailcam/tailcam/tracker/reader"
)

// Options tune the kernel side. The zero value of each field means its default.
type Options struct {
	// Groups of events that the recorder records (see Groups); none: no recorder.
	Groups []string
	// Ring is the size of one CPU's ring of the recorder in bytes, rounded up to
	// a power of two of at least 64 KiB, if the rings are plain memory (see
	// Records). 0: the rings are perf ring buffers (see Banks).
	Ring int
	// IRQFloor is the run time from which on an interrupt handler or a softirq has a record of its
	// own, whatever it did (group irq); 0: each has one.
	IRQFloor time.Duration
	// Tasks, Syscalls, Requests, Chains, Pairs, Spans and Works are the slots of the pending
	// tables at first, rounded up to powers of two; default 65536, chains 4096, others 16384.
	Tasks, Syscalls, Requests, Chains, Pairs, Spans, Works int
	// MaxTasks, MaxSyscalls, MaxRequests and MaxWorks are how far they may grow, doubling,
	// up to eight times of what they are at first; 0: they do not.
	MaxTasks, MaxSyscalls, MaxRequests, MaxWorks int
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
	// Cgroups is asked where the kernel side cannot decide; required if any rule
	// has a cgroup condition.
	Cgroups install.Cgroups
	// Symbol names the function of the kernel at an address, "" if it has none;
	// required if any rule has a function condition.
	Symbol func(address uint64) string
	// Programs finds what rules want of programs and libraries. Nil: this process
	// opens and parses them, which only files that are trusted should make it do.
	Programs pair.Programs
	// Release is called, in Read, for an outlier that the daemon decided
	// against, or whose rule is gone, although the kernel side may have frozen
	// the recorder for it. Nil: ignored.
	Release func()
	// NoHistograms removes the code that counts every delay; rules with a
	// histogram or an adaptive threshold are then refused.
	NoHistograms bool
	// Contexts reads the trace and the span of slow threads, of processes that SetContext
	// knows.
	Contexts bool
	// Attributes also reads what stands beside them.
	Attributes bool
	// TrackSelf also reports what this process does. Tests only: with
	// snapshots it would feed on itself.
	TrackSelf bool
	// Pins keeps the kernel side beyond this process, and may have one that another
	// process has left: see Takeover. Nil: nothing does.
	Pins pins.Store
	// RingReason is what Ring was derived from, if it was measured: see KeptRing.
	RingReason string
	// Version of tailcam, for who takes over.
	Version string
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	for _, f := range []struct {
		value  *int
		preset int
	}{{&d.Tasks, 65536}, {&d.Syscalls, 16384}, {&d.Requests, 16384}, {&d.Chains, 4096}, {&d.Pairs, 16384}, {&d.Spans, 16384}, {&d.Works, 16384}, {&d.Buffer, 4 << 20}} {
		if *f.value <= 0 {
			*f.value = f.preset
		}
	}
	if d.Programs == nil {
		d.Programs = pair.OwnPrograms{}
	}
	if d.ChainAge <= 0 {
		d.ChainAge = time.Minute
	}
	d.ChainAge = min(d.ChainAge, 15*time.Minute)
	if d.SpanAge <= 0 {
		d.SpanAge = 10 * time.Minute
	}
	return d
}

// rate is the time of one outlier, and of a burst; 0: no limit.
func (o *Options) rate() (each, burst uint64) {
	if o.Rate <= 0 {
		return 0, 0
	}
	each = uint64(time.Second) / uint64(o.Rate)
	return each, each * uint64(max(o.Burst, 1))
}

// ErrAbsent is wrapped by why this kernel or machine cannot serve a rule: at the start,
// it would be inactive.
var ErrAbsent = errors.New("it cannot work here")

// kernel are those of the package below.
func (o *Options) kernel(histograms int) *kernel.Options {
	each, burst := o.rate()
	return &kernel.Options{
		Slots: [abi.Tables]int{o.Tasks, o.Syscalls, o.Requests, o.Pairs, o.Spans, o.Works},
		MaxSlots: [abi.Tables]int{
			abi.TableTasks: o.MaxTasks, abi.TableCalls: o.MaxSyscalls, abi.TableRequests: o.MaxRequests,
			abi.TableWorks: o.MaxWorks,
		},
		Chains: o.Chains, ChainAge: o.ChainAge, Ring: o.Ring, Buffer: o.Buffer,
		OutlierNS: each, BurstNS: burst, Histograms: histograms, IRQFloor: o.IRQFloor, TrackSelf: o.TrackSelf,
		Pins: o.Pins, RingReason: o.RingReason, Version: o.Version,
	}
}

// Tracker is the loaded and attached kernel side. All methods but Read may be
// called from several goroutines at once; Read from one.
type Tracker struct {
	*kernel.Objects
	*install.Rules

	opts       Options
	histograms int // of one CPU
	pairs      *pair.Set
	calls      *call.Set
	reader     *reader.Reader

	swapping sync.Mutex // held during Swap and Configure, and guards what of opts Configure changes
	mu       sync.Mutex // guards inactive, and pairs, which only Swap changes
	inactive map[string]error
}

// New loads the kernel side for a list of rules; Attach sets it to work. Rules
// that this kernel cannot serve are left out: see Inactive. Needs kernel 6.1+
// with BTF, and CAP_BPF with CAP_PERFMON, or root.
func New(list []rules.Rule, opts *Options) (*Tracker, error) {
	list = rules.Tracked(list)
	t, err := load(list, opts, nil)
	if taken, ok := errors.AsType[*kernel.TakeoverError](err); ok {
		return load(list, opts, taken)
	}
	return t, err
}

// load is New; anew is why what is pinned must not be taken over.
func load(list []rules.Rule, opts *Options, anew error) (*Tracker, error) {
	types, err := kernel.LoadBTF()
	if err != nil {
		return nil, err
	}
	t := &Tracker{opts: opts.withDefaults()}
	plan, served, inactive, err := kernel.NewPlan(list, t.opts.Groups, types)
	if err != nil {
		return nil, err
	}
	t.inactive, plan.Contexts, plan.Attributes = inactive, t.opts.Contexts, t.opts.Attributes
	pairs, absent, err := pair.Resolve(served, types, t.opts.Programs)
	if err != nil {
		return nil, err
	}
	t.pairs = pairs
	served = t.leaveOut(served, absent)
	if !t.opts.NoHistograms {
		t.histograms = compile.HistogramsNeeded(served)
	}
	wanted := t.opts.kernel(t.histograms)
	wanted.Anew = anew
	if t.Objects, err = kernel.Load(plan, types, wanted); err != nil {
		return nil, err
	}
	if t.histograms > 0 { // there may be more in what was taken over
		t.histograms = t.HistogramStride()
	}
	if pairs, err = pairs.Resume(t.Objects); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.pairs = pairs
	if err := pairs.Load(t.Objects); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if t.calls, err = call.Load(t.Objects, types); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	served = t.leaveOut(served, pairs.Failed())
	each, burst := t.opts.rate()
	t.Rules = install.New(t.Objects, &install.Options{
		Pairs: pairs.Numbers, Labels: pairs.Labels, Cgroups: t.opts.Cgroups, Symbol: t.opts.Symbol, NoHistograms: t.opts.NoHistograms,
		OutlierNS: each, BurstNS: burst,
	})
	if t.reader, err = reader.New(t.Objects, t.Rules, t.opts.Release); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if err := t.installFirst(served); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// installFirst installs the first rules of this process.
func (t *Tracker) installFirst(list []rules.Rule) error {
	if !t.Takeover().Taken {
		return t.Rules.Swap(list)
	}
	err := t.Rules.Resume(list)
	if err == nil {
		err = t.Rules.Swap(list)
	}
	if err == nil { // of hooks that were not taken over, exits may have been missed
		_, err = t.Objects.ReclaimPairs(t.pairAges(t.pairs.Resumed()))
	}
	if err != nil {
		return &kernel.TakeoverError{Err: err}
	}
	return nil
}

// leaveOut drops rules that this kernel cannot serve, and notes why.
func (t *Tracker) leaveOut(list []rules.Rule, absent map[string]error) []rules.Rule {
	maps.Copy(t.inactive, absent)
	return slices.DeleteFunc(list, func(r rules.Rule) bool { return absent[r.Name] != nil })
}

// Attach attaches every program that is needed (see kernel.Objects), but for
// functions of system calls: see RunCalls.
func (t *Tracker) Attach() error {
	if err := t.Objects.Attach(); err != nil {
		return err
	}
	err := t.pairs.Attach(t.Objects)
	t.mu.Lock()
	t.inactive = maps.Clone(t.inactive)
	maps.Copy(t.inactive, t.pairs.Failed())
	t.mu.Unlock()
	if err != nil {
		return err
	}
	t.pairs.Keep(t.Objects)
	return t.StartHeartbeat()
}

// RunCalls attaches to the functions of system calls that rules name, now and
// after each Swap, until ctx is done, and calls done each time that no more are
// left. Those of 32-bit programs wait for LookForNarrow. It takes a second or
// more, in which CallFunctions tells how far it is; calls that began before are
// not reported.
func (t *Tracker) RunCalls(ctx context.Context, done func(CallStatus)) { t.calls.Run(ctx, done) }

// LookForNarrow asks the kernel side whether there is a 32-bit program: RunCalls
// then attaches to what only such use. Once a second is often enough.
func (t *Tracker) LookForNarrow() { t.calls.Look() }

// AttachCalls is RunCalls once, without looking for 32-bit programs.
func (t *Tracker) AttachCalls(ctx context.Context) { t.calls.Attach(ctx) }

// CallFunctions is how far attaching to functions of system calls has come.
func (t *Tracker) CallFunctions() CallStatus { return t.calls.Status() }

// Fits tells why a rule that is new, or has changed, cannot run; nil: it can. It wraps
// ErrAbsent if this kernel or machine cannot serve it.
func (t *Tracker) Fits(rule *rules.Rule) error {
	if !rule.Tracked() {
		return nil
	}
	types, err := kernel.LoadBTF()
	if err != nil {
		return err
	}
	_, served, inactive, err := t.Plan().Next([]rules.Rule{*rule}, types)
	if err != nil {
		return err
	}
	_, absent, err := pair.Resolve(t.pairsNow().Unknown(served), types, t.opts.Programs)
	if err != nil {
		return err
	}
	maps.Copy(inactive, absent)
	if err := inactive[rule.Name]; err != nil {
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	return nil
}

// Configure changes options while everything runs (see kernel.Objects, Replace): Groups,
// Ring (but not from or to 0) with RingReason, IRQFloor, Rate and Burst. With another Ring, Recorder returns
// the new rings from here on. If it fails, nothing has changed. It takes a second or more.
func (t *Tracker) Configure(change func(*Options)) error {
	types, err := kernel.LoadBTF()
	if err != nil {
		return err
	}
	t.swapping.Lock()
	defer t.swapping.Unlock()
	opts := t.opts
	change(&opts)
	plan, err := t.Plan().Record(opts.Groups, types)
	if err != nil {
		return err
	}
	if err := t.replace(plan, types, &opts); err != nil {
		return err
	}
	o := &t.opts
	o.Groups, o.Ring, o.RingReason, o.IRQFloor, o.Rate, o.Burst = opts.Groups, opts.Ring, opts.RingReason, opts.IRQFloor, opts.Rate, opts.Burst
	t.Rules.SetRate(opts.rate())
	return nil
}

// Limit is Configure for MaxTasks, MaxSyscalls, MaxRequests and MaxWorks alone, at once.
// A table that is larger stays as it is.
func (t *Tracker) Limit(change func(*Options)) error {
	t.swapping.Lock()
	defer t.swapping.Unlock()
	opts := t.opts
	change(&opts)
	o := &t.opts
	o.MaxTasks, o.MaxSyscalls, o.MaxRequests, o.MaxWorks = opts.MaxTasks, opts.MaxSyscalls, opts.MaxRequests, opts.MaxWorks
	t.Objects.LimitTables(o.kernel(t.histograms).MaxSlots)
	return nil
}

// replace loads the kernel side again (see kernel.Objects), and what shares it.
func (t *Tracker) replace(plan *kernel.Plan, types *btf.Spec, opts *Options) error {
	pairs := t.pairsNow()
	if err := t.Objects.ForgetPairs(); err != nil {
		return err
	}
	if err := t.Objects.Replace(plan, types, opts.kernel(t.histograms)); err != nil {
		pairs.Keep(t.Objects) // as before
		return err
	}
	err := pairs.Renew(t.Objects)
	if err != nil { // some run on with what was replaced
		t.Unpin(err)
	}
	pairs.Keep(t.Objects)
	return errors.Join(err, t.calls.Renew(), t.StartHeartbeat())
}

// Swap replaces the rules while everything runs on (see install.Rules). If they need what
// is not loaded, such as another tracker, that is loaded first (see kernel.Objects), which
// takes a second or more. If it fails, the old rules stay.
func (t *Tracker) Swap(list []rules.Rule) error {
	list = rules.Tracked(list)
	types, err := kernel.LoadBTF()
	if err != nil {
		return err
	}
	t.swapping.Lock()
	defer t.swapping.Unlock()
	plan, served, inactive, err := t.Plan().Next(list, types)
	if err != nil {
		return err
	}
	if now := t.Plan(); !now.Covers(plan) {
		if err := t.replace(now.Grow(plan), types, &t.opts); err != nil {
			return fmt.Errorf("load what the rules need: %w", err)
		}
	}
	before := t.pairsNow()
	fresh, absent, err := pair.Resolve(before.Unknown(served), types, t.opts.Programs)
	if err != nil {
		return err
	}
	// The hooks of new pairs are attached before their rules are there, and those of old
	// ones detached after their rules have gone.
	pairs, err := before.Extend(fresh)
	if err != nil {
		return err
	}
	left := pairs.Without(list)
	if !pairs.Same(before) || !left.Same(pairs) {
		if err := t.Objects.ForgetPairs(); err != nil {
			return err
		}
		defer func() { t.pairsNow().Keep(t.Objects) }()
	}
	if err := t.usePairs(before, pairs); err != nil {
		return err
	}
	maps.Copy(absent, pairs.Failed())
	for _, r := range list {
		if err := absent[r.Name]; err != nil {
			inactive[r.Name] = err
		}
	}
	served = slices.DeleteFunc(served, func(r rules.Rule) bool { return absent[r.Name] != nil })
	if err := t.Rules.SwapPairs(served, pairs.Numbers, pairs.Labels); err != nil {
		return errors.Join(err, pairs.Drop(before, t.Objects))
	}
	left = pairs.Without(list) // with what has failed meanwhile
	t.mu.Lock()
	t.inactive, t.pairs = inactive, left
	t.mu.Unlock()
	t.calls.Want(plan.Calls, plan.Calls32)
	_ = t.StartHeartbeat() // timeouts may be shorter now; KeepTicking tries again
	return t.dropPairs(before, pairs, left)
}

// Inactive returns the rules that this kernel cannot serve, by name, and why.
func (t *Tracker) Inactive() map[string]error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inactive
}

// Read returns the next outlier (see reader.Reader), and os.ErrClosed after Stop.
func (t *Tracker) Read() (*events.Outlier, error) { return t.reader.Read() }

// Reading is how far Read has come; it does not block.
func (t *Tracker) Reading() Reading { return t.reader.Reading() }

// Reclaim frees the slots of work that cannot end any more (see kernel.Objects),
// and returns how many. Once a minute is often enough.
func (t *Tracker) Reclaim() (int, error) {
	t.swapping.Lock() // pairs that are new have no rule for a moment
	defer t.swapping.Unlock()
	maxSpan := t.opts.SpanAge
	pairs := t.pairAges(t.pairsNow().Numbers)
	t.Current(func(r *rules.Rule) {
		if r.Track == rules.Span {
			maxSpan = max(maxSpan, 2*r.Threshold, 2*r.Timeout)
			for i := range r.Overrides {
				maxSpan = max(maxSpan, 2*r.Overrides[i].Threshold, 2*r.Overrides[i].Timeout)
			}
		}
	})
	return t.Objects.Reclaim(maxSpan, pairs)
}

// Stop detaches everything. Read returns os.ErrClosed afterwards; counters
// and the recorder can still be read until Close.
func (t *Tracker) Stop() error {
	var err error
	if t.calls != nil {
		err = t.calls.Stop()
	}
	err = errors.Join(err, t.Objects.Stop())
	if t.reader != nil { // it stays: Read may be about to use it
		err = errors.Join(err, t.reader.Close())
	}
	return err
}

// Close stops, and unloads the kernel side.
func (t *Tracker) Close() error {
	err := t.Stop()
	t.pairs.Close()
	if t.calls != nil {
		err = errors.Join(err, t.calls.Close())
	}
	return errors.Join(err, t.Objects.Close())
}
