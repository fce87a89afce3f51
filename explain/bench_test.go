package explain

import (
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// BenchmarkExplain: a snapshot of 16 MiB of records on 4 CPUs, read from its files
// as the daemon does: an outlier of the last hundredth of it, and one of all of it.
func BenchmarkExplain(b *testing.B) {
	s := newSimulation(1, 4, 200)
	for len(s.records) < 16<<20/trace.RecordSize {
		s.run(1000)
	}
	cpus := make([]trace.CPU, 4)
	for i := range s.records {
		n := s.records[i].CPU()
		cpus[n].CPU = n
		cpus[n].Records = append(cpus[n].Records, s.records[i])
	}
	dir := b.TempDir()
	assert.NilError(b, trace.Write(dir, trace.Trace{CPUs: cpus}))
	b.Run("hundredth", func(b *testing.B) { explainAgain(b, dir, s.now-(s.now-1_000_001)/100, s.now) })
	b.Run("whole", func(b *testing.B) { explainAgain(b, dir, 1_000_001, s.now) })
}

func explainAgain(b *testing.B, dir string, from, to uint64) {
	before := spent(b)
	for b.Loop() {
		r, err := trace.Read(dir)
		assert.NilError(b, err)
		o := Outlier{Track: "pair", TID: 1001, Start: from, End: to}
		report, err := Explain(r, []Outlier{o}, Names{})
		assert.Assert(b, err == nil && report.Outliers[0].DelayNS == int64(o.End-o.Start), "%v %v", report, err)
		assert.NilError(b, r.Close())
	}
	b.ReportMetric(float64((spent(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// spent is the processor time of this process: others may have the CPUs, too.
func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	assert.NilError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
