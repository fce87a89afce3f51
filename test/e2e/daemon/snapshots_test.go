package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/catalog"
)

// TestSnapshotsVerbs: the verbs that look after snapshots, beside a daemon that writes
// some and runs an action in one.
func TestSnapshotsVerbs(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, "")
	open := filepath.Join(h.dir, "open")
	hold := script(t, h, "hold", `: >working; until [ -e "$1" ]; do sleep 0.02; done`)
	writeFile(t, h.rules, rulesFile(napRule("nap", uid, "snapshot: {after: 5ms, every: 1h}", "actions:",
		"  - {run: ["+hold+", "+open+"], timeout: 5m, user: root}")), 0o644)
	d := h.start(t)
	first := byHand(d, "first")
	naps(t, uid, 1, 5*time.Millisecond, 1)
	eventually(t, "the action works", func() bool {
		list := d.list()
		if len(list) != 2 {
			return false
		}
		_, err := os.Stat(filepath.Join(list[1].Dir, "working"))
		return err == nil
	})
	held := d.list()[1]
	naps(t, uid, 1, 5*time.Millisecond, 1) // the limiter gives it no snapshot
	settled(t, d, "nap", 2)
	last := byHand(d, "last")
	snapshots := func(args ...string) answer { return tailcam(t, append([]string{"snapshots"}, args...)...) }

	// Without the daemon's help the directory must be named; with it, not.
	a := snapshots("verify", "--dir", d.snaps)
	assert.Check(t, a.code == 0 && strings.HasSuffix(a.out, "ok: 3 snapshots\n"), "verify: %+v", a)
	a = snapshots("verify", "--socket", d.socket, held.ID)
	assert.Check(t, a.code == 0 && strings.HasSuffix(a.out, "ok: 1 snapshot\n"),
		"verify by the daemon's directory: %+v", a)
	var story catalog.Details
	if a := snapshots("show", "--dir", d.snaps, held.ID, "-o", "json"); a.code != 0 || json.Unmarshal([]byte(a.out), &story) != nil ||
		story.Before == nil || story.Before.Dir != first || story.After == nil || story.After.Dir != last || story.Report == nil {
		t.Errorf("show: %+v", a)
	}
	a = tailcam(t, "explain", held.Dir)
	assert.Check(t, a.code == 0 && strings.Contains(a.out, "where the time went"), "explain: %+v", a)
	var top catalog.Top
	if a := tailcam(t, "top", "--socket", d.socket, "-o", "json"); a.code != 0 || json.Unmarshal([]byte(a.out), &top) != nil ||
		top.Covered.Explained != 1 || top.Covered.ExplainedNS != held.DelayNS || top.Covered.Missed != 1 || top.Covered.MissedNS < 5e6 || len(top.Rows) < 2 {
		t.Errorf("top: %+v", a)
	}

	// What an action works in stays, whoever asks; the others go.
	a = snapshots("rm", "--dir", d.snaps, held.ID)
	assert.Check(t, a.code == 1 && strings.Contains(a.err, "the snapshot is in use"), "rm of one in use: %+v", a)
	a = snapshots("prune", "--dir", d.snaps, "--keep-count", "1")
	assert.Check(t, a.code == 1 && strings.Contains(a.err, "the snapshot is in use") &&
		strings.Contains(a.out, "removed "+filepath.Base(first)), "prune: %+v", a)
	list := d.list()
	assert.Check(t, len(list) == 1 && list[0].ID == held.ID, "left: %+v", list)
	writeFile(t, open, "", 0o644)
	eventually(t, "the action has ended", func() bool { return snapshots("rm", "--dir", d.snaps, held.ID).code == 0 })
	// The daemon goes on.
	byHand(d, "after")
	only(t, d.snaps, 1)
	assert.Check(t, !d.log.has("cannot remove a snapshot"), "the daemon stumbled over what others removed")
}
