package explain

import (
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// BenchmarkExplain: a snapshot of 16 MiB of records on 4 CPUs, read from its files
// as the daemon does: an outlier of the last hundredth of it, a wait
// longer than those before it, which are explained as well, and one of all of it.
func BenchmarkExplain(b *testing.B) {
	s, dir := longTrace(b, 200)
	pair := func(from, to uint64) Outlier { return Outlier{Track: "pair", TID: 1001, Start: from, End: to} }
	b.Run("hundredth", func(b *testing.B) { explainAgain(b, dir, pair(s.now-(s.now-1_000_001)/100, s.now)) })
	b.Run("whole", func(b *testing.B) { explainAgain(b, dir, pair(1_000_001, s.now)) })
	s, dir = longTrace(b, 8) // which wait often
	b.Run("wait", func(b *testing.B) {
		r := explainAgain(b, dir, s.longestWait(s.now/2))
		assert.Assert(b, r.Before != nil && r.Before.Compared > 0, "%+v", r.Before)
	})
}

// longTrace writes a trace of so many tasks.
func longTrace(b *testing.B, tasks int) (s *simulation, dir string) {
	s = newSimulation(1, 4, tasks)
	for len(s.records) < 16<<20/trace.RecordSize {
		s.run(1000)
	}
	cpus := make([]trace.CPU, 4)
	for i := range s.records {
		n := s.records[i].CPU()
		cpus[n].CPU = n
		cpus[n].Records = append(cpus[n].Records, s.records[i])
	}
	dir = b.TempDir()
	assert.NilError(b, trace.Write(dir, trace.Trace{CPUs: cpus}))
	return s, dir
}

// longestWait is the longest one off a CPU that began after a time.
func (s *simulation) longestWait(after uint64) Outlier {
	best := Outlier{Track: "offcpu"}
	for _, t := range s.tasks {
		var from uint64
		for _, x := range t.truth {
			switch {
			case x.state == "blocked":
				from = x.from
			case x.state == "running" && from > after && x.from-from > best.End-best.Start:
				best.TID, best.PID, best.Start, best.End = t.tid, t.tid, from, x.from
			}
			if x.state == "running" {
				from = 0
			}
		}
	}
	return best
}

func explainAgain(b *testing.B, dir string, o Outlier) (last *Result) {
	before := spent(b)
	for b.Loop() {
		r, err := trace.Read(dir)
		assert.NilError(b, err)
		report, err := Explain(r, []Outlier{o}, Names{})
		assert.Assert(b, err == nil && report.Outliers[0].DelayNS == int64(o.End-o.Start), "%v %v", report, err)
		assert.NilError(b, r.Close())
		last = &report.Outliers[0]
	}
	b.ReportMetric(float64((spent(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	return last
}

// spent is the processor time of this process: others may have the CPUs, too.
func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	assert.NilError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
