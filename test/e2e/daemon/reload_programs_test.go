package daemon

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
)

// TestReloadPrograms: trackers, timeouts, groups and the recorder's size that were not
// there at the start come with a reload, while a thousand outliers of a rule that stays are
// each counted once; a rule whose hook is not there is refused alone; the history of before
// is in the next snapshot.
func TestReloadPrograms(t *testing.T) {
	needRoot(t)
	uid := newUID()
	stays := napRule("stays", uid, "snapshot: false")
	h := newHome(t, rulesFile(stays))
	config := filepath.Join(h.dir, "tailcam.yaml")
	recorder := func(text string) { writeFile(t, config, "recorder: {"+text+"}\n", 0o644) }
	recorder("events: [sched], size: 4MiB")
	d := h.start(t, "--config", config, "--outliers-rate", "0")
	before := d.status()
	reload := func(code int, want ...string) {
		t.Helper()
		check, a := d.verb("check", "--diff"), d.verb("reload")
		assert.Equal(t, a.code, code, "%s%s", a.out, a.err)
		assert.Equal(t, check.code, code, "check --diff: %s%s", check.out, check.err)
		for _, text := range want {
			assert.Check(t, strings.Contains(a.out+a.err, text), "%q is not in\n%s%s", text, a.out, a.err)
		}
	}

	const n = 1000
	done := make(chan struct{})
	go func() {
		defer close(done)
		naps(t, uid, n, 10*time.Millisecond, 1)
	}()
	late := entry("late", "wakeup", "1h", "{comm: nobody}", "timeout: 1h", "stacks: [kernel, waker]")
	writeFile(t, h.rules, rulesFile(stays, late), 0o644)
	reload(0, "added: rule late")
	missing := "  - {name: missing, track: pair, entry: 'fentry:no_such_function', exit: 'fexit:no_such_function', key: tid, threshold: 1s}\n"
	writeFile(t, h.rules, rulesFile(stays, late, missing, entry("disk", "block", "1h", "{op: [read]}")), 0o644)
	reload(1, "added: rule disk", "refused: rule missing", "no_such_function")
	assert.Equal(t, names(d), "stays late disk")
	writeFile(t, h.rules, rulesFile(stays, late, entry("disk", "block", "1h", "{op: [read]}")), 0o644)
	reload(0)

	// The recorder: more groups, then more room.
	recorder("events: [sched, timer], size: 4MiB")
	reload(0, "changed: key recorder.events")
	changed := linux.Monotonic()
	recorder("events: [sched, timer], size: 8MiB")
	reload(0, "changed: key recorder.size")
	s := d.status()
	assert.Equal(t, s.Recorder.SizeBytes, 2*before.Recorder.SizeBytes)
	assert.Equal(t, fmt.Sprint(s.Recorder.Groups), "[sched timer]")
	var records, lost uint64
	for _, c := range s.Recorder.CPUs {
		records, lost = records+c.Records, lost+c.Lost
	}
	assert.Check(t, records > 0 && lost == 0, "%d records, %d lost", records, lost)
	dir := strings.TrimSpace(d.ok("snapshot"))
	of := map[string]int{}
	events := readTrace(t, dir)
	for i := range events {
		if name, _, _ := strings.Cut(events[i].name, "_"); true {
			of[name]++
		}
	}
	assert.Check(t, len(events) > 0 && events[0].time < changed, "the history of before the change is not there")
	assert.Check(t, of["sched"] > 0 && of["timer"] > 0, "events: %v", of)
	recorder("events: [sched], size: 128KiB, backend: perf")
	reload(1, "changed: key recorder.size", "refused: key recorder.backend: restart tailcam to change this key")
	<-done
	settled(t, d, "stays", n)
}
