package flight

import (
	"math"
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
	capacity uint64 // bytes of history
	record   uint64 // bytes of a record; of a pair of short ones in plain memory, too
	short    uint64 // bytes of a short record in a perf ring
	start    time.Time

	mu      sync.Mutex
	samples []sample // oldest first
}

type sample struct {
	at   time.Time
	cpus []tracker.CPUCounters
}

func newCoverage(capacity, record, short int) *coverage {
	return &coverage{capacity: uint64(capacity), record: uint64(record), short: uint64(short), start: time.Now()}
}

// written is how many bytes of a ring a CPU has written since the start.
func (c *coverage) written(k *tracker.CPUCounters) uint64 {
	return k.Recorded*c.record - k.Short*(c.record-c.short)
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
		from := c.reach(i, c.written(&k), now)
		cov := snapshot.Coverage{
			CPU: k.CPU, CoveredNS: now.Sub(from).Nanoseconds(), BytesPerEvent: int(c.record),
			Records: k.Recorded + k.Paired, Lost: k.RecordLost, BytesWritten: c.written(&k),
		}
		events, bytes := c.rate(i)
		cov.EventsPerSecond = events
		if events > 0 && bytes > 0 {
			cov.BytesPerEvent = int(math.Round(bytes / events))
			cov.CoversAtRateNS = int64(min(float64(c.capacity)/bytes, 1e9) * 1e9)
		}
		out = append(out, cov)
	}
	return out
}

// reach is when CPU number i, which has written so many bytes, wrote the oldest that
// its ring still holds.
func (c *coverage) reach(i int, written uint64, now time.Time) time.Time {
	if written <= c.capacity || len(c.samples) == 0 {
		return c.start
	}
	oldest := written - c.capacity
	last := c.samples[len(c.samples)-1]
	if then := c.written(&last.cpus[i]); then <= oldest {
		return between(last.at, now, then, written, oldest)
	}
	for n := len(c.samples) - 1; n > 0; n-- {
		after, before := c.samples[n], c.samples[n-1]
		a, b := c.written(&after.cpus[i]), c.written(&before.cpus[i])
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

// rate is the events per second over the last ten samples, and their bytes.
func (c *coverage) rate(i int) (events, bytes float64) {
	if len(c.samples) == 0 {
		return 0, 0
	}
	last := c.samples[len(c.samples)-1]
	first := c.samples[max(0, len(c.samples)-11)]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0, 0
	}
	a, b := &last.cpus[i], &first.cpus[i]
	return float64(a.Recorded+a.Paired-b.Recorded-b.Paired) / seconds, float64(c.written(a)-c.written(b)) / seconds
}
