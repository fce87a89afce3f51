package daemon

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// checkSnapshot holds everything that must be true of any snapshot, and
// returns what it says and its trace.
func checkSnapshot(t *testing.T, dir string) (*snapshot.Meta, []event) {
	t.Helper()
	m := readMeta(t, dir)
	checkModes(t, dir)
	outliers := readTrace(t, dir)
	dump := 0 // of the state, of no record
	for i := range outliers {
		if strings.HasPrefix(outliers[i].name, "lttng_statedump_") {
			dump++
		}
	}
	want := m.Records + 2*uint64(len(m.Outliers)) + uint64(dump)
	assert.Check(t, uint64(len(outliers)) == want && dump >= 3,
		"%s: the trace has %d outliers, snapshot.json tells of %d", dir, len(outliers), want)
	for i := range m.Outliers {
		checkMarkers(t, outliers, i, &m.Outliers[i])
	}
	checkCoverage(t, m, outliers)
	return m, outliers
}

// readMeta reads snapshot.json strictly.
func readMeta(t *testing.T, dir string) *snapshot.Meta {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, snapshot.MetaFile))
	assert.NilError(t, err)
	var m snapshot.Meta
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	assert.NilError(t, dec.Decode(&m), "%s", dir)
	assert.Check(t, m.ID == filepath.Base(dir) && m.Version == snapshot.Version && m.Host.Kernel != "" &&
		m.Host.BootID != "", "%s: snapshot.json has id %q, version %d, host %+v", dir, m.ID, m.Version, m.Host)
	return &m
}

// checkModes holds that all files are there, and closed to others.
func checkModes(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{snapshot.MetaFile, snapshot.ExplainTextFile, snapshot.ExplainJSONFile, snapshot.FoldedFile, "trace/kernel/metadata"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		} else if info.Size() == 0 && name != snapshot.FoldedFile {
			t.Errorf("%s of %s is empty", name, dir)
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if name := d.Name(); filepath.Dir(path) == dir && filepath.Ext(name) == "" {
			return err // what an action has put there is its own affair
		}
		if err == nil && info.Mode().Perm()&0o007 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	assert.Check(t, err)
}

// checkMarkers holds that an outlier's entry and exit stand in the trace.
func checkMarkers(t *testing.T, outliers []event, number int, o *events.Outlier) {
	t.Helper()
	for _, m := range []struct {
		name string
		at   uint64
		cpu  int
	}{{"tailcam_entry", o.StartMono, o.EntryCPU}, {"tailcam_exit", o.EndMono, o.CPU}} {
		e := find(outliers, m.name, m.at, func(e *event) bool { return e.number("outlier") == number })
		if e == nil {
			t.Errorf("%s of outlier %d is missing in the trace at %d", m.name, number, m.at)
			continue
		}
		assert.Check(t, e.cpu == m.cpu && e.tid == o.Task.TID && e.number("tid") == o.Task.TID &&
			e.number("pid") == o.Task.PID && e.number("delay_ns") == int(o.DelayNS),
			"%s is %+v, the outlier %+v", m.name, *e, *o)
	}
	assert.Check(t, o.DelayNS == int64(o.EndMono-o.StartMono),
		"a delay of %d from %d to %d", o.DelayNS, o.StartMono, o.EndMono)
}

// checkCoverage holds what snapshot.json says of its history against the trace.
func checkCoverage(t *testing.T, m *snapshot.Meta, outliers []event) {
	t.Helper()
	w := m.Window
	var records, lost uint64
	incomplete := false
	for _, c := range m.Coverage {
		records += c.Records
		lost += c.Lost
		incomplete = incomplete || !c.CompleteBefore || !c.CompleteAfter || len(c.Gaps) > 0 || c.Lost > 0
		assert.Check(t, c.FromMonoNS >= w.FromMonoNS && c.FromMonoNS <= c.ToMonoNS && c.ToMonoNS <= w.ToMonoNS,
			"CPU %d is covered from %d to %d, outside of the window %+v", c.CPU, c.FromMonoNS, c.ToMonoNS, w)
		assert.Check(t, c.CoveredNS >= int64(c.ToMonoNS-c.FromMonoNS) &&
			(len(c.Gaps) != 0 || c.CoveredNS == int64(c.ToMonoNS-c.FromMonoNS)),
			"CPU %d is covered for %d ns, from %d to %d with gaps %v", c.CPU, c.CoveredNS, c.FromMonoNS, c.ToMonoNS, c.Gaps)
		got := c.To.Sub(c.From).Nanoseconds()
		assert.Check(t, got == int64(c.ToMonoNS-c.FromMonoNS),
			"CPU %d is covered for %d ns of wall time, from %d to %d", c.CPU, got, c.FromMonoNS, c.ToMonoNS)
		if c.Lost == 0 {
			unbroken(t, outliers, c.CPU, c.FromMonoNS, c.ToMonoNS)
		}
	}
	assert.Check(t, len(m.Coverage) != 0 && records == m.Records && lost == m.Lost,
		"%d CPUs with %d records and %d lost; in all %d and %d", len(m.Coverage), records, lost, m.Records, m.Lost)
	assert.Check(t, incomplete == (len(m.Notes) > 0) || w.FromMonoNS != 0,
		"notes %q beside coverage %+v", m.Notes, m.Coverage)
	for i := range outliers {
		if e := &outliers[i]; e.time > w.ToMonoNS || e.time < w.FromMonoNS {
			t.Errorf("%s at %d is outside of the window %+v", e.name, e.time, w)
			break
		}
	}
}
