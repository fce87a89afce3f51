package daemon

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker/events"
)

// holdNaps prepares n naps of a length.
func holdNaps(t *testing.T, uid, n int, length time.Duration, threads int) *inject.Held {
	t.Helper()
	return inject.Hold(t, inject.As(uid), napArgs(n, length, threads)...)
}

// sleeper is a rule that no nap passes, unless it is told to.
func sleeper(name string, uid int, more ...string) string {
	return entry(name, "syscall", "10s", "{uid: "+strconv.Itoa(uid)+", comm: inj-syscall, syscall: clock_nanosleep}", append(more, "snapshot: false")...)
}

// TestThresholdLive: a threshold of one process is for that process, from the
// moment that the verb returns until it is cleared or ends by itself.
func TestThresholdLive(t *testing.T) {
	needRoot(t)
	uid := newUID()
	const n, length = 20, 10 * time.Millisecond
	d := start(t, rulesFile(sleeper("naps", uid), sleeper("other", uid)))
	chosen, passed := holdNaps(t, uid, n, length, 4), holdNaps(t, uid, n, length, 4)
	pid := strconv.Itoa(chosen.PID())
	d.ok("threshold", "set", "naps", "--when", "pid="+pid, "--when", "comm=inj-*", "2ms")
	list := lines[api.ThresholdInfo](t, d.ok("threshold", "list", "-o", "json"))
	assert.Check(t, len(list) == 1 && list[0].Rule == "naps" && list[0].ThresholdNS == 2e6 && list[0].LeftNS == 0 &&
		list[0].By == "uid 0" && list[0].When["pid"][0] == pid, "list: %+v", list)
	chosen.LetGo()
	passed.LetGo()
	want := len(chosen.Wait())
	passed.Wait()
	outliers := settled(t, d, "naps", want)
	for i := range outliers {
		assert.Check(t, strconv.Itoa(outliers[i].Task.PID) == pid && outliers[i].ThresholdNS == 2e6,
			"an outlier of process %d with threshold %d", outliers[i].Task.PID, outliers[i].ThresholdNS)
	}
	s := d.status()
	got := s.rule("naps")
	assert.Check(t, got.Outliers == uint64(want) && got.Set == 1 && got.ThresholdNS == 10e9, "status: %+v", got)

	// For all, over a reload, and cleared.
	d.ok("threshold", "set", "naps", "3ms")
	naps(t, uid, n, length, 4)
	want += n
	settled(t, d, "naps", want)
	d.reload(reloaded)
	got = d.status().rule("naps")
	assert.Check(t, got.Set == 2 && got.ThresholdNS == 3e6, "after a reload: %+v", got)
	if got := d.ok("threshold", "clear", "naps"); got != "2 cleared\n" {
		t.Errorf("clear: %q", got)
	}
	naps(t, uid, n, length, 4)
	settled(t, d, "naps", want)
	if n := len(settled(t, d, "other", 0)); n != 0 {
		t.Errorf("the other rule fired %d times", n)
	}

	// It ends by itself.
	d.ok("threshold", "set", "naps", "3ms", "--for", "300ms")
	eventually(t, "it expires", func() bool { return d.ok("threshold", "list", "-o", "json") == "" })
	naps(t, uid, n, length, 4)
	settled(t, d, "naps", want)
	assert.Check(t, d.log.has(`"settings":["threshold 3 of rule naps: expired"]`),
		"the log does not tell that it expired")

	// A rule that a reload takes away takes its settings along.
	d.ok("threshold", "set", "other", "3ms")
	d.ok("pause", "other")
	writeFile(t, d.rules, rulesFile(sleeper("naps", uid)), 0o644)
	d.reload(reloaded)
	assert.Check(t, d.log.has(`"settings":["threshold 4 of rule other: the rule is gone","pause of rule other: the rule is gone"]`),
		"the log does not tell what was dropped")
}

