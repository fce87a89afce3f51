package flight

import (
	"sync"
	"time"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker"
)

// horizon is how many samples are kept: ten minutes at one a second.
const horizon = 600

// coverage tells from the counters alone how far back a ring reaches: to when
// the counter stood where it stands now, less what the ring holds.
type coverage struct {
	capacity uint64 // records
	bytes    int    // of one record
	start    time.Time

	mu      sync.Mutex
	samples []sample // oldest first
}

type sample struct {
	at   time.Time
	cpus []tracker.CPUCounters
}

func newCoverage(capacity uint64, bytes int) *coverage {
	return &coverage{capacity: capacity, bytes: bytes, start: time.Now()}
}

func (c *coverage) sample(at time.Time, cpus []tracker.CPUCounters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.samples) >= horizon {
		c.samples = append(c.samples[:0], c.samples[1:]...)
	}
	c.samples = append(c.samples, sample{at, cpus})
}

// report tells how far back each CPU's ring reaches, from the counters as they stand now.
func (c *coverage) report(now time.Time, cpus []tracker.CPUCounters) []snapshot.Coverage {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]snapshot.Coverage, 0, len(cpus))
	for i, k := range cpus {
		if k.Recorded == 0 && k.RecordLost == 0 {
			continue // a CPU that is possible, but not there
		}
		from := c.reach(i, k.Recorded, now)
		cov := snapshot.Coverage{
			CPU: k.CPU, CoveredNS: now.Sub(from).Nanoseconds(), EventsPerSecond: c.rate(i), BytesPerEvent: c.bytes,
			Records: k.Recorded, Lost: k.RecordLost,
		}
		if cov.EventsPerSecond > 0 {
			cov.CoversAtRateNS = int64(min(float64(c.capacity)/cov.EventsPerSecond, 1e9) * 1e9)
		}
		out = append(out, cov)
	}
	return out
}

// reach is when CPU number i wrote the oldest record that its ring still holds.
func (c *coverage) reach(i int, recorded uint64, now time.Time) time.Time {
	if recorded <= c.capacity || len(c.samples) == 0 {
		return c.start
	}
	oldest := recorded - c.capacity
	if last := c.samples[len(c.samples)-1]; last.cpus[i].Recorded <= oldest {
		return between(last.at, now, last.cpus[i].Recorded, recorded, oldest)
	}
	for n := len(c.samples) - 1; n > 0; n-- {
		after, before := c.samples[n], c.samples[n-1]
		a, b := after.cpus[i].Recorded, before.cpus[i].Recorded
		if b <= oldest && oldest <= a {
			return between(before.at, after.at, b, a, oldest)
		}
	}
	return c.samples[0].at
}

// between is when a counter that ran from a to b stood at n, at an even pace.
func between(from, to time.Time, a, b, n uint64) time.Time {
	if a == b {
		return to
	}
	return from.Add(time.Duration(float64(n-a) / float64(b-a) * float64(to.Sub(from))))
}

// rate is the records per second over the last ten samples.
func (c *coverage) rate(i int) float64 {
	if len(c.samples) == 0 {
		return 0
	}
	last := c.samples[len(c.samples)-1]
	first := c.samples[max(0, len(c.samples)-11)]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(last.cpus[i].Recorded-first.cpus[i].Recorded) / seconds
}
