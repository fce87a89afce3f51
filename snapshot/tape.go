package snapshot

import (
	"cmp"
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// tape keeps what was drained, so that a snapshot soon after another one still
// has its history. It belongs to the goroutine of Manager.Run.
//
// Each drain adds one chunk a CPU. A chunk stands for the time between the
// freeze before and its own; together they tell where nothing is missing.
type tape struct {
	bank    int // records that one bank holds per CPU; 0: not known
	start   uint64
	frozen  uint64 // the last freeze, at first the start
	cpus    map[int]*cpuTape
	lost    map[int]uint64 // Coverage.Lost at the last drain
	written map[int]uint64 // Coverage.Records at the last drain
}

type cpuTape struct {
	chunks  []chunk
	records int
}

// chunk is one CPU's part of one drain.
type chunk struct {
	// Nothing is missing in [from, to]. What was before from, up to the chunk
	// before, was overwritten.
	from, to uint64
	records  []trace.Record
	lost     uint64 // refused by the ring meanwhile
}

func newTape(bank int, now uint64) *tape {
	return &tape{bank: bank, start: now, frozen: now, cpus: map[int]*cpuTape{}, lost: map[int]uint64{}, written: map[int]uint64{}}
}

// add takes over the records of one drain of a bank that was frozen at the
// given time.
func (t *tape) add(frozen uint64, d Drained, cov []Coverage) {
	// The kernel stamps a freeze with the clock that its program read at its
	// beginning; a manual switch may have come in between.
	frozen = max(frozen, t.frozen)
	prev := t.frozen

	streams := make(map[int][]trace.Record, len(d.CPUs))
	for _, s := range d.CPUs {
		if have := streams[s.CPU]; have != nil {
			streams[s.CPU] = append(have, s.Records...)
			continue
		}
		streams[s.CPU] = s.Records
	}
	lost := make(map[int]uint64, len(cov))
	for _, c := range cov {
		if last := t.lost[c.CPU]; c.Lost > last {
			lost[c.CPU] = c.Lost - last
		}
		t.lost[c.CPU] = c.Lost
		t.written[c.CPU] = c.Records
		// Quiet, yet covered; unless it never wrote: it may not even exist.
		if _, ok := streams[c.CPU]; !ok && c.Records > 0 {
			streams[c.CPU] = nil
		}
	}
	for cpu := range t.cpus {
		if _, ok := streams[cpu]; !ok {
			streams[cpu] = nil
		}
	}
	for cpu, records := range streams {
		sortRecords(records)
		ct := t.cpus[cpu]
		c := chunk{from: prev, to: frozen, records: records, lost: lost[cpu]}
		if ct == nil {
			ct = &cpuTape{}
			t.cpus[cpu] = ct
			// Its first records: it was quiet, yet covered, through all drains before.
			c.from = t.start
		}
		if t.wrapped(len(records)) {
			c.from = min(max(records[0].Time(), prev), frozen)
		}
		ct.chunks = append(ct.chunks, c)
		ct.records += len(records)
	}
	t.frozen = frozen
}

// missed notes a bank that could not be read: its time stays uncovered.
func (t *tape) missed(frozen uint64) {
	t.frozen = max(frozen, t.frozen)
}

// wrapped tells whether a bank with that many records may have overwritten
// older ones. It errs on the side of saying so.
func (t *tape) wrapped(records int) bool {
	if records == 0 {
		return false
	}
	return t.bank == 0 || records >= t.bank-t.bank/64-2
}

// trim drops the oldest records past limit per CPU.
func (t *tape) trim(limit int) {
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
			} else {
				c.from = c.to
			}
		}
		ct.merge()
	}
}

// expire forgets what no snapshot can join up with any more: the live bank has
// been overwritten as a whole since the last drain. It gives the memory back
// between snapshots that are far apart.
func (t *tape) expire(cov []Coverage) {
	if t.bank == 0 {
		return
	}
	for _, c := range cov {
		ct := t.cpus[c.CPU]
		if ct != nil && c.Records > t.written[c.CPU] && c.Records-t.written[c.CPU] >= uint64(t.bank) {
			*ct = cpuTape{}
		}
	}
}

// maxChunks bounds how many chunks a quiet CPU collects.
const maxChunks = 64

// merge joins the oldest chunks where nothing is missing between them.
func (ct *cpuTape) merge() {
	for len(ct.chunks) > maxChunks {
		a, b := ct.chunks[0], ct.chunks[1]
		if a.to < b.from { // a hole between them: forget what is older
			ct.records -= len(a.records)
			ct.chunks = ct.chunks[1:]
			continue
		}
		joined := slices.Concat(a.records, b.records)
		sortRecords(joined)
		ct.chunks[1] = chunk{from: a.from, to: b.to, records: joined, lost: a.lost + b.lost}
		ct.chunks = ct.chunks[1:]
	}
}

// cut returns one CPU's records and the stretches that are covered, within
// [from, to], both oldest first.
func (t *tape) cut(cpu int, from, to uint64) (records []trace.Record, covered []Gap, lost uint64) {
	ct := t.cpus[cpu]
	if ct == nil {
		return nil, nil, 0
	}
	for _, c := range ct.chunks {
		// Records may carry times a little past the freeze: a program reads the
		// clock before it writes.
		for i := range c.records {
			if at := c.records[i].Time(); at >= from && at <= to {
				records = append(records, c.records[i])
			}
		}
		lo, hi := max(c.from, from), min(c.to, to)
		if lo >= hi {
			continue
		}
		lost += c.lost
		if n := len(covered); n > 0 && covered[n-1].ToMonoNS >= lo {
			covered[n-1].ToMonoNS = max(hi, covered[n-1].ToMonoNS)
			continue
		}
		covered = append(covered, Gap{FromMonoNS: lo, ToMonoNS: hi})
	}
	sortRecords(records)
	return records, covered, lost
}

// list returns the CPUs in order.
func (t *tape) list() []int {
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
