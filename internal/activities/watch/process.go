package watch

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// Process is one that has opened.
type Process interface {
	Key() uint64 // of no other process, also later
	PID() int
	UID() uint32
	Opened() uint64 // in nanoseconds of CLOCK_MONOTONIC
	// Read calls fn with the maps, which stay mapped until it returns, unless they have gone.
	Read(fn func(m *Maps))
	// SetThreshold tells the process from which elapsed time on, in nanoseconds, it is to tell
	// the daemon of a token that ends; 0: never.
	SetThreshold(ns uint64)
}

// Thread is the slot of a thread.
type Thread struct {
	TID  int     // as the process sees it; 0: free
	Half [2]Half // what it carries, and what it carried before
	Seq  uint32  // one more at each switch of tokens
	// As in struct activity_thread_state.
	SliceNS, OutNS, WakingNS uint64
	Cause                    uint32
}

// Half is what a thread carries or carried.
type Half struct {
	Token, Generation uint32
	SinceNS           uint64
}

// Token is one element as its process has written it.
type Token struct {
	Generation     uint32 // odd: live
	BeginNS, EndNS uint64
	CPUNS, WallNS  uint64 // as far as threads have added theirs
	Value          uint64
	TraceID        [16]byte
	SpanID         [8]byte
	Name, Text     string // any bytes
	Attributes     map[string]string
}

const (
	identifyEvery = 10 * time.Second
	maxLooks      = 16384 // tokens of one process that are looked at in one scan
	maxThreads    = 8     // of a token that are remembered
	// Messages of one process that are taken each second, after as many at once.
	messages = 200
)

// followed is a process as of the last scan.
type followed struct {
	process    Process
	*Maps      // while it is looked at
	identity   Identity
	identifyAt uint64
	version    int // of the rules that were applied; 0: none
	applied    []*appliedRule
	threshold  uint64
	told       bool // of threshold
	messages   *rate.Limiter
	refused    [2]refusals // of tokens and of threads

	elements []element            // by token, the first one first
	carried  map[uint32][]carrier // by token, as of now
	slots    int                  // of threads that are taken
	next     uint32               // where the next scan begins if the last one did not come to the end
}

// element is what is known of one element of the map.
type element struct {
	generation uint32
	deadline   uint64 // the next timeout of a rule; 0: none
	live       *live  // nil: it is free
}

// live is what is known of a token that has not ended.
type live struct {
	threads []int
	fired   []firedRule
}

type firedRule struct {
	rule *ruleState
	at   uint64
}

// carrier is a thread that carries a token, or did before the one that it carries now.
type carrier struct {
	*Thread
	half int
}

func newFollowed(p Process) *followed {
	return &followed{
		process: p, messages: rate.NewLimiter(messages, messages),
		refused: [2]refusals{{at: p.Opened()}, {at: p.Opened()}},
	}
}

// use begins to look at the maps; false: they are not what they should be.
func (f *followed) use(m *Maps) bool {
	if !m.Valid() || f.elements != nil && len(f.elements) != m.Tokens {
		return false
	}
	if f.elements == nil {
		f.elements = make([]element, m.Tokens)
	}
	f.Maps = m
	f.readThreads()
	return true
}

// allow limits messages.
func (f *followed) allow(now uint64) bool { return f.messages.AllowN(time.Unix(0, int64(now)), 1) }

// readThreads reads who carries what.
func (f *followed) readThreads() {
	f.carried, f.slots = map[uint32][]carrier{}, 0
	for slot := range f.Threads {
		t := f.thread(slot)
		if t.TID <= 0 {
			continue
		}
		f.slots++
		for i, h := range t.Half {
			if h.Token < f.first() || int(h.Token-f.first()) >= len(f.elements) {
				continue
			}
			if g := f.generation(h.Token); g == h.Generation || g == h.Generation+1 {
				f.carried[h.Token] = append(f.carried[h.Token], carrier{&t, i})
			}
		}
	}
}

// threadsOf adds the threads that carry a token to those that did, the latest last. A thread
// may be there twice, and a process may have all of its slots say the same.
func (f *followed) threadsOf(token, generation uint32, known []int) []int {
	list := slices.DeleteFunc(slices.Clone(f.carried[token]), func(c carrier) bool { return c.Half[c.half].Generation != generation })
	slices.SortFunc(list, func(a, b carrier) int { return cmp.Compare(a.Half[a.half].SinceNS, b.Half[b.half].SinceNS) })
	for _, c := range list[max(0, len(list)-2*maxThreads):] {
		known = append(slices.DeleteFunc(known, func(tid int) bool { return tid == c.TID }), c.TID)
	}
	return known[max(0, len(known)-maxThreads):]
}
