package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/inject"
	support "github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/tracker/events"
)

// addUp holds, for each snapshot that any test's daemon leaves, that each of its
// outliers is explained, and that the parts are the delay.
func addUp(t *testing.T, snaps string) {
	t.Helper()
	dirs, err := os.ReadDir(snaps)
	assert.Assert(t, err == nil || errors.Is(err, fs.ErrNotExist), "%v", err)
	for _, d := range dirs {
		dir := filepath.Join(snaps, d.Name())
		m, err := snapshot.ReadMeta(dir)
		if err != nil {
			continue // not complete, or torn by the test
		}
		if data, err := os.ReadFile(filepath.Join(dir, snapshot.ExplainJSONFile)); err == nil {
			addsUp(t, m, data)
		}
	}
}

func addsUp(t *testing.T, m *snapshot.Meta, data []byte) *explain.Report {
	t.Helper()
	var r explain.Report
	assert.NilError(t, json.Unmarshal(data, &r), "%s", m.ID)
	if r.Version != explain.Version || len(r.Outliers) != len(m.Outliers) {
		t.Errorf("%s: explain.json of version %d explains %d of %d outliers; notes %v", m.ID, r.Version, len(r.Outliers), len(m.Outliers), m.Notes)
		return &r
	}
	for i := range r.Outliers {
		x, o := &r.Outliers[i], &m.Outliers[i]
		var parts, roots, path int64
		for _, p := range x.Parts {
			parts += p.NS
		}
		for _, p := range x.Roots {
			roots += p.NS
		}
		for _, s := range x.Path {
			if s.Depth == 0 {
				path += int64(s.ToMonoNS - s.FromMonoNS)
			}
		}
		assert.Check(t, x.DelayNS == o.DelayNS && parts == o.DelayNS && roots == o.DelayNS && path == o.DelayNS && x.Verdict != "",
			"%s: delay %d of %s, explained %d: parts %d, roots %d, path %d: %q", m.ID, o.DelayNS, o.Rule, x.DelayNS, parts, roots, path, x.Verdict)
		assert.Check(t, o.Explained != nil && o.Explained.Verdict == x.Verdict,
			"%s: snapshot.json says %+v, explain.json %q", m.ID, o.Explained, x.Verdict)
	}
	return &r
}

// explainedOf reads the stream until what was injected is explained: first comes the outlier.
func explainedOf(t *testing.T, stream *api.EventStream, truth inject.Event) (o events.Outlier, verdict events.Explained) {
	t.Helper()
	for {
		e, err := stream.Next()
		assert.NilError(t, err)
		switch {
		case e.Outlier != nil && !e.Outlier.Completed && e.Outlier.Task.TID == truth.TID && e.Outlier.EndMono > truth.Start && e.Outlier.EndMono <= truth.End:
			o = *e.Outlier
			assert.Check(t, o.Explained == nil, "explained at once: %+v", o)
		case e.Verdict != nil && e.Verdict.ID == o.ID:
			return o, e.Verdict.Explained
		}
	}
}

// TestVerdict: who kept a task waiting is named in its event, in each file of the
// snapshot, and by `tailcam explain`, which needs no root.
func TestVerdict(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(entry("late", "wakeup", "20ms", fmt.Sprintf("{uid: %d, comm: inj-wakeup}", uid), "snapshot: {every: 1us, burst: 100}")))
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	follow, err := api.NewClient(d.socket).Events(ctx, &api.EventsOptions{Follow: true, Verdicts: true})
	assert.NilError(t, err)
	defer follow.Close()
	before := support.Stolen(t)
	first, verdict := events.Outlier{}, events.Explained{}
	for round := 1; ; round++ {
		truth := provoke(t, uid, "wakeup", "1", "30000", "0", "1", "1")[0]
		if truth.Kind != inject.Over {
			t.Logf("round %d: the injector was disturbed: %+v", round, truth)
			continue
		}
		first, verdict = explainedOf(t, follow, truth)
		assert.Check(t, strings.Contains(verdict.Verdict, verdict.By) && verdict.NS <= first.DelayNS,
			"%+v of %d ns", verdict, first.DelayNS)
		if verdict.Cause == string(explain.Preempted) && strings.HasPrefix(verdict.By, "inj-hog") && verdict.NS*2 >= first.DelayNS && verdict.Advice != "" {
			break
		}
		if t.Logf("round %d: %+v of %d ns", round, verdict, first.DelayNS); round == 30 || support.Stolen(t) == before {
			t.Fatal("the hog is not blamed for most of it")
		}
	}

	dir := filepath.Join(d.snaps, *first.Snapshot)
	m := readMeta(t, dir)
	data := readText(t, dir, snapshot.ExplainJSONFile)
	r := addsUp(t, m, []byte(data))
	for where, list := range map[string][]events.Outlier{"snapshot.json": m.Outliers, "events": d.events("late")} {
		i := slices.IndexFunc(list, func(o events.Outlier) bool { return o.ID == first.ID })
		assert.Assert(t, i >= 0, "%s has no outlier %s: %+v", where, first.ID, list)
		diff := cmp.Diff(&verdict, list[i].Explained)
		assert.Check(t, diff == "", "%s (-followed +found):\n%s", where, diff)
	}
	text := readText(t, dir, snapshot.ExplainTextFile)
	assert.Check(t, strings.Contains(text, "\n\n"+verdict.Verdict+"\n"+verdict.Advice+"\nWithout inj-hog ") && strings.Contains(text, "\n\nWhere the time went:\n"),
		"explain.txt:\n%s", text)

	// As nobody, from a copy that nobody may read.
	copied := filepath.Join(publicDir(t, ""), "snapshot")
	assert.NilError(t, os.CopyFS(copied, os.DirFS(dir)))
	out, err := exec.Command("chmod", "-R", "a+rX", copied).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	a := asUser(t, uid, uid, built.tailcam, "explain", copied, "-o", "json")
	again := lines[explain.Report](t, a.out)
	assert.Assert(t, a.code == 0 && len(again) == 1, "explain: %+v", a)
	assert.Check(t, is.DeepEqual(r, &again[0]), "explained again (-daemon +verb)")
	a = tailcam(t, "explain", copied)
	assert.Check(t, a.code == 0 && strings.Contains(strings.Join(strings.Fields(a.out), " "), verdict.Verdict),
		"explain as text: %+v", a)
	a = tailcam(t, "explain", copied+strconv.Itoa(uid))
	assert.Check(t, a.code == 1 && a.out == "" && strings.Contains(a.err, "does not exist"),
		"explain of nothing: %+v", a)
}
