package flight

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/tracker"
)

func at(n uint64) []tracker.CPUCounters {
	return []tracker.CPUCounters{{CPU: 0, Recorded: n}}
}

// A ring of 1000 records, 500 written a second: it reaches back two seconds.
func TestCoverage(t *testing.T) {
	c := newCoverage(64_000, 64, 0)
	start := c.start
	second := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

	got := c.report(second(1), at(400))[0].CoveredNS
	assert.Check(t, got == second(1).Sub(start).Nanoseconds(),
		"nothing is overwritten yet: covers %d ns, want all since the start", got)
	for i := range 20 {
		c.sample(second(float64(i+1)), at(uint64(500*(i+1))))
	}
	for _, tc := range []struct {
		now     float64
		written uint64
		want    time.Duration
	}{
		{20, 10000, 2 * time.Second},
		{20.5, 10250, 2 * time.Second},
		{21, 13000, 21*time.Second - 20*time.Second - 2*time.Second/3}, // a burst since the last sample
	} {
		got := c.report(second(tc.now), at(tc.written))[0]
		d := time.Duration(got.CoveredNS) - tc.want
		assert.Check(t, d >= -time.Millisecond && d <= time.Millisecond,
			"at %vs, %d written: covers %v, want %v", tc.now, tc.written, time.Duration(got.CoveredNS), tc.want)
		if got.EventsPerSecond != 500 || got.BytesPerEvent != 64 || got.CoversAtRateNS != 2e9 {
			t.Errorf("%v events a second of %d bytes cover %d ns, want 500 of 64 that cover 2s", got.EventsPerSecond, got.BytesPerEvent, got.CoversAtRateNS)
		}
	}
}

// Without samples in reach the oldest sample is as far as we can vouch for.
func TestCoverageBeyondTheHorizon(t *testing.T) {
	c := newCoverage(64_000, 64, 0)
	for i := range horizon + 50 {
		c.sample(c.start.Add(time.Duration(i)*time.Second), at(2000))
	}
	assert.Assert(t, len(c.samples) == horizon, "%d samples kept, want %d", len(c.samples), horizon)
	got := c.report(c.start.Add((horizon+50)*time.Second), at(2000))[0]
	want := horizon * time.Second
	assert.Check(t, time.Duration(got.CoveredNS) == want, "covers %v, want %v", time.Duration(got.CoveredNS), want)
}

// TestCoverageOfShortRecords: they take less of a perf ring, and two a place of plain
// memory, so that both hold more of them, and say so.
func TestCoverageOfShortRecords(t *testing.T) {
	for _, tt := range []struct {
		name   string
		c      *coverage
		second tracker.CPUCounters // what a CPU writes in a second
		events float64
		bytes  int
		covers time.Duration
	}{
		{"perf, all whole", newCoverage(80_000, perfRecord, perfShort), tracker.CPUCounters{Recorded: 500}, 500, 80, 2 * time.Second},
		{"perf, all short", newCoverage(96_000, perfRecord, perfShort), tracker.CPUCounters{Recorded: 500, Short: 500}, 500, 48, 4 * time.Second},
		{"perf, half", newCoverage(64_000, perfRecord, perfShort), tracker.CPUCounters{Recorded: 500, Short: 250}, 500, 64, 2 * time.Second},
		{"mmap, pairs", newCoverage(64_000, 64, 0), tracker.CPUCounters{Recorded: 500, Paired: 500}, 1000, 32, 2 * time.Second},
	} {
		after := func(seconds uint64) []tracker.CPUCounters {
			k := tt.second
			return []tracker.CPUCounters{{Recorded: k.Recorded * seconds, Paired: k.Paired * seconds, Short: k.Short * seconds}}
		}
		for i := range uint64(20) {
			tt.c.sample(tt.c.start.Add(time.Duration(i+1)*time.Second), after(i+1))
		}
		got := tt.c.report(tt.c.start.Add(20*time.Second), after(20))[0]
		off := time.Duration(got.CoveredNS) - tt.covers
		assert.Check(t, off >= -time.Millisecond && off <= time.Millisecond, "%s: covers %v, want %v", tt.name, time.Duration(got.CoveredNS), tt.covers)
		assert.Check(t, got.EventsPerSecond == tt.events && got.BytesPerEvent == tt.bytes && got.CoversAtRateNS == tt.covers.Nanoseconds(),
			"%s: %+v", tt.name, got)
		assert.Check(t, float64(got.BytesWritten) == 20*tt.events*float64(tt.bytes), "%s: %+v", tt.name, got)
	}
}
