package daemon

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/cleanup"
)

// TestClockSteps sets the machine's clock, for less than a second each: an hour
// ahead, back, and years ahead over a restart. Snapshots go by their numbers,
// whatever time they have.
func TestClockSteps(t *testing.T) {
	needRoot(t)
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	flags := []string{"--snapshots-keep-count", "4", "--snapshots-keep-age", "30m"}
	d := h.start(t, flags...)
	var all []string
	take := func(when string) {
		t.Helper()
		path := byHand(d, when)
		all = append(all, path[strings.LastIndexByte(path, '/')+1:])
	}
	kept := func(when string) {
		t.Helper()
		var have []string
		for _, s := range d.list() {
			have = append(have, s.ID)
		}
		want := all[max(0, len(all)-4):]
		assert.Check(t, strings.Join(have, " ") == strings.Join(want, " "),
			"%s: kept %q, want %q", when, have, want)
	}
	cleanup.RestoreClock(t)
	step := func(by time.Duration) {
		t.Helper()
		if err := cleanup.StepClock(int64(by)); err != nil {
			t.Skipf("this clock cannot be set: %v", err)
		}
	}
	const years = 10 * 365 * 24 * time.Hour
	take("before")
	step(time.Hour)
	take("an hour ahead")
	step(-time.Hour)
	kept("an hour ahead")
	for range 4 {
		take("back")
		kept("back")
	}
	s := d.status()
	assert.Check(t, s.Snapshots.Last != nil && *s.Snapshots.Last == all[len(all)-1],
		"the newest is %v, not %s", s.Snapshots.Last, all[len(all)-1])
	d.stop(syscall.SIGTERM)
	step(years)
	d = h.start(t, flags...)
	take("years ahead")
	step(-years)
	kept("years ahead")
	take("after all")
	kept("after all")
}
