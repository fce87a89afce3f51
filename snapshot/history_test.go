package snapshot

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

func drained(cpu int, times ...uint64) Drained {
	s := CPUStream{CPU: cpu}
	for _, at := range times {
		s.Records = append(s.Records, record(cpu, at))
	}
	return Drained{CPUs: []CPUStream{s}}
}

// holed is drained with a number of records missing before it.
func holed(missing uint64, cpu int, times ...uint64) Drained {
	d := drained(cpu, times...)
	d.CPUs[0].Missing = missing
	return d
}

// and joins what one drain gives of several CPUs, or in several stretches.
func and(list ...Drained) Drained {
	var d Drained
	for _, more := range list {
		d.CPUs = append(d.CPUs, more.CPUs...)
	}
	return d
}

func times(records []trace.Record) []uint64 {
	var out []uint64
	for i := range records {
		out = append(out, records[i].Time())
	}
	return out
}

func span(from, to uint64) Gap { return Gap{FromMonoNS: from, ToMonoNS: to} }

func TestTape(t *testing.T) {
	const all = 1 << 62
	quiet := []Coverage{{CPU: 0, Records: 1}}
	for _, c := range []struct {
		name     string
		ring     int
		feed     func(*history)
		from, to uint64
		records  []uint64
		covered  []Gap
		lost     uint64
	}{
		{
			name: "nothing is missing between banks that did not wrap", ring: 100,
			feed: func(tp *history) {
				tp.add(200, drained(0, 110, 190), quiet)
				tp.add(300, drained(0, 210), quiet)
			},
			to: all, records: []uint64{110, 190, 210}, covered: []Gap{span(100, 300)},
		},
		{
			name: "a quiet CPU is covered", ring: 100,
			feed: func(tp *history) {
				tp.add(200, Drained{}, quiet)
				tp.add(300, drained(0, 250), quiet)
				tp.add(400, Drained{}, nil)
			},
			to: all, records: []uint64{250}, covered: []Gap{span(100, 400)},
		},
		{
			name: "a ring that came round leaves a gap", ring: 4,
			feed: func(tp *history) {
				tp.add(200, drained(0, 150), quiet)
				tp.add(300, holed(7, 0, 250, 260, 270, 280), quiet)
			},
			to: all, records: []uint64{150, 250, 260, 270, 280}, covered: []Gap{span(100, 200), {250, 300, 7}},
		},
		{
			name: "what came before the first record is no gap",
			feed: func(tp *history) { tp.add(200, holed(5, 0, 150, 160), quiet) },
			to:   all, records: []uint64{150, 160}, covered: []Gap{span(150, 200)},
		},
		{
			name: "stretches of one drain", ring: 100,
			feed: func(tp *history) {
				tp.add(200, and(drained(0, 110, 120), holed(3, 0, 150), holed(2, 0, 170, 180)), quiet)
				tp.add(300, drained(0, 250), quiet)
			},
			to: all, records: []uint64{110, 120, 150, 170, 180, 250}, covered: []Gap{span(100, 120), {150, 150, 3}, {170, 300, 2}},
		},
		{
			name: "missing at the end of a drain", ring: 100,
			feed: func(tp *history) {
				tp.add(200, and(drained(0, 110, 120), holed(3, 0)), quiet)
				tp.add(300, drained(0, 250), quiet)
			},
			to: all, records: []uint64{110, 120, 250}, covered: []Gap{span(100, 120), {200, 300, 3}},
		},
		{
			name: "missing at the end of the window", ring: 100,
			feed: func(tp *history) { tp.add(200, and(drained(0, 110, 120), holed(3, 0)), quiet) },
			to:   190, records: []uint64{110, 120}, covered: []Gap{span(100, 120)},
		},
		{
			name: "a bank that could not be read leaves a gap", ring: 100,
			feed: func(tp *history) {
				tp.add(200, drained(0, 150), quiet)
				tp.drainFailed(300)
				tp.add(400, drained(0, 350), quiet)
			},
			to: all, records: []uint64{150, 350}, covered: []Gap{span(100, 200), span(300, 400)},
		},
		{
			name: "the window cuts both", ring: 100,
			feed: func(tp *history) {
				tp.add(200, drained(0, 110, 190), quiet)
				tp.add(300, drained(0, 210, 290), quiet)
			},
			from: 190, to: 210, records: []uint64{190, 210}, covered: []Gap{span(190, 210)},
		},
		{
			name: "the seam is put into order", ring: 100,
			feed: func(tp *history) {
				tp.add(200, drained(0, 150, 203), quiet)
				tp.add(300, drained(0, 198, 250), quiet)
			},
			to: all, records: []uint64{150, 198, 203, 250}, covered: []Gap{span(100, 300)},
		},
		{
			name: "a freeze stamped before the last one moves nothing back", ring: 100,
			feed: func(tp *history) {
				tp.add(200, drained(0, 150), quiet)
				tp.add(180, drained(0, 205), quiet)
				tp.add(300, drained(0, 250), quiet)
			},
			to: all, records: []uint64{150, 205, 250}, covered: []Gap{span(100, 300)},
		},
		{
			name: "lost records belong to their stretch", ring: 100,
			feed: func(tp *history) {
				tp.add(200, drained(0, 150), []Coverage{{CPU: 0, Lost: 5}})
				tp.add(300, drained(0, 250), []Coverage{{CPU: 0, Lost: 8}})
			},
			from: 210, to: all, records: []uint64{250}, covered: []Gap{span(210, 300)}, lost: 3,
		},
		{
			name: "a CPU without a ring is not covered, and its losses are told of", ring: 100,
			feed: func(tp *history) {
				tp.add(200, Drained{}, nil)
				tp.add(300, Drained{}, []Coverage{{CPU: 0, Lost: 7}})
			},
			to: all, lost: 7,
		},
		{
			name: "trimming keeps the newest and says from when", ring: 100,
			feed: func(tp *history) {
				tp.add(200, drained(0, 110, 120), quiet)
				tp.add(300, drained(0, 210, 220, 230), quiet)
				tp.trim(2)
			},
			to: all, records: []uint64{220, 230}, covered: []Gap{span(220, 300)},
		},
		{
			name: "a hole is told of when only what came after the freeze is left before it", ring: 100,
			feed: func(tp *history) {
				tp.add(200, drained(0, 110, 250), quiet) // the ring is read while it is written
				later := drained(0, 310)
				later.CPUs[0].Missing = 5
				tp.add(400, later, quiet)
				tp.trim(2)
			},
			to: all, records: []uint64{250, 310}, covered: []Gap{span(250, 250), {FromMonoNS: 310, ToMonoNS: 400, Missing: 5}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tp := newHistory(c.ring, 100)
			c.feed(tp)
			got := tp.slice(0, c.from, c.to)
			assert.Check(t, is.DeepEqual(c.records, times(got.records())), "records")
			assert.Check(t, is.DeepEqual(c.covered, got.covered), "covered")
			assert.Check(t, is.Equal(got.lost, c.lost), "lost")
		})
	}
}

