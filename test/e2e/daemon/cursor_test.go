package daemon

import (
	"encoding/json"
	"path/filepath"
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
	assert.Check(t, none.code == 3, "%+v", none)

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
	assert.Check(t, again.code == 0 && strings.Contains(again.err, "was restarted since the cursor"), "%+v", again)
	bad := d.verb("wait", "--after", "yesterday")
	assert.Check(t, bad.code == 1 && strings.Contains(bad.err, "invalid cursor"), "%+v", bad)
}