// TestTimeoutLive: a timeout of one process reports its work while it is stuck.
func TestTimeoutLive(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(sleeper("naps", uid, "timeout: 1m")))
	const n, length = 4, 400 * time.Millisecond
	chosen, passed := holdNaps(t, uid, n, length, 2), holdNaps(t, uid, n, length, 2)
	pid := strconv.Itoa(chosen.PID())
	d.ok("threshold", "set", "naps", "--when", "pid="+pid, "--timeout", "20s", "10s")
	d.ok("threshold", "set", "naps", "--when", "pid="+pid, "--timeout", "100ms", "50ms") // in its place
	chosen.LetGo()
	passed.LetGo()
	chosen.Wait()
	passed.Wait()
	causes := map[events.Cause]int{}
	outliers := settled(t, d, "naps", 2*n)
	for i := range outliers {
		o := &outliers[i]
		causes[o.Cause]++
		assert.Check(t, strconv.Itoa(o.Task.PID) == pid && o.ThresholdNS == 100e6,
			"an outlier of process %d, limit %d", o.Task.PID, o.ThresholdNS)
	}
	assert.Check(t, causes[events.CauseTimeout] == n && causes[events.CauseAfterTimeout] == n,
		"%d naps: %v", n, causes)
}

// TestThresholdMistakes: what is wrong changes nothing.
func TestThresholdMistakes(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(sleeper("naps", newUID())))
	const durations = "; allowed: a duration from 1us to 1h, such as 5ms\n"
	for _, k := range []struct{ args, want string }{
		{"set nosuch 2ms", "unknown rule \"nosuch\": the daemon has naps\n"},
		{"set naps 0s", "rule naps: threshold is zero" + durations},
		{"set naps -- -2ms", "rule naps: threshold -2ms is negative" + durations},
		{"set naps", "rule naps: nothing to set; allowed: a threshold, such as 2ms, a timeout, or both\n"},
		{"set naps 2ms --when device=sda", "rule naps: device does not apply to track syscall; allowed: track block\n"},
		{"set naps 2ms --when pid=root", "rule naps: pid is a string; allowed: an integer from 1 to 4194304\n"},
		{"set naps 2ms --for 1ms", "for 1ms is too short; allowed: a duration from 100ms to 720h, such as 5ms\n"},
		{"clear naps 7", "rule naps has no threshold 7 set: see tailcam threshold list\n"},
		{"clear naps --ratchet", "rule naps has no ratchet\n"},
	} {
		a := tailcam(t, slices.Concat([]string{"threshold"}, strings.Fields(k.args)[:1], []string{"--socket", d.socket}, strings.Fields(k.args)[1:])...)
		assert.Check(t, a.code == 1 && a.out == "" && a.err == "tailcam: "+k.want,
			"%s: %d %q %q", k.args, a.code, a.out, a.err)
	}
	a := d.verb("resume", "naps")
	assert.Check(t, a.code == 1 && a.err == "tailcam: rule naps is not paused\n", "resume: %+v", a)
	c := api.NewClient(d.socket)
	defer c.Close()
	for i := range 256 {
		_, err := c.SetThreshold(t.Context(), &api.ThresholdRequest{Rule: "naps", When: map[string][]string{"pid": {strconv.Itoa(i + 1)}}, Threshold: "1s"})
		assert.NilError(t, err)
	}
	if a := d.verb("threshold", "set", "naps", "1s", "--when", "pid=500"); a.code != 1 || a.err != "tailcam: 256 thresholds are set already: clear some of them (see tailcam threshold list)\n" {
		t.Errorf("one more: %+v", a)
	}
	got := d.ok("threshold", "clear", "--all")
	assert.Check(t, got == "256 cleared\n", "clear: %q", got)
	d.ok("threshold", "set", "naps", "--timeout", "1s", "2ms") // the first timeout there is
}

// TestPauseLive: a paused rule fires nothing, its neighbour everything.
func TestPauseLive(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("stays", uid, "snapshot: false"), napRule("paused", uid, "snapshot: false")))
	const n, length = 20, 5 * time.Millisecond
	both := func(stays, paused int) {
		t.Helper()
		naps(t, uid, n, length, 4)
		settled(t, d, "stays", stays)
		settled(t, d, "paused", paused)
	}
	both(n, n)
	d.ok("pause", "paused")
	both(2*n, n)
	d.reload(reloaded)
	both(3*n, n)
	s := d.status()
	got := s.rule("paused")
	assert.Check(t, got.Paused && got.PausedLeftNS == 0 && got.Outliers == n, "status: %+v", got)
	d.ok("resume", "paused")
	both(4*n, 2*n)
	d.ok("pause", "paused", "--for", "1h")
	got = d.status().rule("paused")
	assert.Check(t, got.Paused && got.PausedLeftNS <= int64(time.Hour) && got.PausedLeftNS >= int64(59*time.Minute),
		"status: %+v", got)
	if got := d.ok("list", "rules"); !strings.Contains(got, "paused, ") {
		t.Errorf("list rules: %s", got)
	}
	d.ok("pause", "paused", "--for", "300ms") // in place of the other
	eventually(t, "the pause is over", func() bool { return !d.status().rule("paused").Paused })
	both(5*n, 3*n)
}

