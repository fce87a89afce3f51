// Package catalogtest writes small whole snapshots for tests: real directories
// with a real trace, in a real store.
package catalogtest

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// Start is when the first of Make's snapshots was taken.
var Start = time.Date(2026, 11, 20, 23, 15, 2, 123456789, time.UTC)

// Millisecond in the nanoseconds of outliers.
const Millisecond = int64(time.Millisecond)

// One is a snapshot to be written. Its zero values are filled in.
type One struct {
	Age     time.Duration // after Start
	Rule    string
	Comm    string
	TID     int
	Cgroup  string
	DelayNS int64
	Parts   []explain.Part // nil: not explained; what they lack of the delay is unexplained
	Roots   []explain.Part // nil: the parts
	Chain   []explain.Part
	Pattern explain.Pattern
	Path    []explain.Step // nil: one step for each part
	Boot    string
	ByHand  bool
	Lost    uint64 // records that did not get into the trace; there are more that were
	Missing uint64 // overwritten, and one that the trace has no event for, if there are some
	Meta    func(*snapshot.Meta)
}

// Task is a culprit.
func Task(comm string, tid, prio int) *explain.Who {
	return &explain.Who{Kind: explain.KindTask, Name: comm, Comm: comm, TID: tid, PID: tid, Prio: prio}
}

// Part is a part of a delay.
func Part(cause explain.Cause, by *explain.Who, ms float64) explain.Part {
	return explain.Part{Cause: cause, By: by, NS: int64(ms * 1e6), Count: 1}
}

// Make writes snapshots into a new directory, and returns it and their ids.
func Make(t testing.TB, list ...One) (dir string, ids []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "snapshots")
	store, err := snapshot.OpenStore(snapshot.StoreOptions{Dir: dir})
	assert.NilError(t, err)
	defer func() { assert.Check(t, store.Close()) }()
	for i := range list {
		ids = append(ids, write(t, store, &list[i]))
	}
	return dir, ids
}

func write(t testing.TB, store *snapshot.Store, o *One) string {
	t.Helper()
	o.Rule = cmp.Or(o.Rule, "wakeup")
	o.Comm = cmp.Or(o.Comm, "victim")
	o.TID = cmp.Or(o.TID, 7)
	o.DelayNS = cmp.Or(o.DelayNS, 20*Millisecond)
	at := Start.Add(o.Age)
	name := o.Rule
	if o.ByHand {
		name = "manual"
	}
	m := o.meta(store.NewID(at, name), at)
	p, err := store.Create(m.ID, 0)
	assert.NilError(t, err)
	fill(t, p.Dir, o, m)
	_, release, err := p.Commit()
	assert.NilError(t, err)
	release()
	return m.ID
}

const end = 2_000_000_000 // of each outlier, on the monotonic clock

func (o *One) meta(id string, at time.Time) *snapshot.Meta {
	m := &snapshot.Meta{
		Version: snapshot.Version, Notes: []string{}, ID: id, Time: at, Rule: o.Rule, Reason: "outlier of rule " + o.Rule,
		Host:     snapshot.HostInfo{Name: "host", Kernel: "6.18.0", Arch: "x86_64", BootID: o.Boot, Tailcam: "v1"},
		Window:   snapshot.Window{ToMonoNS: end + 1000},
		Coverage: []snapshot.CPUCoverage{{CPU: 0, FromMonoNS: 500_000_000, ToMonoNS: end, Records: 3, CompleteBefore: true}},
		Records:  3,
	}
	if o.Lost+o.Missing > 0 {
		m.Coverage[0].Lost, m.Coverage[0].Missing, m.Coverage[0].Records, m.Records, m.Lost = o.Lost, o.Missing, 4, 4, o.Lost
	}
	if o.ByHand {
		m.Rule, m.Reason = "manual", "because"
	} else {
		m.Outliers = []events.Outlier{{
			Time: at, Rule: o.Rule, Track: "wakeup", Cause: events.CauseThreshold, DelayNS: o.DelayNS, ThresholdNS: 5 * Millisecond,
			Task: events.Task{PID: o.TID, TID: o.TID, Comm: o.Comm, Cgroup: o.Cgroup}, Key: map[string]uint64{"tid": uint64(o.TID)},
			Stacks: events.Stacks{Kernel: []string{"schedule+0x1"}}, StartMono: uint64(end - o.DelayNS), EndMono: end, Snapshot: &m.ID,
		}}
	}
	if o.Meta != nil {
		o.Meta(m)
	}
	return m
}

// fill writes the files of one.
func fill(t testing.TB, dir string, o *One, m *snapshot.Meta) {
	t.Helper()
	tr := trace.Trace{CPUs: []trace.CPU{{CPU: 0, Discarded: o.Lost + o.Missing}}}
	for i := range int(m.Records) {
		typ := trace.SyscallEntry
		if i == 3 {
			typ = 0xfff0 // of a later release
		}
		tr.CPUs[0].Records = append(tr.CPUs[0].Records, trace.MakeRecord(typ, 0, o.TID, uint64(end-3000+i)))
	}
	for i := range m.Outliers {
		x := &m.Outliers[i]
		tr.Outliers = append(tr.Outliers, trace.Outlier{Number: uint64(i), Rule: x.Rule, Track: x.Track, Start: x.StartMono, End: x.EndMono,
			DelayNS: x.DelayNS, TID: x.Task.TID, PID: x.Task.PID, Comm: x.Task.Comm})
	}
	assert.NilError(t, trace.Write(filepath.Join(dir, snapshot.TraceDir), tr))
	JSON(t, filepath.Join(dir, snapshot.MetaFile), m)
	if o.Parts == nil {
		JSON(t, filepath.Join(dir, snapshot.ExplainJSONFile), map[string]any{"version": 1, "kind": "facts"})
	} else {
		JSON(t, filepath.Join(dir, snapshot.ExplainJSONFile), o.Report())
	}
	for _, name := range []string{snapshot.ExplainTextFile, snapshot.FoldedFile} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
}

// Report is what explain.json says of it.
func (o *One) Report() *explain.Report {
	r := explain.Result{
		Rule: o.Rule, Track: "wakeup", Cause: "threshold", DelayNS: o.DelayNS, StartMonoNS: uint64(end - o.DelayNS), EndMonoNS: end,
		Task: *Task(o.Comm, o.TID, 120), Verdict: o.Comm + " waited to run.", Parts: o.Parts, Chain: o.Chain, Pattern: o.Pattern, Roots: o.Roots, Path: o.Path,
	}
	left := o.DelayNS
	for i := range r.Parts {
		left -= r.Parts[i].NS
	}
	if left > 0 {
		r.Parts = append(r.Parts, explain.Part{Cause: explain.Unexplained, NS: left, Count: 1, Reason: "records are missing"})
	}
	if len(r.Parts) > 0 {
		r.Blame = r.Parts[0]
	}
	if r.Roots == nil {
		r.Roots = r.Parts
	}
	if r.Path == nil {
		at := r.StartMonoNS
		for i := range r.Parts {
			p := &r.Parts[i]
			r.Path = append(r.Path, explain.Step{FromMonoNS: at, ToMonoNS: at + uint64(p.NS), Task: r.Task, State: "runnable", Cause: p.Cause, By: p.By})
			at += uint64(p.NS)
		}
	}
	return &explain.Report{Version: explain.Version, Outliers: []explain.Result{r}}
}

// JSON writes a value as a file.
func JSON(t testing.TB, path string, value any) {
	t.Helper()
	data, err := json.Marshal(value)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	assert.NilError(t, err)
}