func TestTapeIsBounded(t *testing.T) {
	tp := newHistory(1000, 0)
	for i := range uint64(10_000) {
		tp.add((i+1)*100, drained(0, i*100+50), []Coverage{{CPU: 1, Records: 1}})
		tp.trim(500)
	}
	for cpu, ct := range tp.cpus {
		assert.Check(t, len(ct.chunks) <= maxChunks && ct.records <= 500,
			"CPU %d: %d chunks, %d records", cpu, len(ct.chunks), ct.records)
	}
	busy := tp.slice(0, 0, 1<<62)
	assert.Check(t, len(busy.records()) == 500 && len(busy.covered) == 1 && busy.covered[0].ToMonoNS == 1_000_000,
		"%d records, covered %v", len(busy.records()), busy.covered)
	quiet := tp.slice(1, 0, 1<<62).covered
	assert.Check(t, len(quiet) == 1 && quiet[0] == span(0, 1_000_000), "quiet CPU: covered %v", quiet)
}

// TestTapeFreesWhatIsOld: neither what has been trimmed nor what chunks were joined from stays in
// memory.
func TestTapeFreesWhatIsOld(t *testing.T) {
	const limit, each = 16384, 64
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	tp := newHistory(limit, 0)
	before := heap()
	for i := range uint64(1000) {
		d := Drained{CPUs: []CPUStream{{}}}
		for j := range uint64(each) {
			d.CPUs[0].Records = append(d.CPUs[0].Records, record(0, i*100+j))
		}
		tp.add((i+1)*100, d, nil)
		tp.trim(limit)
	}
	used, records := heap()-before, tp.cpus[0].records
	assert.Check(t, is.Equal(records, limit))
	assert.Check(t, used < 2*limit*trace.RecordSize, "%d bytes for %d records of %d", used, records, trace.RecordSize)
	runtime.KeepAlive(tp)
}

