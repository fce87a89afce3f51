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
	capacity uint64
	start    time.Time

	mu      sync.Mutex
	samples []sample // oldest first
}

type sample struct {
	at   time.Time
	cpus []tracker.CPUCounters
}

func newCoverage(capacity uint64) *coverage {
	return &coverage{capacity: capacity, start: time.Now()}
}

func (c *coverage) sample(at time.Time, cpus []tracker.CPUCounters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.samples) >= horizon {
		c.samples = append(c.samples[:0], c.samples[1:]...)
	}
	c.samples = append(c.samples, sample{at, cpus})
}

func (c *coverage) report(now time.Time) []snapshot.Coverage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.samples) == 0 {
		return nil
	}
	last := c.samples[len(c.samples)-1]
	out := make([]snapshot.Coverage, 0, len(last.cpus))
	for i, k := range last.cpus {
		from := c.reach(i, k.Recorded)
		out = append(out, snapshot.Coverage{
			CPU: k.CPU, CoveredNS: now.Sub(from).Nanoseconds(), EventsPerSecond: c.rate(i),
			Records: k.Recorded, Lost: k.RecordLost,
		})
	}
	return out
}

// reach is when CPU number i wrote the oldest record that its ring still holds.
func (c *coverage) reach(i int, recorded uint64) time.Time {
	if recorded <= c.capacity {
		return c.start
	}
	oldest := recorded - c.capacity
	for n := len(c.samples) - 1; n > 0; n-- {
		after, before := c.samples[n], c.samples[n-1]
		a, b := after.cpus[i].Recorded, before.cpus[i].Recorded
		if b <= oldest && oldest <= a {
			if a == b {
				return after.at
			}
			part := float64(oldest-b) / float64(a-b)
			return before.at.Add(time.Duration(part * float64(after.at.Sub(before.at))))
		}
	}
	return c.samples[0].at
}

// rate is the records per second over the last ten samples.
func (c *coverage) rate(i int) float64 {
	last := c.samples[len(c.samples)-1]
	first := c.samples[max(0, len(c.samples)-11)]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(last.cpus[i].Recorded-first.cpus[i].Recorded) / seconds
}
