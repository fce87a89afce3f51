package disturbance

import (
	"fmt"
	"strings"
	"time"
)

// Shares of the worst second from which it counts: see the package comment.
// Taken and others are shares of one CPU, idle is one of all CPUs.
const (
	takenShare  = 0.05
	othersShare = 0.25
	idleShare   = 0.10
	window      = time.Second
)

// Span is an interval of wall-clock time.
type Span struct{ From, To time.Time }

// Overlaps reports whether the spans have a moment in common.
func (s Span) Overlaps(other Span) bool { return s.From.Before(other.To) && other.From.Before(s.To) }

// Account is what became of the machine during some spans. Times of several
// CPUs are added up.
type Account struct {
	Length    time.Duration // of what is judged: the spans, and up to a sample at each end
	Stolen    time.Duration // by the hypervisor
	Late      time.Duration // that the witness was not woken
	Others    time.Duration // that processes used which do not descend from this one
	Disturbed bool          // some second of it had too little of the machine
	Full      bool          // some second of it had no idle CPU
}

// String says how much was taken.
func (a Account) String() string {
	var taken []string
	for _, part := range []struct {
		what string
		long time.Duration
	}{{"stolen", a.Stolen}, {"of late wake-ups", a.Late}, {"used by others", a.Others}} {
		if part.long >= tick/2 {
			taken = append(taken, seconds(part.long)+" "+part.what)
		}
	}
	if len(taken) == 0 {
		taken = []string{"nothing taken"}
	}
	return strings.Join(taken, ", ") + " in " + seconds(a.Length)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// sample is what happened to a machine for some time.
type sample struct {
	Span
	stolen, late, others time.Duration
	idle                 time.Duration // of all CPUs
}

func (s *sample) add(other *sample) {
	s.stolen += other.stolen
	s.late += other.late
	s.others += other.others
	s.idle += other.idle
}

// account judges the samples that overlap one of the spans.
func account(samples []sample, cpus int, spans ...Span) Account {
	var a Account
	for _, span := range spans {
		var within []sample
		for i := range samples {
			if samples[i].Overlaps(span) {
				within = append(within, samples[i])
			}
		}
		a.judge(within, cpus)
	}
	return a
}

// judge adds consecutive samples, and looks at each second of them.
func (a *Account) judge(samples []sample, cpus int) {
	for i := range samples {
		a.Length += samples[i].To.Sub(samples[i].From)
		a.Stolen += samples[i].stolen
		a.Late += samples[i].late
		a.Others += samples[i].others
	}
	for first := range samples {
		var sum sample
		for i := first; i < len(samples) && sum.To.Sub(sum.From) < window; i++ {
			if i == first {
				sum.From = samples[i].From
			}
			sum.To = samples[i].To
			sum.add(&samples[i])
		}
		length := sum.To.Sub(sum.From)
		if first > 0 && length < window {
			return // a part of the second before
		}
		share := func(d time.Duration) float64 { return d.Seconds() / length.Seconds() }
		// What was stolen delays the witness as well: the same time seen twice.
		if share(max(sum.stolen, sum.late)) >= takenShare || share(sum.others) >= othersShare {
			a.Disturbed = true
		}
		if share(sum.idle) < idleShare*float64(cpus) {
			a.Full = true
		}
	}
}
