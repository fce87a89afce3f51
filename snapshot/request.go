package snapshot

import (
	"fmt"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/tracker/events"
)

// request is the time range and the outliers of one snapshot, in nanoseconds of
// CLOCK_MONOTONIC.
type request struct {
	from, to uint64 // from 0: everything recorded
	asked    bool   // a rule says where it begins
	outliers []events.Outlier
}

// exits returns the first and the last exit; for a manual snapshot, both are its end.
func (a *request) exits() (first, last uint64) {
	if len(a.outliers) == 0 {
		return a.to, a.to
	}
	first = a.outliers[0].EndMono
	for i := range a.outliers {
		first = min(first, a.outliers[i].EndMono)
		last = max(last, a.outliers[i].EndMono)
	}
	return first, last
}

// involved lists the tasks of outliers, and those that had their CPU or woke them.
func involved(outliers []events.Outlier) (tids []int) {
	for i := range outliers {
		o := &outliers[i]
		tids = append(tids, o.Task.TID)
		if o.OnCPU != nil {
			tids = append(tids, o.OnCPU.TID)
		}
		if o.Waker != nil {
			tids = append(tids, o.Waker.TID)
		}
	}
	return tids
}

// contiguousFrom returns the start of the interval that holds the first entry, if no start
// was asked for: history before a gap, left by an earlier snapshot, explains
// nothing. 0 means no limit.
func (a *request) contiguousFrom(stretches []Gap) uint64 {
	if a.asked {
		return 0
	}
	entry := a.to
	for i := range a.outliers {
		entry = min(entry, a.outliers[i].StartMono)
	}
	var begin uint64
	for _, s := range stretches {
		if s.FromMonoNS <= entry {
			begin = s.FromMonoNS
		}
	}
	return begin
}

// coverage returns the coverage of one CPU, given its complete intervals, oldest first.
func (a *request) coverage(cpu int, stretches []Gap, clock Clock) CPUCoverage {
	first, last := a.exits()
	c := CPUCoverage{CPU: cpu, CompleteBefore: true}
	main := Gap{FromMonoNS: first, ToMonoNS: first} // empty
	for i, s := range stretches {
		c.CoveredNS += int64(s.ToMonoNS - s.FromMonoNS)
		if i == 0 || s.FromMonoNS <= first { // the recorder may have begun after it
			main = s
		}
		if i > 0 {
			c.Gaps = append(c.Gaps, Gap{FromMonoNS: stretches[i-1].ToMonoNS, ToMonoNS: s.FromMonoNS, Missing: s.Missing})
			c.Missing += s.Missing
		}
		if s.FromMonoNS <= last && s.ToMonoNS >= a.to {
			c.CompleteAfter = true
		}
	}
	for i := range a.outliers {
		if !covers(stretches, a.outliers[i].StartMono, a.outliers[i].EndMono) {
			c.CompleteBefore = false
		}
	}
	if len(stretches) == 0 {
		c.CompleteBefore = false
	}
	c.FromMonoNS, c.ToMonoNS = main.FromMonoNS, main.ToMonoNS
	c.From, c.To = clock.Wall(main.FromMonoNS), clock.Wall(main.ToMonoNS)
	return c
}

func covers(stretches []Gap, from, to uint64) bool {
	for _, s := range stretches {
		if s.FromMonoNS <= from && to <= s.ToMonoNS {
			return true
		}
	}
	return false
}

// notes describes what is missing, most important first.
func (a *request) notes(cpus []CPUCoverage) []string {
	var out []string
	out = append(out, a.shortHistories(cpus)...)
	if len(cpus) == 0 {
		out = append(out, "the recorder had no data of any CPU: the trace is empty")
	}

	var late, holes, lost []int
	var lostSum uint64
	for _, c := range cpus {
		if !c.CompleteAfter {
			late = append(late, c.CPU)
		}
		if len(c.Gaps) > 0 {
			holes = append(holes, c.CPU)
		}
		if c.Lost > 0 {
			lost = append(lost, c.CPU)
			lostSum += c.Lost
		}
	}
	if len(late) > 0 {
		out = append(out, fmt.Sprintf("the window after the exit is incomplete on %s: records were overwritten or not yet recorded; raise recorder.size or shorten snapshot.after",
			cpuList(late, len(cpus))))
	}
	if len(holes) > 0 {
		out = append(out, fmt.Sprintf("records are missing in the window on %s, see gaps: the ring was overwritten before it was read; raise recorder.size",
			cpuList(holes, len(cpus))))
	}
	if n := a.shortBefore(cpus); n != "" {
		out = append(out, n)
	}
	if lostSum > 0 {
		out = append(out, fmt.Sprintf("%d records were refused by the ring on %s", lostSum, cpuList(lost, len(cpus))))
	}
	return out
}

// shortHistories returns a note for each outlier whose entry is not covered.
func (a *request) shortHistories(cpus []CPUCoverage) []string {
	var out []string
	for i := range a.outliers {
		if n := a.shortHistory(&a.outliers[i], cpus); n != "" {
			out = append(out, n)
		}
	}
	return out
}

// shortHistory returns a note if the entry of an outlier is not covered.
func (a *request) shortHistory(o *events.Outlier, cpus []CPUCoverage) string {
	var short []int
	var most uint64
	for _, c := range cpus {
		if c.CompleteBefore || c.FromMonoNS <= o.StartMono {
			continue
		}
		short = append(short, c.CPU)
		most = max(most, c.FromMonoNS-o.StartMono)
	}
	if len(short) == 0 {
		return ""
	}
	// Estimate the factor by which the ring is too small, assuming the event rate stays
	// the same.
	times := 2
	for held := int64(o.EndMono-o.StartMono) - int64(most); held > 0 && int64(times)*held < o.DelayNS && times < 1024; {
		times *= 2
	}
	who := term.Peer(events.Peer{PID: o.Task.PID, TID: o.Task.TID, Comm: o.Task.Comm})
	if o.Trigger != nil && o.Task.TID == 0 {
		who = "rule " + o.Rule
	}
	return fmt.Sprintf("the history does not reach the entry of the outlier of %s: on %s it begins up to %s after it (the delay was %s); raise recorder.size to %d times as much, or set recorder.cover: %s",
		who, cpuList(short, len(cpus)),
		time.Duration(most), time.Duration(o.DelayNS), times, (2*time.Duration(o.DelayNS)).Truncate(time.Second)+time.Second)
}

// shortBefore returns a note if the recorder held less than snapshot.before.
func (a *request) shortBefore(cpus []CPUCoverage) string {
	if !a.asked {
		return ""
	}
	var short []int
	var least uint64
	for _, c := range cpus {
		if c.FromMonoNS > a.from {
			short = append(short, c.CPU)
			least = max(least, c.FromMonoNS-a.from)
		}
	}
	if len(short) == 0 {
		return ""
	}
	return fmt.Sprintf("the recorder held up to %s less than snapshot.before asks for on %s; raise recorder.size or shorten snapshot.before",
		time.Duration(least), cpuList(short, len(cpus)))
}

// cpuList formats CPU numbers as the kernel does: CPU 3, CPUs 0-2,5.
func cpuList(cpus []int, all int) string {
	if len(cpus) == all && all > 1 {
		return "all CPUs"
	}
	var parts []string
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(cpus[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", cpus[i], cpus[j]))
		}
		i = j + 1
	}
	if len(cpus) == 1 {
		return "CPU " + parts[0]
	}
	return "CPUs " + strings.Join(parts, ",")
}
