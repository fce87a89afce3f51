package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestPinPrograms: a daemon of another version whose maps hold the same, or that needs
// other programs, goes on with history, pending work, counters and outliers of the one
// before, and tells each outlier once.
func TestPinPrograms(t *testing.T) {
	dir := bpffs(t)
	uid := newUID()
	nap := napRule("nap", uid, "snapshot: {after: 5ms, every: 1s}")
	disk := entry("disk", "block", "10s", "{op: [write, flush]}")
	other := entry("other", "wakeup", "10s", "{uid: "+strconv.Itoa(uid)+"}")
	for _, c := range []struct {
		name, reason  string
		before, after []string // rules
		args          []string // of the second daemon, beside those of the first
	}{
		{name: "another version", reason: "those were of tailcam v0.0.1", before: []string{nap, other}, after: []string{nap, other}},
		{name: "a tracker more", reason: "track_block", before: []string{nap}, after: []string{nap, disk}},
		{name: "a tracker less", reason: "track_", before: []string{nap, disk, other}, after: []string{nap}},
		{name: "other groups", reason: "record_", before: []string{nap}, after: []string{nap}, args: []string{"--recorder-events", "sched,block,process,workqueue"}},
		{name: "other tables", reason: "task_mask", before: []string{nap, other}, after: []string{nap, other}, args: []string{"--capacity-initial-tasks", "4096"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHome(t, rulesFile(append(c.before, declaredRule(uid))...))
			args := []string{"--pin=" + dir, "--recorder-size", "16MiB"}
			d := h.start(t, args...)
			objects := heldBy(t, d.pid())
			naps(t, uid, 3, 10*time.Millisecond, 1)
			eventually(t, "three outliers are told", func() bool { return len(d.events("nap")) == 3 })
			eventually(t, "their snapshot is there", func() bool { return len(d.list()) > 0 })
			landmark := runTrue(t)
			pending := sleeping(t, uid, 3*time.Second)
			d.kill()
			killed := linux.Monotonic()
			gap := naps(t, uid, 5, 10*time.Millisecond, 1)
			writeFile(t, h.rules, rulesFile(append(c.after, declaredRule(uid))...), 0o644)
			if c.args == nil && slices.Equal(c.before, c.after) {
				changeRecord(t, dir, map[string]any{"ABI": "0123", "Version": "v0.0.1"})
			}
			d = h.start(t, append(args, c.args...)...)
			s := d.status()
			assert.Assert(t, s.Pins != nil && s.Pins.TakenOver && s.Pins.Where == dir, "%+v", s.Pins)
			assert.Check(t, strings.Contains(s.Pins.Programs, c.reason), "%+v", s.Pins)
			assert.Check(t, d.log.has("the programs of this daemon have taken the place of those before"), "the log does not tell")
			_, trace := checkSnapshot(t, byHand(d, "after the kill"))
			knows(t, trace, landmark, killed)
			want := append(slices.Clone(gap), pending.Wait()...)
			eventually(t, "the outliers of the gap are told", func() bool { return len(d.events("nap")) >= len(want) })
			told := map[uint64]bool{}
			for _, o := range d.events("nap") {
				assert.Check(t, !told[o.StartMono], "told twice: %+v", o)
				told[o.StartMono] = true
				assert.Check(t, slices.ContainsFunc(want, func(e inject.Event) bool { return o.StartMono >= e.Start && o.EndMono <= e.End }),
					"this was before the kill, or never: %+v", o)
			}
			assert.Equal(t, len(told), len(want))
			eventually(t, "the declared pair's are told", func() bool { return len(d.events("declared")) >= len(want) })
			assert.Check(t, len(d.events("declared")) == len(want) && slices.ContainsFunc(d.events("declared"), func(o events.Outlier) bool {
				return o.StartMono < killed && o.EndMono > killed
			}), "told of the declared pair: %+v, want %+v", d.events("declared"), want)
			assert.Check(t, d.status().rule("nap").Outliers == uint64(3+len(want)), "the counters began anew: %+v", d.status().rule("nap"))

			naps(t, uid, 2, 10*time.Millisecond, 1)
			eventually(t, "new outliers are told", func() bool { return len(d.events("nap")) == len(want)+2 })
			if c.name == "a tracker more" {
				eventually(t, "the new tracker sees the disk", func() bool {
					writeFile(t, filepath.Join(h.dir, "synced"), "x", 0o600)
					f, err := os.Open(filepath.Join(h.dir, "synced"))
					assert.NilError(t, err)
					assert.Check(t, f.Sync())
					assert.Check(t, f.Close())
					return d.status().rule("disk").Seen > 0
				})
			}

			// The next one finds what it needs.
			d.kill()
			d = h.start(t, append(args, c.args...)...)
			s = d.status()
			assert.Check(t, s.Pins != nil && s.Pins.TakenOver && s.Pins.Programs == "", "%+v", s.Pins)
			naps(t, uid, 1, 10*time.Millisecond, 1)
			eventually(t, "outliers are told", func() bool { return len(d.events("nap")) >= 1 })
			d.stop(syscall.SIGTERM)
			objects.gone(t)
			_, err := os.Lstat(dir)
			assert.Check(t, os.IsNotExist(err), "the directory stays: %v", err)
		})
	}
}
