package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/stuckfs"
)

// faultyHome is a home whose snapshots lie on a file system that can be made to
// fail, or to be slow.
func faultyHome(t *testing.T, rules string) (*home, *stuckfs.Mirror) {
	t.Helper()
	notUnderUnit(t, "the file system lies in another mount namespace")
	h := newHome(t, rules)
	behind := filepath.Join(h.dir, "behind")
	assert.NilError(t, os.Mkdir(behind, 0o755))
	disk := stuckfs.MountMirror(t, behind)
	h.snaps = disk.Path() + "/snaps"
	return h, disk
}

// TestDiskErrors: a disk with errors costs the snapshots that they hit. Each is
// counted, and the log says what failed; outliers are told, what is on the disk
// stays whole, old snapshots still make way, and the next one after the errors works.
func TestDiskErrors(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h, disk := faultyHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 1ms, every: 1ms, burst: 100}")))
	d := h.start(t, "--snapshots-keep-count", "3")
	byHand(d, "before")
	failed, told := uint64(0), 0
	for _, op := range []stuckfs.Op{stuckfs.Create, stuckfs.Write, stuckfs.Sync, stuckfs.Rename} {
		disk.Fail(op)
		said := d.log.count(`"message":"snapshot abandoned"`)
		told++
		naps(t, uid, 1, 5*time.Millisecond, 1)
		settled(t, d, "nap", told)
		failed++
		eventually(t, fmt.Sprintf("a failure to %s is counted", op), func() bool {
			return d.status().loss("snapshot_failed", "") == failed
		})
		failed++
		a := d.verb("snapshot")
		assert.Check(t, a.code == 1 && strings.Contains(a.err, "input/output error"), "%s fails: %+v", op, a)
		if d.status().loss("snapshot_failed", "") != failed || !strings.Contains(d.ok("status"), "input/output error") {
			t.Errorf("%s fails: %s", op, d.ok("status"))
		}
		// The second one may be within the time of one line of the log.
		assert.Check(t, d.log.count(`"message":"snapshot abandoned"`) != said || failed > 2,
			"%s fails: the log does not say so", op)
		disk.Mend()
		byHand(d, "after "+string(op))
	}
	assert.Check(t, d.log.has("input/output error"), "the log does not say what failed")
	// What cannot be removed is told; new ones come all the same.
	disk.Fail(stuckfs.Remove)
	byHand(d, "unremovable")
	assert.Check(t, d.log.has("cannot remove a snapshot"),
		"the log does not tell of the one that is not removed") // when renaming failed
	disk.Mend()
	byHand(d, "last")
	a := tailcam(t, "snapshots", "verify", "--dir", h.snaps)
	assert.Check(t, a.code == 0, "verify: %+v", a)
	disk.Fail(stuckfs.Create, stuckfs.Write, stuckfs.Sync, stuckfs.Rename, stuckfs.Remove)
	begin := time.Now()
	d.stop(syscall.SIGTERM)
	t.Logf("TERM while all fails: ended after %s", time.Since(begin).Round(time.Millisecond))
	disk.Mend()

	d = h.start(t, "--snapshots-keep-count", "3") // and the next one clears up
	byHand(d, "another daemon")
	n := len(d.list())
	assert.Check(t, n == 3, "%d snapshots, not 3", n)
	only(t, h.snaps, 3)
}

// TestDiskSlow: a disk that takes a second and more for everything makes snapshots
// late, not outliers; all verbs answer, and TERM ends the daemon.
func TestDiskSlow(t *testing.T) {
	needRoot(t)
	all := []stuckfs.Op{stuckfs.Create, stuckfs.Write, stuckfs.Sync, stuckfs.Rename, stuckfs.Remove}
	uid := newUID()
	h, disk := faultyHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 1ms, every: 1ms, burst: 100}")))
	d := h.start(t)
	byHand(d, "before")
	follow := followLate(t, d, "nap")
	disk.Slow(4*time.Second, stuckfs.Sync)
	const n = 10
	naps(t, uid, n, 3*time.Millisecond, 1)
	eventually(t, "the outliers are told", func() bool { return follow.count() >= n })
	p50, p99, worst := follow.quantiles()
	t.Logf("told after %s (p50), %s (p99), %s (worst)", p50, p99, worst)
	s := d.status()
	assert.Check(t, s.Snapshots.Count <= 1,
		"%d snapshots are on the slow disk before the outliers are told", s.Snapshots.Count)
	eventually(t, "the disk counts as stalled", func() bool {
		return d.status().loss("snapshot_disk_stalled", "") > 0
	})
	assert.Check(t, d.log.has("does not answer"), "the log does not say that the disk does not answer")
	disk.Slow(time.Second, all...)
	answers(d, "status")
	answers(d, "events")
	eventually(t, "a snapshot has come all the same", func() bool { return d.status().Snapshots.Count >= 2 })
	naps(t, uid, 1, 3*time.Millisecond, 1)
	begin := time.Now()
	d.stop(syscall.SIGTERM)
	t.Logf("TERM while the disk is slow: ended after %s", time.Since(begin).Round(time.Millisecond))
	disk.Mend()

	d = h.start(t)
	byHand(d, "another daemon")
	a := tailcam(t, "snapshots", "verify", "--dir", h.snaps)
	assert.Check(t, a.code == 0, "verify: %+v", a)
	only(t, h.snaps, len(d.list()))
}
