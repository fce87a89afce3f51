package daemon

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestWaitGoesOn: outliers that come while nobody waits are not missed by who goes on from
// a cursor, one by one; and a snapshot's line has its complete directory.
func TestWaitGoesOn(t *testing.T) {
	needRoot(t)
	uid := newUID()
	rules := rulesFile(napRule("nap", uid, "snapshot: {after: 10ms, every: 1ms, burst: 100}"))
	h := newHome(t, rules)
	d := h.start(t)
	truth := naps(t, uid, 6, 20*time.Millisecond, 1)
	eventually(t, "the outliers", func() bool { return len(d.events("nap")) == len(truth) })

	cursor := strings.Split(d.events("nap")[0].Cursor, ".")[0] + ".0.0" // before all
	begin := cursor
	for i := range truth {
		var o events.Outlier
		text := d.ok("wait", "-o", "json", "--timeout", "20s", "--after", cursor)
		assert.NilError(t, json.Unmarshal([]byte(text), &o), "%s", text)
		assert.Check(t, o.Rule == "nap" && o.Seq > uint64(i), "%d: %s", i, text)
		cursor = o.Cursor
	}
	none := d.verb("wait", "--timeout", "300ms", "--after", cursor)
	assert.Check(t, none.code == 3 && strings.HasPrefix(none.err, "cursor: "), "%+v", none)

	seen := map[string]bool{}
	for cursor = begin; len(seen) < len(truth); {
		var line struct{ Verdict api.Verdict }
		text := d.ok("wait", "-o", "json", "--for", "snapshot", "--timeout", "30s", "--after", cursor)
		assert.NilError(t, json.Unmarshal([]byte(text), &line), "%s", text)
		v := &line.Verdict
		_, err := snapshot.ReadMeta(v.Dir)
		assert.Assert(t, err == nil && filepath.Base(v.Dir) == *v.Snapshot && v.Explained.Verdict != "", "%v, %s", err, text)
		assert.Assert(t, !seen[v.ID], "%s came twice", v.ID)
		seen[v.ID], cursor = true, v.Cursor
	}

	d.stop(syscall.SIGTERM)
	d = h.start(t)
	naps(t, uid, 1, 20*time.Millisecond, 1)
	again := d.verb("wait", "-o", "json", "--timeout", "20s", "--after", cursor)
	assert.Check(t, again.code == 0 && strings.Contains(again.err, "was restarted since the cursor") && strings.Contains(again.out, `"restarted":true`), "%+v", again)
	bad := d.verb("wait", "--after", "yesterday")
	assert.Check(t, bad.code == 1 && strings.Contains(bad.err, "invalid cursor"), "%+v", bad)
}

// timedOut is the cursor of a wait for which nothing came.
func timedOut(t *testing.T, d *running, args ...string) string {
	t.Helper()
	a := d.verb(append([]string{"wait", "-o", "json", "--timeout", "1s"}, args...)...)
	var none struct{ Cursor string }
	assert.NilError(t, json.Unmarshal([]byte(a.out), &none), "%+v", a)
	assert.Assert(t, a.code == 3 && none.Cursor != "", "%+v", a)
	return none.Cursor
}

// TestWaitFromNothing: what comes between two calls for which nothing has come is not missed;
// the directory of each complete snapshot comes, also of one by hand, or without a verdict.
func TestWaitFromNothing(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "snapshot: {after: 10ms, every: 1ms, burst: 100}")))
	cursor := timedOut(t, d)
	var status struct{ Cursor string }
	assert.NilError(t, json.Unmarshal([]byte(d.ok("status", "-o", "json")), &status))
	assert.Equal(t, status.Cursor, cursor)

	naps(t, uid, 1, 20*time.Millisecond, 1)
	eventually(t, "the snapshot", func() bool { return len(d.list()) == 1 })
	var o events.Outlier
	assert.NilError(t, json.Unmarshal([]byte(d.ok("wait", "-o", "json", "--after", cursor, "--timeout", "20s")), &o))
	assert.Check(t, o.Rule == "nap" && o.Snapshot != nil, "%+v", o)

	wait := func(what, after string) api.Verdict {
		t.Helper()
		var line struct{ Verdict api.Verdict }
		text := d.ok("wait", "-o", "json", "--for", what, "--timeout", "30s", "--after", after)
		assert.NilError(t, json.Unmarshal([]byte(text), &line), "%s", text)
		_, err := snapshot.ReadMeta(line.Verdict.Dir)
		assert.NilError(t, err, "%s", text)
		return line.Verdict
	}
	v := wait("verdict", cursor)
	assert.Check(t, v.ID == o.ID && v.Explained.Verdict != "", "%+v", v)
	assert.NilError(t, json.Unmarshal([]byte(d.ok("wait", "-o", "json", "--after", cursor, "--timeout", "20s")), &o))
	assert.Check(t, o.Dir == v.Dir && o.Explained != nil && o.Explained.Verdict == v.Explained.Verdict, "known by now: %+v", o)

	cursor = timedOut(t, d, "--for", "snapshot", "--after", v.Cursor)
	bare := strings.TrimSpace(d.ok("snapshot"))
	named := strings.TrimSpace(d.ok("snapshot", "--pid", strconv.Itoa(background(t, "sleep", "600"))))
	first := wait("snapshot", cursor)
	assert.Check(t, first.Dir == bare && first.Rule == "manual" && first.Explained.Verdict == "", "%+v", first)
	second := wait("snapshot", first.Cursor)
	assert.Check(t, second.Dir == named && strings.HasPrefix(second.Explained.Verdict, "the last "), "%+v", second)
	assert.Check(t, wait("verdict", cursor).Dir == named)
	assert.Check(t, wait("snapshot", timedOut(t, d, "--for", "verdict", "--rule", "nap", "--after", first.Cursor)).Dir == named)
	assert.Check(t, d.status().rule("nap").Outliers == 1 && len(d.events("")) == 1, "a snapshot by hand counted as an outlier")
}

// TestWaitForgotten: how many outliers were forgotten since a cursor is told.
func TestWaitForgotten(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "snapshot: false", "stacks: []")), "--outliers-rate", "0")
	cursor := timedOut(t, d)
	const n = api.DefaultRemember + 200
	naps(t, uid, n, 1500*time.Microsecond, 1)
	eventually(t, "all outliers are published", func() bool {
		list := d.events("nap")
		return len(list) == api.DefaultRemember && list[len(list)-1].Seq == n
	})
	var o struct {
		events.Outlier
		Lost uint64
	}
	a := d.verb("wait", "-o", "json", "--after", cursor, "--timeout", "20s")
	assert.NilError(t, json.Unmarshal([]byte(a.out), &o), "%+v", a)
	assert.Check(t, o.Lost == n-api.DefaultRemember && o.Seq == o.Lost+1 && strings.Contains(a.err, "200 outliers were not shown"), "%+v", a)
}
