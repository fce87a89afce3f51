package declared

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// Values are those of an account, by enum activity_value.
type Values [abi.ActivityValues]uint64

// Ended is an activity that has ended, one of the slowest of its rule. Times are in
// nanoseconds of CLOCK_MONOTONIC. Comm and Text may be any text: programs chose it.
type Ended struct {
	Rule, Activity string
	PID, TID       int
	UID            uint32
	CgroupID       uint64
	BeginNS, EndNS uint64
	Comm, Text     string
	Values         Values
}

// WallNS is how long it took. Its thread had it all the time.
func (e *Ended) WallNS() uint64 { return e.EndNS - min(e.BeginNS, e.EndNS) }

// UnexplainedNS is what of that its thread was neither on a CPU, nor runnable, nor blocked, as
// far as was seen.
func (e *Ended) UnexplainedNS() uint64 {
	return e.WallNS() - min(e.WallNS(), e.Values[abi.ActivityCpuNs]+e.Values[abi.ActivityRunnableNs]+e.Values[abi.ActivityBlockedNs])
}

// Totals are of all activities of a rule that have ended since its hooks are attached.
type Totals struct {
	Rule, Activity string
	Replaced       uint64 // whose end was not seen, and which nothing else here counts
	Nested         uint64 // not begun: the thread was in one already
	Refused        uint64 // not begun: there was no slot for the thread, or the process has tokens of its own
	Lost           uint64 // slow ones that Ended lacks
	Values         Values
	Wall           histogram.Histogram
}

// How many of a rule are kept.
const (
	latest  = 64
	slowest = 64
)

// store keeps what has ended.
type store struct {
	reader *ringbuf.Reader

	mu      sync.Mutex
	latest  [abi.DeclaredRules][]Ended // the oldest first
	slowest [abi.DeclaredRules][]Ended // the slowest first
}

func (s *store) open(ring *ebpf.Map) (err error) {
	if s.reader, err = ringbuf.NewReader(ring); err != nil {
		return fmt.Errorf("read what has ended: %w", err)
	}
	return nil
}

func (s *store) close() error { return s.reader.Close() }

// Run takes in what the kernel side tells of the slowest activities, until Close.
func (s *Set) Run() error {
	for {
		r, err := s.store.reader.Read()
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what has ended: %w", err)
		}
		if len(r.RawSample) >= int(unsafe.Sizeof(abi.DeclaredEnded{})) {
			s.take((*abi.DeclaredEnded)(unsafe.Pointer(&r.RawSample[0])))
		}
	}
}

func (s *Set) take(raw *abi.DeclaredEnded) {
	if raw.Rule >= abi.DeclaredRules {
		return
	}
	s.mu.Lock()
	r := s.names()[raw.Rule]
	s.mu.Unlock()
	if r.name == "" {
		return // gone
	}
	e := Ended{
		Rule: r.name, Activity: r.activity, PID: int(raw.Pid), TID: int(raw.Tid), UID: raw.Uid, CgroupID: raw.CgroupId,
		BeginNS: raw.BeginNs, EndNS: raw.EndNs, Comm: text(raw.Comm[:]), Text: text(raw.Text[:]),
	}
	copy(e.Values[:], raw.Value[:])
	s.store.add(int(raw.Rule), &e)
}

// text is what a program wrote, up to its NUL.
func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func (s *store) add(number int, e *Ended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(number, e.Rule)
	s.latest[number] = append(s.latest[number], *e)
	s.latest[number] = s.latest[number][max(0, len(s.latest[number])-latest):]
	at, _ := slices.BinarySearchFunc(s.slowest[number], e, func(a Ended, b *Ended) int { return cmp.Compare(b.WallNS(), a.WallNS()) })
	list := slices.Insert(s.slowest[number], at, *e)
	s.slowest[number] = list[:min(len(list), slowest)]
}

// keep forgets what a rule has left that had the number before. Requires s.mu.
func (s *store) keep(number int, rule string) {
	if l := s.latest[number]; len(l) > 0 && l[0].Rule != rule {
		s.latest[number], s.slowest[number] = nil, nil
	}
}

// Ended returns the slowest activities of each rule, and the latest of the slow ones: by rule,
// the slowest first.
func (s *Set) Ended() (all []Ended) {
	s.mu.Lock()
	names := s.names()
	s.mu.Unlock()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for number, r := range names {
		seen := map[[2]uint64]bool{}
		var list []Ended
		for _, e := range slices.Concat(s.store.slowest[number], s.store.latest[number]) {
			key := [2]uint64{uint64(e.TID), e.BeginNS}
			if e.Rule == r.name && !seen[key] {
				seen[key] = true
				list = append(list, e)
			}
		}
		slices.SortStableFunc(list, func(a, b Ended) int { return cmp.Compare(b.WallNS(), a.WallNS()) })
		all = append(all, list...)
	}
	return all
}

// Totals returns those of each rule.
func (s *Set) Totals() ([]Totals, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Totals
	for number, r := range s.rules {
		if r == nil {
			continue
		}
		var raw []abi.DeclaredTotals
		if err := s.kernel.Maps["declared_totals"].Lookup(uint32(number), &raw); err != nil {
			return nil, fmt.Errorf("read the totals of rule %s: %w", r.name, err)
		}
		t := Totals{Rule: r.name, Activity: r.activity}
		for i := range raw {
			t.add(&raw[i])
		}
		all = append(all, t)
	}
	return all, nil
}

// add adds those of one CPU.
func (t *Totals) add(raw *abi.DeclaredTotals) {
	t.Replaced += raw.Replaced
	t.Nested += raw.Nested
	t.Refused += raw.Refused
	t.Lost += raw.Lost
	for i := range t.Values {
		t.Values[i] += raw.Value[i]
	}
	h := &t.Wall
	for i, n := range raw.Bucket {
		h.Bucket[i] += n
	}
	h.Count += raw.Count
	h.Sum += raw.WallNs
	h.Max = max(h.Max, raw.MaxNs)
}
