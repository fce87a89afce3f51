package watch

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Bounds of Past. What is left out is the oldest.
const (
	maxPast      = 4096  // activities
	maxStretches = 32768 // of all
)

// Past is an activity that threads carried in some time.
type Past struct {
	ID              string // as of Record
	Name, Text      string // any bytes; "" if its element has been used again since
	TraceID, SpanID string // in hexadecimal; both or none
	Stretches       []Stretch
	Evicted         []Evicted
}

// Evicted are pages of the page cache that a thread of the activity evicted, and another had
// to bring in again. Times are in nanoseconds of CLOCK_MONOTONIC.
type Evicted struct {
	TID      int // who brought them in, in the initial pid namespace
	From, To uint64
	Pages    int
	ByTID    int
	At       uint64 // when they were evicted
}

// Seen is what the kernel side has written.
type Seen struct {
	Carried []abi.ActivityCarried
	Evicted []abi.ActivityEvicted
	Others  []Process // beside those that have opened: of programs that know nothing of it
}

// Past returns which activities threads carried from one moment to another, in nanoseconds of
// CLOCK_MONOTONIC, or whose evictions had pages read again then: what the kernel side has
// seen, and what threads carry now. here returns what tells which id a thread of a process has
// here, by the one that it has there; 0: it has none. The oldest activity comes first.
func (w *Watcher) Past(seen *Seen, here func(pid int) func(inside int) int, from, to uint64) []Past {
	list := append(w.opts.Processes(), seen.Others...)
	w.mu.Lock()
	defer w.mu.Unlock()
	x := pastIndex{w: w, processes: make(map[uint32]Process, len(list))}
	for _, p := range list {
		x.processes[uint32(p.Key())] = p
	}
	seen.Carried = append(seen.Carried, x.now(seen.Carried, here)...)
	return x.past(seen, from, to)
}

// pastIndex is what Past looks names up in.
type pastIndex struct {
	w         *Watcher
	processes map[uint32]Process
	records   map[string]*Record // that are remembered; nil: not yet asked for
}

func (x *pastIndex) past(seen *Seen, from, to uint64) []Past {
	found := map[carriedToken]*Past{}
	of := func(t carriedToken) *Past {
		if found[t] == nil {
			found[t] = &Past{}
		}
		return found[t]
	}
	stretches(seen.Carried, func(t carriedToken, s Stretch) {
		if s.To > from && s.From < to {
			p := of(t)
			p.Stretches = append(p.Stretches, s)
		}
	})
	for i := range seen.Evicted {
		e := &seen.Evicted[i]
		if e.TimeNs > from && e.SinceNs < to {
			p := of(carriedToken{e.By.Serial, e.By.Token, e.By.Generation})
			p.Evicted = append(p.Evicted, Evicted{
				TID: int(e.Tid), From: e.SinceNs, To: e.TimeNs, Pages: int(e.Pages), ByTID: int(e.ByTid), At: e.EvictedNs,
			})
		}
	}
	return x.list(found)
}

// list returns them with their names, the oldest first, and not more than there is room for.
func (x *pastIndex) list(found map[carriedToken]*Past) (list []Past) {
	order := slices.SortedFunc(maps.Keys(found), func(a, b carriedToken) int {
		return cmp.Or(cmp.Compare(found[b].last(), found[a].last()), cmp.Compare(a.serial, b.serial), cmp.Compare(a.token, b.token))
	})
	room := maxStretches
	for _, t := range order[:min(len(order), maxPast)] {
		p := x.of(t)
		p.Evicted, p.Stretches = found[t].Evicted, found[t].Stretches
		p.Stretches = p.Stretches[:min(len(p.Stretches), room)]
		room -= len(p.Stretches)
		if len(p.Stretches)+len(p.Evicted) > 0 {
			list = append(list, p)
		}
	}
	slices.Reverse(list)
	return list
}

// last is when it was of interest last.
func (p *Past) last() (at uint64) {
	for _, s := range p.Stretches {
		at = max(at, s.To)
	}
	for _, e := range p.Evicted {
		at = max(at, e.To)
	}
	return at
}

// now is what threads carry now, as the kernel side would tell it. Those whose ids here are
// not known are left out.
func (x *pastIndex) now(seen []abi.ActivityCarried, here func(pid int) func(inside int) int) (list []abi.ActivityCarried) {
	type thread struct {
		serial uint32
		inside int
	}
	ids := make(map[thread]uint32, len(seen))
	for i := range seen {
		ids[thread{seen[i].Serial, int(seen[i].Inside)}] = seen[i].Tid
	}
	for serial, p := range x.processes {
		idHere := here(p.PID())
		p.Read(func(m *Maps) {
			if !m.Valid() {
				return
			}
			for slot := range m.Threads {
				t := m.thread(slot)
				if t.TID <= 0 {
					continue
				}
				tid := uint32(idHere(t.TID))
				if tid == 0 { // of a child, or it has ended
					tid = ids[thread{serial, t.TID}]
				}
				if tid != 0 {
					list = append(list, t.sight(serial, tid, x.w.opts.Now()))
				}
			}
		})
	}
	return list
}

// sight is what a thread carries now, as the kernel side would tell it.
func (t *Thread) sight(serial, tid uint32, now uint64) abi.ActivityCarried {
	c := abi.ActivityCarried{TimeNs: now, SliceNs: t.SliceNS, Tid: tid, Inside: uint32(t.TID), Serial: serial, Seq: t.Seq}
	for i, h := range t.Half {
		c.Half[i] = abi.ActivityHalf{Token: h.Token, Generation: h.Generation, SinceNs: h.SinceNS}
	}
	return c
}

// of is what is known of a token of which only its number is told.
func (x *pastIndex) of(t carriedToken) Past {
	p := Past{ID: fmt.Sprintf("%d.%d.%d", t.serial, t.token, t.generation)}
	if process := x.processes[t.serial]; process != nil {
		process.Read(func(m *Maps) { p.read(m, t) })
	}
	if p.Name != "" {
		return p
	}
	if x.records == nil {
		x.records = map[string]*Record{}
		for _, r := range x.w.store.records() {
			x.records[r.ID] = r
		}
	}
	if r := x.records[p.ID]; r != nil {
		p.Name, p.Text, p.TraceID, p.SpanID = r.Name, r.Text, r.TraceID, r.SpanID
	}
	return p
}

// read takes what the token's element says, unless it has been used again.
func (p *Past) read(m *Maps, t carriedToken) {
	if !m.Valid() || t.token < m.first() || int(t.token-m.first()) >= m.Tokens {
		return
	}
	token, ok := m.token(t.token)
	if !ok || token.used() != t.generation {
		return
	}
	p.Name, p.Text = token.Name, token.Text
	if token.TraceID != [16]byte{} && token.SpanID != [8]byte{} {
		p.TraceID, p.SpanID = hex.EncodeToString(token.TraceID[:]), hex.EncodeToString(token.SpanID[:])
	}
}
