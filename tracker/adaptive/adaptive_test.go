package adaptive

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// shiftFirings is what a shift of all delays may fire at most, however large
// and sudden it is: 64 at once and 32 a second (bpf/lib/limit.h) until the daemon
// has read twice.
const shiftFirings = 128

// burst is bpf/lib/limit.h, for one CPU.
type burst struct{ full, level, held int64 }

func (b *burst) allows(now, delay int64) bool {
	const size, each = 32, int64(time.Second) / 32
	if b.full <= now {
		b.level = delay
	}
	room := size * each
	if delay/2 >= b.level {
		room *= 2
	}
	b.level += delay/16 - b.level/16
	next := max(b.full, now) + each
	if next > now+room {
		b.held++
		return false
	}
	b.full = next
	return true
}

// stream is a simulated load: delays around a median that changes with time,
// log-normally spread, and outliers among them.
type stream struct {
	name    string
	seconds int
	rate    int                     // a second
	sigma   float64                 // of the logarithm
	median  func(s float64) float64 // in ms, at second s
	planted float64                 // an outlier is so many times the median
	every   int                     // one each so many delays
	shifts  int                     // that may fire
}

func streams() []stream {
	return []stream{
		{"steady", 600, 1000, 0.3, func(float64) float64 { return 1 }, 20, 3000, 0},
		{"steady, wide", 600, 2000, 0.8, func(float64) float64 { return 1 }, 200, 10000, 0},
		{"steady, few", 900, 50, 0.3, func(float64) float64 { return 2 }, 20, 1500, 0},
		{"drift", 900, 1000, 0.3, func(s float64) float64 { return 1 + s/100 }, 20, 3000, 0},
		{"fast drift", 300, 1000, 0.2, func(s float64) float64 { return math.Exp(s / 60) }, 20, 3000, 0},
		{"step", 600, 1000, 0.2, func(s float64) float64 {
			switch {
			case s < 200:
				return 1
			case s < 400:
				return 3
			}
			return 6
		}, 20, 3000, 2},
		{"step, few", 900, 50, 0.2, func(s float64) float64 {
			if s < 450 {
				return 1
			}
			return 4
		}, 20, 1500, 1},
		{"large step", 400, 5000, 0.2, func(s float64) float64 {
			if s < 200 {
				return 1
			}
			return 100
		}, 20, 9000, 1},
		{"step down and up again", 600, 1000, 0.2, func(s float64) float64 {
			if s >= 200 && s < 280 {
				return 1
			}
			return 5
		}, 20, 3000, 1},
		{"seasonal", 1800, 500, 0.3, func(s float64) float64 { return 2.5 - 1.5*math.Cos(2*math.Pi*s/600) }, 20, 2000, 0},
	}
}

// All planted outliers fire. Nothing else does, but a bounded number at a shift.
func TestStreams(t *testing.T) {
	spec := rules.Adaptive{
		Quantile: 0.999, Times: 2, Floor: 100 * time.Microsecond, Ceiling: time.Minute,
		Window: time.Minute, MinSamples: 10000,
	}
	for _, s := range streams() {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", s.name, seed), func(t *testing.T) {
				own := spec
				if s.rate < 200 {
					own.Window = 10 * time.Minute
				}
				play(t, s, own, seed)
			})
		}
	}
}

func play(t *testing.T, s stream, spec rules.Adaptive, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	f := New(spec)
	start := time.Unix(0, 0)
	var seen histogram.Histogram
	var kernel burst
	var threshold time.Duration
	planted, caught, others, quiet := 0, 0, 0, 0
	n := 0
	for second := range s.seconds {
		for i := range s.rate {
			at := float64(second) + float64(i)/float64(s.rate)
			n++
			out := n%s.every == 0
			ms := s.median(at) * math.Exp(s.sigma*r.NormFloat64())
			if out {
				ms = s.median(at) * s.planted
			}
			delay := int64(ms * 1e6)
			seen.Add(uint64(delay), 1)
			if threshold == 0 {
				quiet++
				continue
			}
			if out {
				planted++
			}
			if time.Duration(delay) < threshold || !kernel.allows(int64(at*1e9), delay) {
				assert.Check(t, !out,
					"second %.1f: an outlier of %v did not fire, the threshold is %v", at, time.Duration(delay), threshold)
				continue
			}
			if out {
				caught++
			} else {
				others++
			}
		}
		threshold = f.Update(start.Add(time.Duration(second+1)*time.Second), &seen).Threshold
	}
	t.Logf("%d delays, quiet for the first %d; %d of %d outliers fired, and %d others; %d held back", n, quiet, caught, planted, others, kernel.held)
	assert.Check(t, planted >= 8, "only %d outliers planted", planted)
	// Some are that far out by themselves: 3.09 is the 0.999 quantile of the normal distribution.
	tail := math.Erfc((3.09+math.Log(spec.Times)/s.sigma)/math.Sqrt2) / 2 * float64(n)
	allowed := s.shifts*shiftFirings + 2 + int(1.5*tail)
	assert.Check(t, others <= allowed, "%d delays fired that were no outliers, allowed are %d", others, allowed)
}

func TestQuiet(t *testing.T) {
	spec := rules.Adaptive{Quantile: 0.99, Times: 3, Floor: time.Millisecond, Ceiling: time.Second, Window: 30 * time.Second, MinSamples: 1000}
	f := New(spec)
	now := time.Unix(100, 0)
	var seen histogram.Histogram
	tick := func(ms float64, n uint64) State {
		seen.Add(uint64(ms*1e6), n)
		now = now.Add(time.Second)
		return f.Update(now, &seen)
	}
	if s := tick(10, 999); s.Threshold != 0 || s.Samples != 999 || s.QuantileNS != 0 {
		t.Errorf("too few samples: %+v", s)
	}
	s := tick(10, 1)
	assert.Check(t, s.Threshold >= 29*time.Millisecond && s.Threshold <= 32*time.Millisecond && s == f.State(),
		"3 times 10ms: %+v", s)
	if s := tick(1000, 1000); s.Threshold != time.Second {
		t.Errorf("ceiling: %+v", s)
	}
	for range 35 { // the past leaves the window
		s = tick(0.001, 100)
	}
	assert.Check(t, s.Threshold == time.Millisecond, "floor: %+v", s)
	for range 31 { // the load ends
		s = tick(0, 0)
	}
	assert.Check(t, s.Threshold == 0 && s.Samples == 0, "no load: %+v", s)
	// The histogram begins anew.
	seen = histogram.Histogram{}
	s = tick(10, 2000)
	assert.Check(t, s.Samples == 2000, "after a new beginning: %+v", s)
}

// Nothing that a histogram may hold makes it overflow or panic.
func TestExtremes(t *testing.T) {
	f := New(rules.Adaptive{Quantile: 0.999, Times: 1000, Floor: 1, Ceiling: time.Hour, Window: 24 * time.Hour, MinSamples: 1})
	var seen histogram.Histogram
	seen.Add(math.MaxUint64, 100)
	s := f.Update(time.Unix(1, 0), &seen)
	assert.Check(t, s.Threshold == time.Hour && s.QuantileNS >= 0, "the longest delay: %+v", s)
	f = New(rules.Adaptive{Quantile: 0.999, Times: 1, Floor: 1, Ceiling: time.Hour, Window: 24 * time.Hour, MinSamples: 1})
	seen = histogram.Histogram{}
	seen.Add(0, 100)
	s = f.Update(time.Unix(1, 0), &seen)
	assert.Check(t, s.Threshold == 1, "no delay at all: %+v", s)
}
