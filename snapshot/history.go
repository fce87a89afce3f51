package snapshot

import (
	"cmp"
	"slices"
	"sort"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// history keeps what was drained, so that a snapshot soon after another one still
// has its history. It belongs to the goroutine of Manager.Run.
//
// Each drain adds a chunk for each stream of a CPU. Together a drain's chunks
// stand for the time between the freeze before and its own; they tell where
// nothing is missing.
type history struct {
	ring    int // records that the ring of a CPU holds; 0: not known
	start   uint64
	frozen  uint64 // the last freeze, at first the start
	cpus    map[int]*cpuHistory
	lost    map[int]uint64 // Coverage.Lost at the last drain
	written map[int]uint64 // Coverage.Records at the last drain
}

type cpuHistory struct {
	chunks  []chunk
	records int
}

// chunk is one CPU's part of one drain.
type chunk struct {
	// Nothing is missing in [from, to]. What was before from, up to the chunk
	// before, was overwritten.
	from, to uint64
	records  []trace.Record
	missing  uint64 // overwritten before from
	lost     uint64 // refused by the ring meanwhile
}

func newHistory(ring int, now uint64) *history {
	return &history{ring: ring, start: now, frozen: now, cpus: map[int]*cpuHistory{}, lost: map[int]uint64{}, written: map[int]uint64{}}
}

// add takes over the records of one drain of what was frozen at the given time.
func (t *history) add(frozen uint64, d Drained, cov []Coverage) {
	// The kernel stamps a freeze with the clock that its program read at its
	// beginning; a manual one may have come in between.
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
		// Quiet, yet covered; unless it never wrote: it may not even exist.
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
			// Its first records: it was quiet, yet covered, through all drains before.
			from = t.start
		}
		if n := len(ct.chunks); n > 0 {
			from = max(from, ct.chunks[n-1].to)
		}
		for i, s := range list {
			sortRecords(s.Records)
			c := chunk{from: from, records: s.Records, missing: s.Missing}
			// A ring that is read while it is written may hold but what came after the freeze.
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
				c.from = c.to // it has no ring: nobody can vouch for anything
			}
			from = c.to
			ct.chunks = append(ct.chunks, c)
			ct.records += len(s.Records)
		}
	}
	t.frozen = frozen
}

// drainFailed notes that the recorder could not be read: that time stays uncovered.
func (t *history) drainFailed(frozen uint64) {
	t.frozen = max(frozen, t.frozen)
}

// trim drops the oldest records past limit per CPU.
func (t *history) trim(limit int) {
	for _, ct := range t.cpus {
		for len(ct.chunks) > 1 && ct.records-len(ct.chunks[0].records) >= limit {
			ct.records -= len(ct.chunks[0].records)
			ct.chunks[0] = chunk{}
			ct.chunks = ct.chunks[1:]
		}
		if over := ct.records - limit; over > 0 && len(ct.chunks) > 0 {
			c := &ct.chunks[0]
			// A copy: a shorter slice would hold on to all the memory.
			c.records = slices.Clone(c.records[over:])
			ct.records -= over
			if len(c.records) > 0 {
				c.from = max(c.from, c.records[0].Time())
				c.to = max(c.to, c.from) // what is left may be of after the freeze
			} else {
				c.from = c.to
			}
		}
		ct.mergeChunks()
	}
}

// expire forgets what no snapshot can join up with any more: the ring has been
// overwritten as a whole since the last drain. It gives the memory back
// between snapshots that are far apart.
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

// maxChunks bounds how many chunks a quiet CPU collects.
const maxChunks = 64

// mergeChunks joins the oldest chunks where nothing is missing between them.
func (ct *cpuHistory) mergeChunks() {
	for len(ct.chunks) > maxChunks {
		a, b := ct.chunks[0], ct.chunks[1]
		if a.to < b.from || b.missing > 0 { // a hole between them: forget what is older
			ct.records -= len(a.records)
			ct.chunks = ct.chunks[1:]
			continue
		}
		joined := slices.Concat(a.records, b.records)
		sortRecords(joined)
		ct.chunks[1] = chunk{from: a.from, to: b.to, records: joined, missing: a.missing, lost: a.lost + b.lost}
		ct.chunks = ct.chunks[1:]
	}
}

// slice is what the tape holds of one CPU within a window.
type slice struct {
	records []trace.Record
	covered []Gap // stretches of which nothing is missing; Missing: before each but the first
	lost    uint64
}

// slice returns one CPU's part within [from, to], oldest first.
func (t *history) slice(cpu int, from, to uint64) slice {
	out := t.coverage(cpu, from, to)
	ct := t.cpus[cpu]
	if ct == nil {
		return out
	}
	var parts [][]trace.Record
	for _, c := range ct.chunks {
		// Records may carry times a little past the freeze: a program reads the
		// clock before it writes.
		first := sort.Search(len(c.records), func(i int) bool { return c.records[i].Time() >= from })
		end := sort.Search(len(c.records), func(i int) bool { return c.records[i].Time() > to })
		parts = append(parts, c.records[first:max(first, end)])
	}
	out.records = slices.Concat(parts...)
	sortRecords(out.records)
	return out
}

// coverage is cut without the records: a copy of them all takes its time.
func (t *history) coverage(cpu int, from, to uint64) slice {
	var out slice
	ct := t.cpus[cpu]
	if ct == nil {
		return out
	}
	var missing uint64
	before := uint64(0) // end of the chunk before
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
			missing = 0 // that is before what it holds
		}
		out.covered = append(out.covered, Gap{FromMonoNS: lo, ToMonoNS: hi, Missing: missing})
		missing = 0
	}
	return out
}

// cpuNumbers returns the CPUs in order.
func (t *history) cpuNumbers() []int {
	var out []int
	for cpu := range t.cpus {
		out = append(out, cpu)
	}
	slices.Sort(out)
	return out
}

// sortRecords orders by time, keeping the order of equal ones. Streams come
// sorted; only the seams between two drains may not be.
func sortRecords(r []trace.Record) {
	byTime := func(a, b trace.Record) int { return cmp.Compare(a.Time(), b.Time()) }
	if !slices.IsSortedFunc(r, byTime) {
		slices.SortStableFunc(r, byTime)
	}
}