// TestRatchetLive: only records fire, over a reload, until the ratchet is reset.
func TestRatchetLive(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("records", uid, "snapshot: false", "ratchet: true"), napRule("all", uid, "snapshot: false")))
	var longest, want int64
	for i, ms := range []int{5, 10, 7, 30, 20, 60, 15, 120} {
		naps(t, uid, 1, time.Duration(ms)*time.Millisecond, 1)
		if delay := settled(t, d, "all", i+1)[i].DelayNS; delay > longest {
			longest = delay
			want++
		}
		settled(t, d, "records", int(want))
		if i == 3 {
			d.reload(reloaded)
		}
	}
	got := d.status().rule("records")
	assert.Check(t, got.RatchetNS != nil && *got.RatchetNS == got.WorstNS && *got.RatchetNS == longest,
		"the longest took %d, status: %+v", longest, got)
	d.ok("threshold", "clear", "records", "--ratchet")
	naps(t, uid, 1, 5*time.Millisecond, 1)
	settled(t, d, "records", int(want)+1)
}

// TestThresholdStorm: thresholds come and go ten times a second while many
// threads are slow: each outlier is reported once and counted once.
func TestThresholdStorm(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("storm", uid, "snapshot: false"), sleeper("aside", uid)), "--outliers-rate", "0", "--outliers-buffer", "64MiB")
	c := api.NewClient(d.socket)
	defer c.Close()
	told := followLate(t, d, "storm")
	nap := func() (*inject.Held, <-chan error) {
		h := holdNaps(t, uid, 4800, 8*time.Millisecond, 16)
		h.LetGo()
		return h, h.Ended()
	}
	h, ended := nap()
	var injected []inject.Event
	changes := 0
	change := func(err error) {
		t.Helper()
		assert.NilError(t, err)
		changes++
	}
	set := func(rule, threshold string, when map[string][]string, lasts string) {
		t.Helper()
		_, err := c.SetThreshold(t.Context(), &api.ThresholdRequest{Rule: rule, When: when, Threshold: threshold, For: lasts})
		change(err)
	}
	for over := false; !over; { // until there were enough changes
		switch changes % 7 {
		case 0:
			set("storm", "2ms", map[string][]string{"pid": {strconv.Itoa(h.PID())}}, "")
		case 1:
			set("storm", "500us", nil, "")
		case 2:
			set("aside", "5s", map[string][]string{"comm": {"x*"}}, "250ms")
		case 3:
			set("storm", "4ms", map[string][]string{"comm": {"inj-*"}, "tid": {strconv.Itoa(h.PID())}}, "150ms")
		case 4:
			change(c.Pause(t.Context(), &api.PauseRequest{Rule: "aside", For: "100ms"}))
		case 5:
			d.signal(syscall.SIGHUP)
			changes++
		case 6:
			_, err := c.ClearThresholds(t.Context(), "", 0)
			change(err)
		}
		select {
		case err := <-ended:
			injected = append(injected, h.Events(err)...)
			if over = changes >= 20; !over {
				h, ended = nap()
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	var s *status
	eventually(t, "everything is counted", func() bool {
		s = d.status()
		return s.rule("storm").Outliers >= uint64(len(injected))
	})
	got := s.rule("storm")
	t.Logf("%d changes, %d naps", changes, len(injected))
	assert.Check(t, got.Outliers == uint64(len(injected)) && got.Lost == 0,
		"%d naps, %d changes: %+v", len(injected), changes, got)
	n := s.rule("aside").Outliers
	assert.Check(t, n == 0, "the other rule fired %d times", n)
	reported := map[[2]uint64]int{} // by thread and end
	eventually(t, "all outliers are told", func() bool { return told.count()+int(told.missed()) >= len(injected) })
	told.mu.Lock()
	defer told.mu.Unlock()
	for _, o := range told.list {
		reported[[2]uint64{uint64(o.Task.TID), o.StartMono}]++
	}
	assert.Check(t, len(reported)+int(told.lost) == len(injected) && (told.lost > 0 || len(told.again) == 0),
		"%d different outliers of %d naps, %d not read, told again: %v", len(reported), len(injected), told.lost, told.again)
	for key, n := range reported {
		assert.Check(t, n == 1, "thread %d at %d: reported %d times", key[0], key[1], n)
	}
}
