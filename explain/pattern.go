package explain

import (
	"fmt"
	"sort"
)

// Pattern is a shape of latency that has a name among those who look for it. docs/explain.md
// has the rule by which each is recognised.
type Pattern string

// Patterns, in the order in which they are tried: the first that fits is named.
const (
	PriorityInversion Pattern = "priority_inversion"
	PreemptedHolder   Pattern = "preempted_lock_holder"
	InterpreterLock   Pattern = "interpreter_lock"
	LockConvoy        Pattern = "lock_convoy"
	ExhaustedPool     Pattern = "exhausted_pool"
	RetryLoop         Pattern = "retry_loop"
	ThunderingHerd    Pattern = "thundering_herd"
	ReclaimStorm      Pattern = "reclaim_storm"
	CheckpointStorm   Pattern = "checkpoint"
	WritebackStorm    Pattern = "writeback_storm"
	BulkIO            Pattern = "bulk_io"
	NoisyNeighbour    Pattern = "noisy_neighbour"
	IdleWakeup        Pattern = "idle_wakeup"
	FrequencyDelay    Pattern = "frequency_delay"
	CPUSaturation     Pattern = "cpu_saturation"
)

// finding is a pattern that was recognised.
type finding struct {
	why        string // the evidence, for people
	confidence Confidence
	by         *Who   // who caused it, if one can be named
	holder     *Who   // of the lock, where that waited itself
	what       string // the tasks of a pool
}

// recogniser recognises one pattern, or returns nil.
type recogniser struct {
	pattern Pattern
	words   string // the first words of a verdict
	sees    func(*look) *finding
}

// recognisers lists them in the order of Patterns.
var recognisers = [...]recogniser{
	{PriorityInversion, "priority inversion", (*look).priorityInversion},
	{PreemptedHolder, "preempted lock holder", (*look).preemptedHolder},
	{InterpreterLock, "interpreter lock", (*look).interpreterLock},
	{LockConvoy, "lock convoy", (*look).lockConvoy},
	{ExhaustedPool, "exhausted pool", (*look).exhaustedPool},
	{RetryLoop, "retry loop", (*look).retryLoop},
	{ThunderingHerd, "thundering herd", (*look).thunderingHerd},
	{ReclaimStorm, "reclaim storm", (*look).reclaimStorm},
	{CheckpointStorm, "checkpoint", (*look).checkpoint},
	{WritebackStorm, "writeback storm", (*look).writebackStorm},
	{BulkIO, "queue behind bulk I/O", (*look).bulkIO},
	{NoisyNeighbour, "noisy neighbour", (*look).noisyNeighbour},
	{IdleWakeup, "wake-up of an idle CPU", (*look).idleWakeup},
	{FrequencyDelay, "frequency delay", (*look).frequencyDelay},
	{CPUSaturation, "CPU saturation", (*look).cpuSaturation},
}

// Words is what people call a pattern; "" for none, and for one that is not known.
func (p Pattern) Words() string {
	for i := range recognisers {
		if recognisers[i].pattern == p {
			return recognisers[i].words
		}
	}
	return ""
}

// prefix is what a verdict begins with.
func (p Pattern) prefix() string {
	if words := p.Words(); words != "" {
		return words + ": "
	}
	return ""
}

// look is what recognisers look at: an outlier that is explained but for its verdict.
type look struct {
	*walker
	r      *Result
	pieces []piece
	left   int // segments that may still be looked at
}

// maxLook bounds the segments, runs and requests that one recogniser looks at.
const maxLook = 1 << 17

// recognise names the pattern of an outlier, if it has one.
func (w *walker) recognise(r *Result, pieces []piece) {
	if r.DelayNS <= 0 || r.Confidence == "" {
		return // nothing is known
	}
	l := &look{walker: w, r: r, pieces: pieces}
	for i := range recognisers {
		l.left = maxLook
		if f := recognisers[i].sees(l); f != nil {
			r.Pattern, r.PatternWhy = recognisers[i].pattern, printable(f.why)
			if f.confidence.rank() > r.Confidence.rank() {
				r.Confidence = f.confidence
			}
			w.found = f
			return
		}
	}
}

// most reports whether a time is half of the outlier's or more.
func (l *look) most(ns uint64) bool { return ns > 0 && ns >= uint64(l.r.DelayNS+1)/2 }

// spend takes one from what may be looked at.
func (l *look) spend() bool {
	l.left--
	return l.left > 0
}

// visit calls see for each piece of a path, outer ones first, until it returns false for a
// piece: those below it are left out then.
func visit(pieces []piece, see func(p *piece) bool) {
	for i := range pieces {
		if see(&pieces[i]) {
			visit(pieces[i].below, see)
		}
	}
}

// leaves calls see for the pieces at the end of a path.
func leaves(pieces []piece, see func(p *piece)) {
	visit(pieces, func(p *piece) bool {
		if len(p.below) == 0 {
			see(p)
		}
		return true
	})
}

func (p *piece) ns() uint64 { return p.to - p.from }

// behindTask reports whether a piece is a wait for a CPU that another task had.
func (p *piece) behindTask() bool {
	return (p.cause == Preempted || p.cause == Runnable || p.cause == Misplaced) && p.by != nil && p.by.Kind == KindTask
}

// segmentsIn visits the segments of a task in an interval, clipped to it.
func (l *look) segmentsIn(t *task, from, to uint64, see func(s *segment, from, to uint64)) {
	for i := t.segmentAt(from); i < len(t.segments) && t.segments[i].from < to && l.spend(); i++ {
		s := &t.segments[i]
		if lo, hi := max(s.from, from), min(s.to, to); lo < hi {
			see(s, lo, hi)
		}
	}
}

// span returns the outlier's begin and end.
func (l *look) span() (from, to uint64) { return l.outlier.Start, l.outlier.End }

// slow returns the slow task; nil: the work has none, or the history has nothing of it.
func (l *look) slow() *task {
	if l.outlier.Key != nil || l.outlier.Began != "" || l.outlier.TID <= 0 {
		return nil
	}
	return l.m.tasks[l.outlier.TID]
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// segmentAt returns the index of the first segment that ends after a time.
func (t *task) segmentAt(at uint64) int {
	return sort.Search(len(t.segments), func(i int) bool { return t.segments[i].to > at })
}
