package daemon

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
)

// senseless are rules of most trackers that fire at nearly every event.
func senseless() []string {
	const calls = "{syscall: [read, write, futex, openat, mmap, poll]}"
	return []string{
		entry("s-wakeup", "wakeup", "1us", `{comm: ["*"]}`, "stacks: [kernel, user, waker]", "snapshot: {after: 5ms, every: 1s, burst: 3}"),
		entry("s-offcpu", "offcpu", "1us", `{comm: ["*"]}`, "stacks: [kernel, user, waker]", "snapshot: {after: 5ms, every: 1s, burst: 3}"),
		entry("s-syscall", "syscall", "1us", calls, "stacks: [kernel, user]", "snapshot: {after: 5ms, every: 1s, burst: 3}"),
		entry("s-softirq", "softirq", "1us", `{comm: ["*"]}`, "snapshot: false"),
		entry("s-stuck", "offcpu", "10ms", `{comm: ["*"]}`, "timeout: 10ms", "repeat: 10ms", "snapshot: false"),
		"  - name: s-pair\n    track: pair\n    entry: tracepoint:syscalls:sys_enter_read\n    exit: tracepoint:syscalls:sys_exit_read\n" +
			"    key: [tid]\n    threshold: 1us\n    stacks: [kernel, user]\n    snapshot: false\n",
	}
}

// TestStorm: rules that fire senselessly are paused by themselves, and say so;
// a rule beside them loses nothing, before, during and after that.
func TestStorm(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(append(senseless(), napRule("legit", uid, "snapshot: false"))...))
	told := followLate(t, d, "legit")
	stop := load(t)
	defer stop()
	injected := 0
	nap := func() {
		t.Helper()
		injected += len(naps(t, uid, 60, 5*time.Millisecond, 8))
	}
	paused := func(name string) *api.StormInfo {
		r := d.status().rule(name)
		return r.Storm
	}
	nap()
	for _, name := range []string{"s-wakeup", "s-offcpu", "s-syscall", "s-pair"} {
		eventually(t, name+" is paused", func() bool { return paused(name) != nil })
	}
	nap()
	n := d.log.count("rule paused automatically")
	assert.Check(t, n >= 4, "the log tells of %d pauses", n)
	for _, want := range []string{`it fires too often","rule":"s-syscall"`, `"per_second":`, `"p99.9":`, `"consider":"threshold: `} {
		assert.Check(t, d.log.count(want) != 0, "the log says nothing of %s", want)
	}
	text := d.ok("list", "rules")
	assert.Check(t, strings.Contains(text, "paused automatically, "), "list rules does not tell of it:\n%s", text)
	s := d.status()
	assert.Check(t, s.loss("outlier_limited", "s-syscall") != 0, "what was refused is not counted")

	// A reload of the same rules changes nothing; a threshold that makes sense ends it.
	before := paused("s-syscall")
	d.reload(reloaded)
	if now := paused("s-syscall"); before != nil && now != nil && now.Pauses < before.Pauses {
		t.Errorf("a reload forgets that it was paused %d times: %+v", before.Pauses, now)
	}
	d.ok("threshold", "set", "s-syscall", "1h")
	now := paused("s-syscall")
	assert.Check(t, now == nil, "with another threshold it is still paused: %+v", now)

	// Resumed by hand it begins anew, and is paused again. The operator's own pause is another thing.
	const pausedLine = `it fires too often","rule":"s-wakeup"`
	again := d.log.count(pausedLine)
	eventually(t, "it is resumed", func() bool {
		return paused("s-wakeup") == nil || tailcam(t, "resume", "s-wakeup", "--socket", d.socket).code == 0
	})
	eventually(t, "it is paused again", func() bool { return d.log.count(pausedLine) > again && paused("s-wakeup") != nil })
	if now := paused("s-wakeup"); now != nil && now.Pauses != 1 {
		t.Errorf("after it was resumed it is pause number %d", now.Pauses)
	}
	d.ok("pause", "s-wakeup")
	r := d.status().rule("s-wakeup")
	assert.Check(t, r.Paused && r.PausedLeftNS == 0, "the operator's pause: %+v", r)
	d.ok("resume", "s-wakeup")
	nap()
	stop()
	nap()

	eventually(t, "all of the rule beside the storm are told", func() bool { return told.count() >= injected })
	s = d.status()
	if r := s.rule("legit"); r.Outliers != uint64(injected) || told.count() != injected || len(told.again) > 0 {
		t.Errorf("%d injected, %d counted, %d told, again %v", injected, r.Outliers, told.count(), told.again)
	}
	for _, cause := range []string{"ring_buffer_full", "outlier_limited", "outlier_dropped"} {
		n := s.loss(cause, "legit")
		assert.Check(t, n <= 0, "%d outliers of the rule beside the storm were lost: %s", n, cause)
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		t.Logf("%s: %d seen, %d told, %d limited, %+v", r.Name, r.Seen, r.Outliers, r.Limited, r.Storm)
	}
}
