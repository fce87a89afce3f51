package snapshot

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// history holds the records drained so far, so that a snapshot taken soon after another
// one still has its past. It is used only by the goroutine of Manager.Run.
//
// Each drain adds one chunk per stream and CPU. The chunks of a drain cover the time
// from the previous freeze to its own.
type history struct {
	ring    int // capacity of one CPU's ring in records; 0: unknown
	start   uint64
	frozen  uint64 // last freeze, initially start
	cpus    map[int]*cpuHistory
	lost    map[int]uint64 // Coverage.Lost at the last drain
	written map[int]uint64 // Coverage.Records at the last drain
}

type cpuHistory struct {
	chunks  []chunk
	records int
}

// chunk holds the records of one CPU from one drain.
type chunk struct {
	// The records of [from, to] are complete. Those between the previous chunk and from
	// were overwritten.
	from, to uint64
	records  []trace.Record
	gone     int    // records that their array held before these
	missing  uint64 // records overwritten before from
	lost     uint64 // records the ring refused meanwhile
}

func newHistory(ring int, now uint64) *history {
	return &history{ring: ring, start: now, frozen: now, cpus: map[int]*cpuHistory{}, lost: map[int]uint64{}, written: map[int]uint64{}}
}

// add appends the records of one drain, complete up to frozen.
func (t *history) add(frozen uint64, d Drained, cov []Coverage) {
	// A freeze by the kernel carries the time read at the start of its program, so a
	// manual freeze may have come in between.
	frozen = max(frozen, t.frozen)
	prev := t.frozen

	streams := make(map[int][]CPUStream, len(d.CPUs))
	for _, s := range d.CPUs {
		streams[s.CPU] = append(streams[s.CPU], s)
	}
	lost := make(map[int]uint64, len(cov))
	for _, c := range cov {
		if last := t.lost[c.CPU]; c.Lost > last {
			lost[c.CPU] = c.Lost - last
		}
		t.lost[c.CPU] = c.Lost
		t.written[c.CPU] = c.Records
		// A quiet CPU is covered too, unless it never wrote: then it may not exist.
		if len(streams[c.CPU]) == 0 && c.Records+c.Lost > 0 {
			streams[c.CPU] = []CPUStream{{CPU: c.CPU}}
		}
	}
	for cpu := range t.cpus {
		if len(streams[cpu]) == 0 {
			streams[cpu] = []CPUStream{{CPU: cpu}}
		}
	}
	for cpu, list := range streams {
		ct, from := t.cpus[cpu], prev
		if ct == nil {
			ct = &cpuHistory{}
			t.cpus[cpu] = ct
			// First records of this CPU: it was covered by all earlier drains.
			from = t.start
		}
		if n := len(ct.chunks); n > 0 {
			from = max(from, ct.chunks[n-1].to)
		}
		for i, s := range list {
			sortRecords(s.Records)
			c := chunk{from: from, records: s.Records, missing: s.Missing}
			// A ring that is read while being written may hold only records after the
			// freeze.
			first, last := frozen, from
			if n := len(s.Records); n > 0 {
				first, last = s.Records[0].Time(), s.Records[n-1].Time()
			}
			if s.Missing > 0 {
				c.from = max(from, first)
			}
			c.to = max(c.from, last)
			if i == len(list)-1 {
				c.to = max(c.from, frozen)
			}
			if i == 0 {
				c.lost = lost[cpu]
			}
			if c.lost > 0 && ct.records+len(s.Records) == 0 {
				c.from = c.to // the CPU has no ring: nothing is covered
			}
			from = c.to
			ct.chunks = append(ct.chunks, c)
			ct.records += len(s.Records)
		}
	}
	t.frozen = frozen
}

// drainFailed records that a drain failed: the time up to frozen stays uncovered.
func (t *history) drainFailed(frozen uint64) {
	t.frozen = max(frozen, t.frozen)
}

// trim drops the oldest records of each CPU beyond limit.
func (t *history) trim(limit int) {
	for _, ct := range t.cpus {
		for len(ct.chunks) > 1 && ct.records-len(ct.chunks[0].records) >= limit {
			ct.records -= len(ct.chunks[0].records)
			ct.chunks = slices.Delete(ct.chunks, 0, 1) // not a subslice, which would keep the records alive
		}
		if over := ct.records - limit; over > 0 && len(ct.chunks) > 0 {
			c := &ct.chunks[0]
			c.records = c.records[over:]
			ct.records -= over
			// A subslice keeps the whole array alive, and a copy at each drain costs more than the drain.
			if c.gone += over; c.gone > len(c.records) {
				c.records, c.gone = slices.Clone(c.records), 0
			}
			if len(c.records) > 0 {
				c.from = max(c.from, c.records[0].Time())
				c.to = max(c.to, c.from) // the remaining records may be newer than the freeze
			} else {
				c.from = c.to
			}
		}
		ct.mergeChunks()
	}
}

