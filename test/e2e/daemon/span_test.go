package daemon

import (
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestSpanVerbs: begin and end from the command line, as nobody's scripts would.
func TestSpanVerbs(t *testing.T) {
	needRoot(t)
	key := "verbs-" + strconv.Itoa(newUID())
	d := start(t, rulesFile("  - {name: span, track: span, threshold: 50ms, when: {key: ["+key+"*]}, snapshot: false}\n"))
	say := func(status int, args ...string) answer {
		t.Helper()
		a := tailcam(t, args...)
		assert.Check(t, a.code == status, "tailcam %v: exit %d: %s%s", args, a.code, a.out, a.err)
		return a
	}
	say(0, "begin", key+"-fast")
	say(0, "begin", key+"-slow")
	say(0, "end", key+"-fast")
	time.Sleep(100 * time.Millisecond)
	say(0, "end", key+"-slow")
	say(0, "end", key+"-never-begun")
	say(2, "begin")
	say(1, "begin", "")
	eventually(t, "the slow one is reported", func() bool {
		list := d.events("span")
		return len(list) > 0 && list[len(list)-1].Span != nil && list[len(list)-1].Span.Key == key+"-slow"
	})
	for _, o := range d.events("span") {
		assert.Assert(t, o.Span != nil && o.DelayNS >= (50*time.Millisecond).Nanoseconds(), "outlier %+v", o)
		t.Logf("%s after %v, begun by %+v", o.Span.Key, time.Duration(o.DelayNS), o.Span.Begin)
	}
}