// TestOpenRecords: three rings of a small machine, and not three of each of many CPUs.
func TestOpenRecords(t *testing.T) {
	const ring = 2 << 20 / trace.RecordSize
	assert.Equal(t, openRecords(ring, 0), 3*ring)
	assert.Equal(t, openRecords(ring, 2), 3*ring)
	assert.Equal(t, openRecords(ring, 32), 2*ring)
	assert.Equal(t, openRecords(ring, 512), ring)
}

// A hole that takes no time is a hole: what is missing stays told of.
func TestTapeJoinsNothingAcrossAHole(t *testing.T) {
	tp := newHistory(1000, 0)
	for i := range uint64(2 * maxChunks) {
		d := drained(0, i*100+150) // past the freeze
		if i == maxChunks/2 {
			d.CPUs = append(d.CPUs, CPUStream{CPU: 0, Missing: 7})
		}
		tp.add((i+1)*100, d, nil)
		tp.trim(1000)
	}
	got := tp.slice(0, 0, 1<<62)
	var missing uint64
	for _, g := range got.covered {
		missing += g.Missing
	}
	hole := uint64(maxChunks/2*100 + 150)
	if missing != 7 && got.records()[0].Time() <= hole {
		t.Errorf("%d are told of as missing, and there are records from %d on: want 7, or none up to %d", missing, got.records()[0].Time(), hole)
	}
}

func TestTapeExpires(t *testing.T) {
	tp := newHistory(10, 0)
	d := drained(0, 50)
	d.CPUs = append(d.CPUs, drained(1, 60).CPUs...)
	tp.add(100, d, []Coverage{{CPU: 0, Records: 500}, {CPU: 1, Records: 700}, {CPU: 2}})
	tp.expire([]Coverage{{CPU: 0, Records: 509}, {CPU: 1, Records: 710}})
	assert.Check(t, len(recordsOf(tp, 0, 0, 1000)) == 1, "forgot what the ring still joins up with")
	got := tp.slice(1, 0, 1000)
	assert.Check(t, len(got.records()) == 0 && len(got.covered) == 0, "kept %+v", got)
	if got := tp.cpuNumbers(); len(got) != 2 {
		t.Errorf("CPUs %v: one that never wrote is no CPU", got)
	}
}

func TestCoverage(t *testing.T) {
	a := request{from: 500, asked: true, to: 2000, outliers: []events.Outlier{*outlierAt("r", 1000, 1500)}}
	clock := Clock{WallMinusMono: time.Hour}
	for _, c := range []struct {
		name          string
		stretches     []Gap
		before, after bool
		from, to      uint64
		gaps          int
		note          string
	}{
		{"all", []Gap{span(500, 2000)}, true, true, 500, 2000, 0, ""},
		{"late", []Gap{span(1200, 2000)}, false, true, 1200, 2000, 0, "does not reach the entry of the outlier of victim[11]"},
		{"hole before the entry", []Gap{span(500, 600), span(900, 2000)}, true, true, 900, 2000, 1, "records are missing in the window on CPU 3"},
		{"hole in the delay", []Gap{span(500, 1100), span(1200, 2000)}, false, true, 1200, 2000, 1, "begins up to 200ns after it"},
		{"cut off", []Gap{span(500, 1700)}, true, false, 500, 1700, 0, "the window after the exit is incomplete on CPU 3"},
		{"short before", []Gap{span(800, 2000)}, true, true, 800, 2000, 0, "less than snapshot.before asks for on CPU 3"},
		{"begun after the exit", []Gap{span(1600, 2000)}, false, false, 1600, 2000, 0, "begins up to 600ns after it"},
		{"nothing", nil, false, false, 1500, 1500, 0, "does not reach the entry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := a.coverage(3, c.stretches, clock)
			assert.Check(t, got.CompleteBefore == c.before && got.CompleteAfter == c.after &&
				got.FromMonoNS == c.from && got.ToMonoNS == c.to && len(got.Gaps) == c.gaps, "got %+v", got)
			notes := strings.Join(a.notes([]CPUCoverage{got}), "\n")
			assert.Check(t, (c.note != "" || notes == "") && strings.Contains(notes, c.note), "notes:\n%s", notes)
		})
	}
}

