package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Check is the result of verifying a snapshot.
type Check struct {
	ID        string  `json:"id"`
	Dir       string  `json:"dir"`
	OK        bool    `json:"ok"`
	Events    uint64  `json:"events"` // in the trace
	Bytes     uint64  `json:"bytes"`
	Explained bool    `json:"explained"` // explain.json has an explanation
	Problems  []Fault `json:"problems"`
	// Checksums is false for snapshots of early releases, which have none.
	Checksums bool     `json:"checksums"`
	Notes     []string `json:"notes"` // what the snapshot says is missing
}

// Fault is a problem found in a snapshot.
type Fault struct {
	File string `json:"file"`
	What string `json:"what"`
}

// maxFaults bounds the faults reported per snapshot.
const maxFaults = 20

func (c *Check) add(file, format string, args ...any) {
	if len(c.Problems) < maxFaults {
		c.Problems = append(c.Problems, Fault{File: file, What: fmt.Sprintf(format, args...)})
	}
}

// Verify reads all files of the named snapshots, including every event. Snapshots that
// vanish meanwhile are skipped. It returns early with the context's error.
func Verify(ctx context.Context, dir string, ids []string, progress func(done, all int)) ([]Check, error) {
	checks := make([]Check, len(ids))
	each(len(ids), progress, func(i int) {
		if ctx.Err() == nil {
			checks[i] = verify(ctx, filepath.Join(dir, ids[i]))
		}
	})
	out := []Check{}
	for i := range checks {
		c := &checks[i]
		if _, gone := os.Lstat(c.Dir); !errors.Is(gone, fs.ErrNotExist) {
			out = append(out, *c)
		}
	}
	return out, ctx.Err()
}

func verify(ctx context.Context, dir string) Check {
	c := Check{ID: filepath.Base(dir), Dir: dir, Problems: []Fault{}, Notes: []string{}}
	m, err := snapshot.ReadMeta(dir)
	if err != nil {
		c.add(snapshot.MetaFile, "%v", cause(err))
	} else {
		c.Bytes = snapshot.InfoOf(m, dir).Bytes
		c.Notes = append(c.Notes, m.Notes...)
		c.meta(m)
	}
	c.sums(ctx, m)
	c.trace(ctx, m)
	c.explanation(m)
	if _, err := snapshot.ReadNames(dir); err != nil {
		c.add(snapshot.TasksFile, "%v", cause(err))
	}
	for _, name := range []string{snapshot.ExplainTextFile, snapshot.FoldedFile} {
		if st, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			c.add(name, "%v", cause(err))
		} else if !st.Mode().IsRegular() {
			c.add(name, "is not a regular file")
		}
	}
	c.OK = len(c.Problems) == 0
	return c
}

// sums verifies the checksums.
func (c *Check) sums(ctx context.Context, m *snapshot.Meta) {
	bad, err := snapshot.CheckSums(ctx, c.Dir)
	switch {
	case errors.Is(err, snapshot.ErrNoSums):
		if m != nil && m.Checksums != "" {
			c.add(snapshot.SumsFile, "is not there, and %s says that it should be", snapshot.MetaFile)
		}
		return
	case err != nil:
		c.add(snapshot.SumsFile, "%v", cause(err))
		return
	}
	c.Checksums = true
	for _, b := range bad {
		c.add(b.File, "%s", b.What)
	}
}

// cause returns an error without the path, which was printed already.
func cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// meta checks snapshot.json for consistency.
func (c *Check) meta(m *snapshot.Meta) {
	fail := func(format string, args ...any) { c.add(snapshot.MetaFile, format, args...) }
	if m.ID != c.ID {
		fail("has the id %q", m.ID)
	}
	if id, err := snapshot.ParseID(c.ID); err == nil && !m.Time.Equal(id.Time) {
		fail("time %s differs from the directory name", m.Time)
	}
	if m.Window.FromMonoNS > m.Window.ToMonoNS {
		fail("window ends before it begins")
	}
	var records uint64
	for i := range m.Coverage {
		records += m.Coverage[i].Records
	}
	if records != m.Records {
		fail("records of all CPUs add up to %d, not %d", records, m.Records)
	}
	for i := range m.Outliers {
		o := &m.Outliers[i]
		switch {
		case o.Rule == "" || o.Track == "" || o.Cause == "":
			fail("outlier %d has no rule, track or cause", i)
		case o.DelayNS < 0 || o.EndMono < o.StartMono:
			fail("outlier %d ends before it begins", i)
		}
	}
}

