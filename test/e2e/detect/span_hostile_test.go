package detect

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/span"
)

// as starts a command as a user; wait holds it against success.
func as(t *testing.T, uid uint32, args ...string) (wait func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	assert.NilError(t, cmd.Start())
	return func() {
		t.Helper()
		assert.NilError(t, cmd.Wait(), "%v", args)
	}
}

// hostile is a camera for the spans of a victim, whom others try to crowd out.
type hostile struct {
	*camera
	program, prefix string
	uid             uint32
	told            int
}

func newHostile(t *testing.T) *hostile {
	needRoot(t)
	h := &hostile{program: spanProgram(t), prefix: ours(t), uid: 61500}
	h.camera = watch(t, []rules.Rule{
		{Name: "victim", Track: rules.Span, Threshold: 15 * time.Millisecond, When: rules.Match{Key: []string{h.prefix + "v*"}}},
	}, nil)
	return h
}

// works makes 20 spans of 20 ms: all are told of.
func (h *hostile) works(when string) {
	h.t.Helper()
	out := says(h.t, h.uid, h.program, "run", h.prefix+"v", "1", "20", "20000")
	n := len(parsed(h.t, out))
	assert.Assert(h.t, n == 20, "%d spans injected", n)
	h.told += 20
	h.arrived()
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.outliers); n != h.told {
		h.t.Errorf("%s: %d of the victim's spans were told of until now, want %d", when, n, h.told)
		h.told = n
	}
}

const spanPlaces = 16384 // by default

// Users begin a million spans and end none: others lose nothing, meanwhile and afterwards.
func TestSpanFlood(t *testing.T) {
	h := newHostile(t)
	var floods []func()
	for _, uid := range []uint32{64001, 64002, 64003, h.uid + 256} {
		floods = append(floods, as(t, uid, h.program, "flood", h.prefix+"f", "250000"))
	}
	h.works("meanwhile")
	for _, wait := range floods {
		wait()
	}
	n := len(h.pending(rules.Span))
	assert.Check(t, n >= spanPlaces*9/10, "only %d places are taken: this test proves nothing", n)
	h.works("afterwards")
	k := h.counters()
	t.Logf("%d pending, %+v, %d found no room", len(h.pending(rules.Span)), k.Lost, k.Trackers[rules.Span].TableFull)
	assert.Check(t, k.Lost["span_outvied"] >= 20,
		"%d spans made way for other users: this test proves nothing", k.Lost["span_outvied"])
}

// One user may have half of the places, whichever of his ids he uses.
func TestSpanSubordinateUsers(t *testing.T) {
	h := newHostile(t)
	const users, each, first = 64, 1000, 3 << 20
	cmd := exec.CommandContext(t.Context(), h.program, "subuids", h.prefix+"s", strconv.Itoa(users), strconv.Itoa(each))
	cmd.Dir = "/"
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64010, Gid: 64010}}
	p := child.Talk(t, cmd)
	if line, err := p.Out.ReadString('\n'); line != "unshared\n" {
		_ = p.Wait()
		t.Skipf("needs user namespaces for all users: %v %s", err, &trouble)
	}
	for _, name := range []string{"uid_map", "gid_map"} { // as newuidmap does, for a user who is listed in /etc/subuid
		path := fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, name)
		assert.NilError(t, os.WriteFile(path, fmt.Appendf(nil, "0 %d 65536\n", first), 0))
	}
	_, err := io.WriteString(p.In, "\n")
	assert.NilError(t, err)
	assert.NilError(t, p.Wait(), "%s", &trouble)
	n := len(h.pending(rules.Span))
	assert.Check(t, n <= spanPlaces/2 && n >= spanPlaces/4,
		"one user has %d of %d places by %d ids", n, spanPlaces, users)
	// Another user has the rest, and where that is taken by then, some of his.
	before, outvied := len(h.pending(rules.Span)), h.counters().Lost["span_outvied"]
	as(t, 64011, h.program, "flood", h.prefix+"o", "4000")()
	n = len(h.pending(rules.Span)) - before + int(h.counters().Lost["span_outvied"]-outvied)
	assert.Check(t, n == 4000, "another user got %d places of 4000", n)
	h.works("afterwards")
}

// Users of their own come and go, at once and one after the other: each is counted for himself, and no count stays.
func TestSpanOwners(t *testing.T) {
	needRoot(t)
	program, prefix := spanProgram(t), ours(t)
	c := watch(t, []rules.Rule{{Name: "span", Track: rules.Span, Threshold: 10 * time.Millisecond, When: rules.Match{Key: []string{prefix + "none"}}}},
		&tracker.Options{Spans: 256, SpanAge: 20 * time.Millisecond})
	for range 20 {
		var all []func()
		for uid := range uint32(16) {
			all = append(all, as(t, 64100+uid, program, "storm", prefix, "4", "500"))
		}
		for _, wait := range all {
			wait()
		}
	}
	for uid := range uint32(16) {
		says(t, 64100+uid, program, "storm", prefix, "1", "1") // takes what is left
	}
	n := len(c.pending(rules.Span))
	assert.Check(t, n <= 0, "%d places are never free again", n)
	// If a count had stayed with anyone, he would not get his half of the table now.
	for uid := range uint32(16) {
		before := c.counters().Lost
		as(t, 64100+uid, program, "flood", prefix+"f", "100")()
		after := c.counters().Lost
		if n := after["span_forgotten"] - before["span_forgotten"]; n > 20 || len(c.pending(rules.Span)) < 80 {
			t.Errorf("user %d: %d of 100 spans made way for his own in an empty table, %d are pending", uid, n, len(c.pending(rules.Span)))
		}
		time.Sleep(30 * time.Millisecond)
		_, err := c.kernel.Reclaim()
		assert.NilError(t, err)
		n := len(c.pending(rules.Span))
		assert.Check(t, n <= 0, "user %d: %d spans have not expired", uid, n)
	}
}

// What nobody ends is dropped after a while, and its places are free.
func TestSpanExpires(t *testing.T) {
	needRoot(t)
	prefix := ours(t)
	c := watch(t, []rules.Rule{spanRule("span", 10*time.Millisecond, prefix+"*")}, &tracker.Options{TrackSelf: true, SpanAge: 200 * time.Millisecond})
	const old, young = 300, 50
	for i := range old {
		_ = span.Begin(fmt.Sprintf("%so%d", prefix, i))
	}
	time.Sleep(400 * time.Millisecond)
	for i := range young {
		_ = span.Begin(fmt.Sprintf("%sy%d", prefix, i))
	}
	_, err := c.kernel.Reclaim()
	assert.NilError(t, err)
	k := c.counters().Lost
	n := len(c.pending(rules.Span))
	assert.Check(t, int(k["span_expired"]) >= old && n+int(k["span_expired"]) == old+young,
		"%d of %d spans expired, %d of %d are pending", k["span_expired"], old, n, young)
	// The key may be begun again, and what is young ends as ever.
	key := prefix + "o1"
	_ = span.Begin(key)
	time.Sleep(20 * time.Millisecond)
	_ = span.End(key)
	list := c.settle()
	assert.Check(t, len(list) == 1 && list[0].Span.Key == key && list[0].DelayNS <= time.Second.Nanoseconds(),
		"%d outliers after it began anew", len(list))
}