func TestCPUList(t *testing.T) {
	for want, cpus := range map[string][]int{
		"CPU 3": {3}, "CPUs 0-2,5": {0, 1, 2, 5}, "all CPUs": {0, 1, 2, 3, 4, 5, 6, 7},
	} {
		assert.Check(t, is.Equal(cpuList(cpus, 8), want))
	}
}

// All that there is begins after the last hole before the entry: what is older
// joins up with nothing.
func TestUnbroken(t *testing.T) {
	stretches := []Gap{span(100, 200), span(300, 400), span(500, 900)}
	at := func(start uint64) []events.Outlier {
		return []events.Outlier{{StartMono: start, EndMono: start + 10}}
	}
	for _, tc := range []struct {
		what string
		a    request
		want uint64
	}{
		{"entry in the last stretch", request{to: 900, outliers: at(600)}, 500},
		{"entry in the middle", request{to: 900, outliers: at(350)}, 300},
		{"entry in a hole: from the stretch before it", request{to: 900, outliers: at(450)}, 300},
		{"entry before all", request{to: 900, outliers: at(50)}, 0},
		{"two entries: the first counts", request{to: 900, outliers: append(at(600), at(320)...)}, 300},
		{"by hand", request{to: 900}, 500},
		{"a window was asked for", request{from: 150, asked: true, to: 900, outliers: at(600)}, 0},
	} {
		assert.Check(t, is.Equal(tc.a.contiguousFrom(stretches), tc.want), "%s: from", tc.what)
	}
}

// A CPU that writes its first record late was quiet before, not uncovered.
func TestQuietAtFirst(t *testing.T) {
	tp := newHistory(100, 1000)
	cov := func(second uint64) []Coverage { return []Coverage{{CPU: 0, Records: 1}, {CPU: 1, Records: second}} }
	tp.add(2000, drained(0, 1500), cov(0))
	got := tp.cpuNumbers()
	assert.Assert(t, len(got) == 1, "CPUs %v: one that never wrote may not even exist", got)
	tp.add(3000, drained(1, 2500), cov(1))
	covered := tp.slice(1, 0, 3000).covered
	want := []Gap{{FromMonoNS: 1000, ToMonoNS: 3000}}
	assert.Check(t, cmp.Equal(want, covered), "covered %v, want %v", covered, want)
}

// Interrupts are recorded at their end: of one that ends after the window, the entry is in it;
// one that began before the history seems to begin with it.
func TestRunsAcrossTheWindow(t *testing.T) {
	run := func(start, end uint64) trace.Record {
		r := trace.MakeRecord(trace.Type(abi.RecIrq), 0, 7, end)
		binary.LittleEndian.PutUint64(r[abi.OffIrqStartNs:], start)
		return r
	}
	tp := newHistory(100, 100)
	d := drained(0, 300, 320)
	d.CPUs[0].Records = append(d.CPUs[0].Records, run(50, 110), run(310, 340), run(350, 360))
	tp.add(400, d, []Coverage{{CPU: 0, Records: 5}})
	for _, c := range []struct {
		from, to uint64
		want     []uint64
	}{
		{0, 1 << 62, []uint64{100, 110, 300, 310, 320, 340, 350, 360}},
		{105, 320, []uint64{105, 110, 300, 310, 320}},
		{301, 309, nil},
		{301, 310, []uint64{310}},
	} {
		assert.Check(t, is.DeepEqual(c.want, times(recordsOf(tp, 0, c.from, c.to))), "from %d to %d", c.from, c.to)
	}
}

func recordsOf(t *history, cpu int, from, to uint64) []trace.Record {
	s := t.slice(cpu, from, to)
	return s.records()
}