// trace reads and counts all events.
func (c *Check) trace(ctx context.Context, m *snapshot.Meta) {
	fail := func(format string, args ...any) { c.add(snapshot.TraceDir, format, args...) }
	path := filepath.Join(c.Dir, snapshot.TraceDir)
	if st, err := os.Lstat(path); err != nil || !st.IsDir() {
		fail("is missing: the events are lost")
		return
	}
	r, err := trace.Read(path)
	if err != nil {
		fail("%v", err)
		return
	}
	defer func() { _ = r.Close() }()
	events := map[int]uint64{}
	var entries, exits int
	for n := 0; ; n++ {
		if n&0xffff == 0 && ctx.Err() != nil {
			return
		}
		ev, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fail("%v", err)
			if !errors.Is(err, trace.ErrDamaged) {
				break
			}
			continue
		}
		switch ev.Type {
		case trace.OutlierEntry:
			entries++
		case trace.OutlierExit:
			exits++
		case trace.DumpStart, trace.DumpTask, trace.DumpFile, trace.DumpDevice, trace.DumpEnd:
			// state dump: not from records
		default:
			events[ev.CPU]++
			c.Events++
		}
	}
	if m == nil || len(c.Problems) > 0 {
		return
	}
	if n := len(m.Outliers); entries != n || exits != n {
		fail("has %d entries and %d exits of outliers, %s %d outliers", entries, exits, snapshot.MetaFile, n)
	}
	c.counts(m, r, events)
}

// counts compares the trace with snapshot.json per CPU. The trace counts lost and
// missing records, and those it has no event for, as discarded.
func (c *Check) counts(m *snapshot.Meta, r *trace.Reader, events map[int]uint64) {
	for i := range m.Coverage {
		cpu := &m.Coverage[i]
		have := events[cpu.CPU]
		if d := r.Discarded(cpu.CPU); d > cpu.Lost+cpu.Missing {
			have += d - cpu.Lost - cpu.Missing
		}
		if have != cpu.Records {
			c.add(snapshot.TraceDir, "has %d events of CPU %d, %s says %d", have, cpu.CPU, snapshot.MetaFile, cpu.Records)
		}
		delete(events, cpu.CPU)
	}
	for cpu, n := range events {
		c.add(snapshot.TraceDir, "has %d events of CPU %d, of which %s says nothing", n, cpu, snapshot.MetaFile)
	}
}

// explanation checks explain.json.
func (c *Check) explanation(m *snapshot.Meta) {
	fail := func(format string, args ...any) { c.add(snapshot.ExplainJSONFile, format, args...) }
	report, err := ReadReport(c.Dir)
	if errors.Is(err, ErrNotExplained) {
		return // release without explanations
	}
	if err != nil {
		fail("%v", cause(err))
		return
	}
	if len(report.Outliers) == 0 {
		return // the daemon failed to explain it, as noted
	}
	c.Explained = true
	if m != nil && len(m.Outliers) != len(report.Outliers) {
		fail("has %d outliers, %s %d", len(report.Outliers), snapshot.MetaFile, len(m.Outliers))
		return
	}
	for i := range report.Outliers {
		o := &report.Outliers[i]
		if m != nil && (o.DelayNS != m.Outliers[i].DelayNS || o.Rule != m.Outliers[i].Rule) {
			fail("outlier %d is of rule %q and %d ns, in %s of %q and %d ns", i, o.Rule, o.DelayNS,
				snapshot.MetaFile, m.Outliers[i].Rule, m.Outliers[i].DelayNS)
		}
		if err := checkPath(o); err != nil {
			fail("outlier %d: %v", i, err)
		}
	}
}
