package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/snapshot"
)

// byHand takes a snapshot and returns its directory.
func byHand(d *running, reason string) string {
	d.t.Helper()
	return strings.TrimSpace(d.ok("snapshot", "--reason", reason))
}

func TestKeepCount(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(napRule("nap", newUID())), "--snapshots-keep-count", "3")
	for i := range 6 {
		byHand(d, fmt.Sprint(i))
	}
	list := d.list()
	assert.Assert(t, len(list) == 3, "%d snapshots are kept, not 3", len(list))
	for i, s := range list {
		want := fmt.Sprint(3 + i)
		assert.Check(t, s.Reason == want, "snapshot %d is %q, not %q: the oldest go first", i, s.Reason, want)
		checkSnapshot(t, s.Dir)
	}
	only(t, d.snaps, 3)
}

// What is pinned outlives the rest and a restart, and status counts what went.
func TestKeepPinned(t *testing.T) {
	needRoot(t)
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	d := h.start(t, "--snapshots-keep-count", "3")
	first := byHand(d, "first")
	d.ok("snapshots", "pin", filepath.Base(first))
	byHand(d, "second")
	byHand(d, "third")
	byHand(d, "fourth")
	d.stop(syscall.SIGTERM)
	d = h.start(t, "--snapshots-keep-count", "3")
	byHand(d, "fifth")
	list := d.list()
	assert.Assert(t, len(list) == 3 && list[0].Dir == first && list[0].Pinned && list[0].Kept == snapshot.KeptPinned &&
		list[2].Reason == "fifth" && list[2].Kept == snapshot.KeptNewest, "%+v", list)
	s := d.status().Snapshots
	assert.Check(t, s.Pinned == 1 && s.Removed["count"] == 1 && s.Keep.Count == 3 && s.Keep.Worst == 3, "%+v", s)
}

func TestKeepBytes(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(napRule("nap", newUID())), "--snapshots-keep-bytes", "1MiB")
	first, last := byHand(d, "first"), ""
	for range 100 {
		last = byHand(d, "another")
		if _, err := os.Stat(first); errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	_, err := os.Stat(first)
	assert.ErrorIs(t, err, os.ErrNotExist, "after 100 more the first one is still there")
	list := d.list()
	var sum uint64
	for _, s := range list {
		sum += s.Bytes
	}
	assert.Check(t, len(list) != 0 && list[len(list)-1].Dir == last, "the last one is not kept: %+v", list)
	// What has just been written is never removed.
	assert.Check(t, sum <= 1<<20 || len(list) <= 1,
		"%d bytes in %d snapshots are kept, asked was 1 MiB", sum, len(list))
	only(t, d.snaps, len(list))
}

// TestKeepAge lets 90 seconds pass for the store alone: the shortest age is a
// minute. What the wall clock says of a snapshot does not matter.
func TestKeepAge(t *testing.T) {
	needRoot(t)
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	d := h.start(t)
	old := byHand(d, "old")
	d.stop(syscall.SIGTERM)
	path := filepath.Join(h.snaps, ".state")
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	var state map[string]any
	assert.NilError(t, json.Unmarshal(text, &state))
	state["elapsed_ns"] = int64(state["elapsed_ns"].(float64)) + int64(90*time.Second)
	text, err = json.Marshal(state)
	assert.NilError(t, err)
	writeFile(t, path, string(text), 0o640)
	stray := writeFile(t, filepath.Join(h.snaps, "notes.txt"), "somebody else's", 0o600)

	d = h.start(t, "--snapshots-keep-age", "1m")
	kept := byHand(d, "new") // retention looks whenever one comes
	_, err = os.Stat(old)
	assert.Check(t, is.ErrorIs(err, os.ErrNotExist), "a snapshot of 90 seconds ago is kept")
	for _, path := range []string{kept, stray} {
		_, err := os.Stat(path)
		assert.Check(t, err)
	}
}

// only holds that a store has so many snapshots and nothing half done.
func only(t *testing.T, dir string, want int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	n := 0
	for _, e := range entries {
		if _, err := snapshot.ParseID(e.Name()); err == nil {
			n++
		} else if e.Name() != ".lock" && e.Name() != ".state" {
			t.Errorf("%s lies in the store", e.Name())
		}
	}
	assert.Check(t, n == want, "%d snapshots in the store, not %d", n, want)
}

// TestDiskFull: a full disk stops snapshots with a line in the log, not the
// daemon, and snapshots come again when there is space.
func TestDiskFull(t *testing.T) {
	needRoot(t)
	needTool(t, "unshare", "util-linux")
	notUnderUnit(t, "the daemon's command mounts a file system first")
	for _, c := range []struct {
		name, mount string
		fill        func(dir string) (free func() error, err error)
		says        string
	}{
		// Both are seen before anything is written.
		{"bytes", "size=24m", fillBytes, "not enough free space"},
		{"files", "size=64m,nr_inodes=60", fillFiles, "inodes free"},
	} {
		t.Run(c.name, func(t *testing.T) { diskFull(t, c.mount, c.fill, c.says) })
	}
}

func diskFull(t *testing.T, mount string, fill func(string) (func() error, error), says string) {
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 5ms, every: 1ms, burst: 100}")))
	assert.NilError(t, os.Mkdir(h.snaps, 0o755))
	// In a mount namespace of its own, so that nothing can stay mounted.
	argv := append([]string{"unshare", "--mount", "sh", "-c",
		`mount -t tmpfs -o "$1" tailcam-test "$2" && shift 2 && exec "$@"`, "sh", mount, h.snaps}, h.command("--recorder-size", "512KiB")...)
	d := h.exec(t, argv)
	d.root = fmt.Sprintf("/proc/%d/root", d.pid())
	store := d.root + h.snaps

	checkSnapshot(t, d.root+byHand(d, "space"))
	free, err := fill(store)
	assert.NilError(t, err)
	naps(t, uid, 1, 10*time.Millisecond, 1)
	settled(t, d, "nap", 1)
	eventually(t, "the log tells of the full disk", func() bool {
		return d.log.has(`"message":"snapshot abandoned"`)
	})
	assert.Check(t, d.log.has(says), "%q is not in the log", says)
	a := d.verb("snapshot")
	assert.Check(t, a.code == 1 && strings.Contains(a.err, says),
		"tailcam snapshot on a full disk: exit status %d, %q", a.code, a.err)
	s := d.status()
	assert.Check(t, s.Snapshots.Count == 1 && s.Snapshots.Failed == 2 && s.loss("snapshot_failed", "") == 2,
		"status on a full disk: %+v", s.Snapshots)
	assert.NilError(t, free())
	only(t, store, 1)
	naps(t, uid, 1, 10*time.Millisecond, 1)
	settled(t, d, "nap", 2)
	eventually(t, "snapshots are taken again", func() bool { return len(d.list()) == 2 })
	checkSnapshot(t, d.root+byHand(d, "space again"))
	only(t, store, 3)
}

func fillBytes(dir string) (free func() error, err error) {
	path := filepath.Join(dir, "hog")
	return func() error { return os.Remove(path) }, fill(path)
}

// fillFiles leaves room for five more files.
func fillFiles(dir string) (free func() error, err error) {
	hog := filepath.Join(dir, "hog")
	err = fillInodes(dir)
	for i := range 5 {
		err = errors.Join(err, os.Remove(filepath.Join(hog, fmt.Sprint(i))))
	}
	return func() error { return os.RemoveAll(hog) }, err
}