// expire drops the history of each CPU whose ring was overwritten completely since the
// last drain: no snapshot can connect to it. This frees memory between snapshots that
// are far apart.
func (t *history) expire(cov []Coverage) {
	if t.ring == 0 {
		return
	}
	for _, c := range cov {
		ct := t.cpus[c.CPU]
		if ct != nil && c.Records > t.written[c.CPU] && c.Records-t.written[c.CPU] >= uint64(t.ring) {
			*ct = cpuHistory{}
		}
	}
}

// maxChunks bounds the chunks of one CPU.
const maxChunks = 64

// mergeChunks joins neighbours, the smallest first, as what is joined is copied. Those between
// which records are missing stay apart: where there are only such, the oldest one goes.
func (ct *cpuHistory) mergeChunks() {
	for len(ct.chunks) > maxChunks {
		at, least := 0, math.MaxInt
		for i := range ct.chunks[1:] {
			a, b := &ct.chunks[i], &ct.chunks[i+1]
			if n := len(a.records) + len(b.records); n < least && a.to >= b.from && b.missing == 0 {
				at, least = i, n
			}
		}
		if least == math.MaxInt {
			ct.records -= len(ct.chunks[0].records)
			ct.chunks = slices.Delete(ct.chunks, 0, 1)
			continue
		}
		a, b := &ct.chunks[at], &ct.chunks[at+1]
		joined := slices.Concat(a.records, b.records)
		sortRecords(joined)
		*a = chunk{from: a.from, to: b.to, records: joined, missing: a.missing, lost: a.lost + b.lost}
		ct.chunks = slices.Delete(ct.chunks, at+1, at+2)
	}
}

// slice is the history of one CPU within a window. It shares the history's records, which do
// not change: many slices cost no more than the history does.
type slice struct {
	cpu      int
	from, to uint64
	parts    [][]trace.Record
	covered  []Gap // complete intervals; Missing counts records lost before each one but the first
	lost     uint64
}

// slice returns the records and coverage of a CPU within [from, to].
func (t *history) slice(cpu int, from, to uint64) slice {
	out := t.coverage(cpu, from, to)
	ct := t.cpus[cpu]
	if ct == nil {
		return out
	}
	for _, c := range ct.chunks {
		// Records may be slightly newer than the freeze: a program reads the clock
		// before it writes.
		first := sort.Search(len(c.records), func(i int) bool { return c.records[i].Time() >= from })
		end := sort.Search(len(c.records), func(i int) bool { return c.records[i].Time() > to })
		if first < end {
			out.parts = append(out.parts, c.records[first:end:end])
		}
		for i := end; i < len(c.records) && c.records[i].Time()-to <= longestRun; i++ {
			if c.records[i].Begin() <= to {
				out.parts = append(out.parts, c.records[i:i+1:i+1])
			}
		}
	}
	return out
}

// records returns the records of a slice, oldest first: of each interrupt and softirq its
// entry and its exit, which may be later.
func (s *slice) records() []trace.Record {
	var list []trace.Record
	if len(s.parts) == 1 {
		list = s.parts[0]
	} else {
		list = slices.Concat(s.parts...)
		sortRecords(list)
	}
	from := s.from
	if len(s.covered) > 0 {
		from = max(from, s.covered[0].FromMonoNS)
	}
	list = trace.Unfold(list, from)
	end := sort.Search(len(list), func(i int) bool { return list[i].Time() > s.to })
	return list[:end] // without the exits of runs that go on after it
}

// longestRun bounds how long after a window interrupts and softirqs are searched for that
// began within it: they are recorded when they end.
const longestRun = uint64(time.Second)

// coverage is slice without the records.
func (t *history) coverage(cpu int, from, to uint64) slice {
	out := slice{cpu: cpu, from: from, to: to}
	ct := t.cpus[cpu]
	if ct == nil {
		return out
	}
	var missing uint64
	before := uint64(0) // end of the previous chunk
	for _, c := range ct.chunks {
		if c.from > from && before < to {
			missing += c.missing
		}
		if c.to > from && before < to {
			out.lost += c.lost
		}
		before = c.to
		lo, hi := max(c.from, from), min(c.to, to)
		if lo >= hi && (lo > hi || len(c.records) == 0) {
			continue
		}
		if n := len(out.covered); n > 0 && out.covered[n-1].ToMonoNS >= lo && missing == 0 {
			out.covered[n-1].ToMonoNS = max(hi, out.covered[n-1].ToMonoNS)
			continue
		} else if n == 0 {
			missing = 0 // lost before the first interval
		}
		out.covered = append(out.covered, Gap{FromMonoNS: lo, ToMonoNS: hi, Missing: missing})
		missing = 0
	}
	return out
}

// cpuNumbers returns the CPUs in ascending order.
func (t *history) cpuNumbers() []int {
	var out []int
	for cpu := range t.cpus {
		out = append(out, cpu)
	}
	slices.Sort(out)
	return out
}

// sortRecords sorts by time, stably. Each stream is sorted, but two drains may overlap.
func sortRecords(r []trace.Record) {
	byTime := func(a, b trace.Record) int { return cmp.Compare(a.Time(), b.Time()) }
	if !slices.IsSortedFunc(r, byTime) {
		slices.SortStableFunc(r, byTime)
	}
}
