package daemon

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/tracker/pins"
)

// pinnedHome is a home with pins whose recorder is configured by a file.
func pinnedHome(t *testing.T, dir string, rules ...string) (h *home, args []string, recorder func(text string)) {
	t.Helper()
	h = newHome(t, rulesFile(rules...))
	config := filepath.Join(h.dir, "tailcam.yaml")
	recorder = func(text string) { writeFile(t, config, "recorder: {"+text+"}\n", 0o644) }
	recorder("events: [sched, process], size: 4MiB")
	return h, []string{"--config", config, "--pin=" + dir, "--outliers-rate", "0"}, recorder
}

// endsClean stops a daemon, which leaves nothing of what was loaded.
func (d *running) endsClean(dir string, loaded objects) {
	d.t.Helper()
	maps.Copy(loaded, heldBy(d.t, d.pid()))
	d.stop(syscall.SIGTERM)
	loaded.gone(d.t)
	_, err := os.Lstat(dir)
	assert.Check(d.t, errors.Is(err, os.ErrNotExist), "the directory stays: %v", err)
	complete(d.t, d.snaps)
}

// TestPinReload: a daemon that has loaded its kernel side again for a reload, with another
// tracker, timeouts, groups and rings, is killed: the next one takes that over, with what is
// pending, and can be reloaded and killed as well.
func TestPinReload(t *testing.T) {
	dir := bpffs(t)
	uid := newUID()
	h, args, recorder := pinnedHome(t, dir, napRule("nap", uid))
	d := h.start(t, args...)
	held := heldBy(t, d.pid())
	naps(t, uid, 1, 10*time.Millisecond, 1)
	eventually(t, "it is told", func() bool { return len(d.events("nap")) == 1 })
	disk := entry("disk", "block", "1h", "{op: [read]}")
	late := entry("late", "wakeup", "1h", "{comm: nobody}", "timeout: 1h", "stacks: [kernel, waker]")
	told := 1
	for _, step := range []struct {
		recorder string
		rules    []string
	}{
		{"events: [sched, process, timer], size: 8MiB", []string{napRule("nap", uid), disk, late}},
		{"events: [sched, process, timer, lock], size: 4MiB", []string{napRule("nap", uid), disk, late, entry("irq", "irq", "1h", "{comm: nobody}")}},
	} {
		writeFile(t, h.rules, rulesFile(step.rules...), 0o644)
		recorder(step.recorder)
		reloading := linux.Monotonic()
		d.ok("reload")
		landmark := runTrue(t)
		size := d.status().Recorder.SizeBytes
		pending := sleeping(t, uid, 3*time.Second)
		maps.Copy(held, heldBy(t, d.pid()))
		d.kill()
		killed := linux.Monotonic()

		naps(t, uid, 5, 10*time.Millisecond, 1)
		ended := pending.Wait()
		d = h.start(t, args...)
		s := d.status()
		assert.Assert(t, s.Pins != nil && s.Pins.TakenOver && s.Pins.Where == dir, "%+v", s.Pins)
		assert.Check(t, d.log.has("took over the kernel side"), "the log does not tell")
		assert.Equal(t, s.Recorder.SizeBytes, size)
		eventually(t, "the outliers of the gap are told", func() bool { return len(d.events("nap")) == 6 })
		told += 6
		found := false
		for _, o := range d.events("nap") {
			found = found || o.StartMono >= ended[0].Start && o.EndMono <= ended[0].End
		}
		assert.Check(t, found && ended[0].Start < killed, "what was pending is not told")
		m, trace := checkSnapshot(t, byHand(d, "after the kill"))
		for _, c := range m.Coverage {
			assert.Check(t, c.FromMonoNS < killed && len(c.Gaps) == 0, "CPU %d: not the history of before the kill: %+v", c.CPU, c)
			assert.Check(t, c.FromMonoNS > reloading, "CPU %d: it claims what is not in its new ring: %+v", c.CPU, c)
		}
		knows(t, trace, landmark, killed)
		assert.Check(t, s.rule("nap").Outliers == uint64(told), "%d outliers, want %d", s.rule("nap").Outliers, told)
		naps(t, uid, 2, 10*time.Millisecond, 1)
		eventually(t, "new outliers are told", func() bool { return len(d.events("nap")) == 8 })
		told += 2
	}
	d.endsClean(dir, held)
}

// TestPinReloadBack: what is loaded for rules that have gone stays. A daemon with the rules
// that are left goes on without it, and says so.
func TestPinReloadBack(t *testing.T) {
	dir := bpffs(t)
	uid := newUID()
	h, args, _ := pinnedHome(t, dir, napRule("nap", uid))
	d := h.start(t, args...)
	for _, more := range [][]string{{entry("disk", "block", "1h", "{op: [read]}")}, nil} {
		writeFile(t, h.rules, rulesFile(append([]string{napRule("nap", uid)}, more...)...), 0o644)
		d.ok("reload")
	}
	held := heldBy(t, d.pid())
	d.kill()
	d = h.start(t, args...)
	s := d.status()
	assert.Check(t, s.Pins != nil && s.Pins.TakenOver && strings.Contains(s.Pins.Programs, "track_block"), "%+v", s.Pins)
	naps(t, uid, 2, 10*time.Millisecond, 1)
	eventually(t, "outliers are told", func() bool { return len(d.events("nap")) == 2 })
	d.endsClean(dir, held)
}

// awaitChange returns while programs change places, or when done.
func awaitChange(dir string, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
		}
		if _, err := os.Lstat(filepath.Join(dir, pins.Complete)); err != nil {
			return
		}
	}
}

// TestPinKilledReloading kills daemons at random moments of a reload that loads the kernel
// side again, and while programs change places: the next one takes over or loads anew, says which, and detects.
func TestPinKilledReloading(t *testing.T) {
	dir := bpffs(t)
	uid := newUID()
	h, args, recorder := pinnedHome(t, dir, napRule("nap", uid))
	d := h.start(t, args...)
	held := objects{}
	how := map[string]int{}
	for round := range 16 {
		rules := []string{napRule("nap", uid)}
		if round%4 < 2 {
			rules = append(rules, entry("disk", "block", "1h", "{op: [read]}", "timeout: 1h"))
		}
		writeFile(t, h.rules, rulesFile(rules...), 0o644)
		recorder([]string{"events: [sched, process], size: 4MiB", "events: [sched, timer], size: 2MiB"}[round%2])
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.verb("reload") // it is killed meanwhile, perhaps
		}()
		if round%2 == 0 {
			time.Sleep(time.Duration(rand.IntN(2500)) * time.Millisecond)
		} else {
			awaitChange(dir, done)
		}
		d.pause()
		maps.Copy(held, heldBy(t, d.pid()))
		d.kill()
		<-done
		d = h.start(t, args...)
		s := d.status()
		said := d.log.has("took over the kernel side") || d.log.has("loaded the kernel side anew")
		assert.Check(t, s.Pins != nil && said && s.Pins.TakenOver == (s.Pins.Reason == ""), "%+v", s.Pins)
		how[s.Pins.Reason]++
		naps(t, uid, 2, 10*time.Millisecond, 1)
		eventually(t, "outliers are told", func() bool { return len(d.events("nap")) == 2 })
		checkSnapshot(t, byHand(d, "after the kill"))
	}
	t.Logf("%d daemons took over; the others loaded anew: %v", how[""], how)
	torn := 0
	for reason, n := range how {
		if strings.Contains(reason, "not complete") {
			torn += n
		}
	}
	assert.Check(t, torn > 0, "none was killed while programs changed places: %v", how)
	d.endsClean(dir, held)
}
