package detect

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/span"
)

// spanProgram builds the C caller with the header that is shipped.
func spanProgram(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the caller is written for x86-64")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc, to build a caller (apt install gcc libc6-dev)")
	}
	// Not t.TempDir: other users run it, too.
	dir, err := os.MkdirTemp("", "tailcam-span-")
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	assert.NilError(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "span")
	build := exec.CommandContext(t.Context(), gcc, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-static", "-pthread",
		"-I../../../clients/c", "-o", path, "testdata/span.c")
	out, err := build.CombinedOutput()
	assert.NilError(t, err, "build the caller: %v\n%s", err, out)
	return path
}

// ours is a prefix of keys that no other test run has.
func ours(t *testing.T) string { return fmt.Sprintf("t%d-%s", os.Getpid(), t.Name()[4:8]) }

func spanRule(name string, threshold time.Duration, keys ...string) rules.Rule {
	return rules.Rule{
		Name: name, Track: rules.Span, Threshold: threshold, When: rules.Match{Key: keys},
		Stacks: []rules.Stack{rules.KernelStack, rules.UserStack},
	}
}

// says runs a command to its end.
func says(t *testing.T, uid uint32, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	out, err := cmd.Output()
	assert.NilError(t, err, "%v", args)
	return out
}

// matchSpans holds what was reported against what was injected, by the key:
// each over the threshold once, within the clock of its injector.
func matchSpans(t *testing.T, threshold time.Duration, injected []inject.Event, reports []*events.Outlier) map[string]*events.Outlier {
	t.Helper()
	by := map[string]*events.Outlier{}
	for _, o := range reports {
		assert.Assert(t, o.Span != nil, "an outlier without a span: %+v", o)
		assert.Check(t, by[o.Span.Key] == nil, "span %q is reported twice", o.Span.Key)
		by[o.Span.Key] = o
	}
	for _, e := range injected {
		o := by[e.Func]
		switch {
		case o == nil:
			assert.Check(t, e.Delay() <= threshold+time.Millisecond, "span %s of %v is missing", e.Func, e.Delay())
		case o.StartMono < e.Start || o.EndMono > e.End:
			t.Errorf("span %s reported from %d to %d, injected from %d to %d", e.Func, o.StartMono, o.EndMono, e.Start, e.End)
		case o.Task.TID != e.TID || o.Task.PID != e.PID:
			t.Errorf("span %s ended by %d/%d, not %d/%d", e.Func, o.Task.PID, o.Task.TID, e.PID, e.TID)
		case o.DelayNS < threshold.Nanoseconds():
			t.Errorf("span %s reported with %d ns", e.Func, o.DelayNS)
		}
	}
	assert.Check(t, len(by) <= len(injected), "%d reports of %d spans", len(by), len(injected))
	return by
}

// Threads of C programs at once, one of them with another thread that ends.
func TestSpanC(t *testing.T) {
	needRoot(t)
	const threshold = 3 * time.Millisecond
	program, prefix := spanProgram(t), ours(t)
	c := watch(t, []rules.Rule{
		spanRule("span", threshold, prefix+"-*"),
		spanRule("other", time.Nanosecond, prefix+"?nothing", "nothing*"),
		{Name: "but", Track: rules.Span, Threshold: time.Nanosecond, When: rules.Match{Key: []string{prefix + "*hop-1?"}, NotKey: []string{"*9"}}},
	}, nil)
	var mu sync.Mutex
	var all []inject.Event
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			args := []string{program, "run", prefix, "4", "50", "4000"}
			if i == 4 {
				args = []string{program, "hop", prefix, "50", "4000"}
			}
			out := says(t, 0, args...)
			mu.Lock()
			all = append(all, parsed(t, out)...)
			mu.Unlock()
		})
	}
	wg.Wait()
	assert.Assert(t, len(all) == 4*4*50+50, "%d spans injected", len(all))
	by := map[string][]*events.Outlier{}
	for _, o := range c.settle() {
		by[o.Rule] = append(by[o.Rule], o)
	}
	found := matchSpans(t, threshold, all, by["span"])
	hops := 0
	for key, o := range found {
		assert.Check(t, o.Span.Begin.PID == o.Task.PID && o.Span.Begin.Comm == "span",
			"span %s begun by %+v, ended by %+v", key, o.Span.Begin, o.Task)
		if hop := strings.Contains(key, "-hop-"); hop == (o.Span.Begin.TID == o.Task.TID) {
			t.Errorf("span %s begun by %d, ended by %d", key, o.Span.Begin.TID, o.Task.TID)
		} else if hop {
			hops++
		}
		assert.Check(t, len(o.Raw.User) != 0, "span %s has no user stack", key)
	}
	assert.Check(t, hops >= 50 && len(by["other"]) == 0 && len(by["but"]) == 9,
		"%d spans over threads, %d with a key that none has, %d with hop-10 to 18", hops, len(by["other"]), len(by["but"]))
	k := c.counters()
	s := k.Trackers[rules.Span]
	assert.Check(t, s.Replaced <= 0 && s.TableFull <= 0 && k.Lost["span_forgotten"] <= 0, "%+v %+v", s, k.Lost)
	n := len(c.pending(rules.Span))
	assert.Check(t, n == 0, "left pending: %d", n)
}

// Goroutines, by the package.
func TestSpanGo(t *testing.T) {
	needRoot(t)
	const threshold = 2 * time.Millisecond
	prefix := ours(t)
	c := watch(t, []rules.Rule{spanRule("span", threshold, prefix+"*")}, &tracker.Options{TrackSelf: true})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []inject.Event
	for n := range 40 {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for i := range 10 {
				key := fmt.Sprintf("%s-%d-%d", prefix, n, i)
				e := inject.Event{Func: key, PID: os.Getpid(), TID: unix.Gettid(), Start: linux.Monotonic()}
				assert.Check(t, span.Begin(key))
				time.Sleep(3 * time.Millisecond)
				assert.Check(t, span.End(key))
				e.End = linux.Monotonic()
				mu.Lock()
				all = append(all, e)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	matchSpans(t, threshold, all, c.settle())
	for _, bad := range []string{"", "a\x00b", strings.Repeat("x", 64)} {
		assert.Check(t, span.Begin(bad) != nil && span.End(bad) != nil, "key %q is accepted", bad)
	}
}

// Scripts, by the functions that are shipped.
func TestSpanShells(t *testing.T) {
	needRoot(t)
	const threshold = 10 * time.Millisecond
	functions, err := filepath.Abs("../../../configs/shell/tailcam.sh")
	assert.NilError(t, err)
	for _, shell := range []string{"bash", "dash"} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("needs %s", shell)
			}
			prefix := fmt.Sprintf("t%d %s", os.Getpid(), shell) // keys may hold spaces, and more
			c := watch(t, []rules.Rule{spanRule("span", threshold, prefix+"*")}, nil)
			script := `set -eu; . "$1"
for i in 1 2 3 4 5 6 7 8; do
	tailcam_begin "$2 \$x/../$i"; sleep 0.02; (tailcam_end "$2 \$x/../$i")
done
tailcam_begin ""; tailcam_end; echo $?`
			out := says(t, 0, path, "-c", strings.Replace(script, "tailcam_end;", `tailcam_end "";`, 1), shell, functions, prefix)
			reports := c.settle()
			assert.Assert(t, len(reports) == 8 && string(out) == "0\n",
				"%d of 8 reported, printed %q", len(reports), out)
			for i, o := range reports {
				want := fmt.Sprintf(`%s $x/../%d`, prefix, i+1)
				assert.Check(t, o.Span.Key == want, "key %q, want %q", o.Span.Key, want)
				assert.Check(t, o.Span.Begin.Comm == shell && o.Task.Comm == shell &&
					o.Span.Begin.PID != o.Task.PID, "begun by %+v, ended by %+v", o.Span.Begin, o.Task)
			}
			k := c.counters().Lost
			assert.Check(t, k["span_bad_key"] >= 2, "empty keys: %+v", k)
		})
	}
}

// Two users with one key do not meet, nor two pid namespaces with one user.
func TestSpanNamespaces(t *testing.T) {
	needRoot(t)
	program, key := spanProgram(t), ours(t)
	c := watch(t, []rules.Rule{spanRule("span", time.Millisecond, key)}, nil)
	begin := func(uid uint32, namespace uintptr) (end func()) {
		cmd := exec.CommandContext(t.Context(), program, "pair", key, "5000")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Cloneflags: namespace}
		p := child.Talk(t, cmd)
		assert.Equal(t, p.Line(), "begun")
		return func() {
			p.In.Close()
			_, _ = p.Out.ReadString('\n')
			assert.NilError(t, p.Wait())
		}
	}
	before := c.counters()
	nobody := begin(65534, 0)
	other := begin(65533, 0)
	root := begin(0, 0)
	contained := begin(65534, syscall.CLONE_NEWPID)
	n := c.counters().Trackers[rules.Span].Replaced - before.Trackers[rules.Span].Replaced
	assert.Check(t, n <= 0, "%d begins met another's", n)
	for i, end := range []func(){root, nobody, contained, other} {
		end()
		reports := c.settle()
		assert.Assert(t, len(reports) == i+1, "%d ends, %d reports", i+1, len(reports))
		o := reports[i]
		want := []int{0, 65534, 65534, 65533}[i]
		assert.Check(t, o.Task.UID == want && o.Span.Begin.PID == o.Task.PID,
			"end %d: %+v, begun by %+v", i, o.Task, o.Span.Begin)
	}
}

// What programs do wrong, by mistake or not.
func TestSpanMisuse(t *testing.T) {
	needRoot(t)
	program, prefix := spanProgram(t), ours(t)
	c := watch(t, []rules.Rule{spanRule("span", time.Nanosecond, prefix+"*")}, &tracker.Options{TrackSelf: true, Spans: 64})
	before := c.counters()

	says(t, 0, program, "bad")
	n := c.counters().Lost["span_bad_key"] - before.Lost["span_bad_key"]
	assert.Check(t, n >= 6, "%d keys that are none were counted, want 6", n)

	unknown := c.counters().Lost["span_unknown"]
	assert.Check(t, span.End(prefix+"never begun"))
	assert.Check(t, c.counters().Lost["span_unknown"] != unknown, "an end without a begin was not counted")

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	key := prefix + "\x1b[2J\xff\n"
	for range 3 {
		_ = span.Begin(key) // the key is good
	}
	last := linux.Monotonic()
	_ = span.End(key)
	reports := c.settle()
	assert.Assert(t, len(reports) == 1 && reports[0].Span.Key == key && reports[0].StartMono <= last,
		"begun three times, ended once: %d reports", len(reports))
	n = c.counters().Trackers[rules.Span].Replaced - before.Trackers[rules.Span].Replaced
	assert.Check(t, n >= 2, "%d begins after begins were counted, want 2", n)

	// One user begins and begins: the oldest make way, and others have room.
	for i := range 1000 {
		_ = span.Begin(fmt.Sprintf("%s-flood-%d", prefix, i))
	}
	pending := c.pending(rules.Span)
	assert.Check(t, len(pending) <= 32, "one user has %d of 64 places", len(pending))
	forgotten := c.counters().Lost["span_forgotten"]
	lost := c.counters().Trackers[rules.Span].TableFull
	assert.Check(t, int(forgotten+lost)+len(pending) >= 1000,
		"of 1000 spans %d are pending, %d forgotten and %d lost", len(pending), forgotten, lost)
	t.Logf("of 1000 spans %d are pending, %d forgotten and %d found no room", len(pending), forgotten, lost)
}

// One key for all threads at once: whatever is reported, nothing stays.
func TestSpanStorm(t *testing.T) {
	needRoot(t)
	program, key := spanProgram(t), ours(t)
	c := watch(t, []rules.Rule{spanRule("span", time.Hour, key)}, nil)
	const threads, rounds = 16, 20000
	says(t, 0, program, "storm", key, fmt.Sprint(threads), fmt.Sprint(rounds))
	k := c.counters()
	s := k.Trackers[rules.Span]
	pending := c.pending(rules.Span)
	// Each begin is ended, replaced, pending, or made way for another; each end has met one, or none.
	if got := s.Seen + s.Replaced + uint64(len(pending)) + k.Lost["span_forgotten"] + s.TableFull; got != threads*rounds {
		t.Errorf("%d begins: %d seen, %d replaced, %d pending, %d forgotten, %d lost",
			threads*rounds, s.Seen, s.Replaced, len(pending), k.Lost["span_forgotten"], s.TableFull)
	}
	assert.Check(t, s.Seen+k.Lost["span_unknown"] == threads*rounds,
		"%d ends: %d seen, %d unknown", threads*rounds, s.Seen, k.Lost["span_unknown"])
	assert.NilError(t, exec.CommandContext(t.Context(), "true").Run())
	says(t, 0, program, "storm", key, "1", "1") // takes what is left
	pending = c.pending(rules.Span)
	assert.Check(t, len(pending) == 0, "%d places are never free again", len(pending))
}

// Thousands of keys at once.
func TestSpanMany(t *testing.T) {
	needRoot(t)
	prefix := ours(t)
	c := watch(t, []rules.Rule{spanRule("span", time.Nanosecond, prefix+"*")}, &tracker.Options{TrackSelf: true, Buffer: 64 << 20})
	const many = 5000
	for i := range many {
		_ = span.Begin(fmt.Sprintf("%s%d", prefix, i))
	}
	pending := c.pending(rules.Span)
	// A key has sixteen places. Where others have them all, the oldest of those makes way: rarely, and counted.
	forgotten := int(c.counters().Lost["span_forgotten"])
	assert.Assert(t, len(pending)+forgotten == many && forgotten <= many/500,
		"%d pending, %d forgotten", len(pending), forgotten)
	for i := range many {
		_ = span.End(fmt.Sprintf("%s%d", prefix, i))
	}
	seen := map[string]bool{}
	for _, o := range c.settle() {
		seen[o.Span.Key] = true
	}
	assert.Check(t, len(seen)+forgotten == many, "%d of %d reported, %d forgotten", len(seen), many, forgotten)
}

// A process that dies between leaves a span that times out, and that another one of the user may end.
func TestSpanTimeout(t *testing.T) {
	needRoot(t)
	program, key := spanProgram(t), ours(t)
	rule := spanRule("span", time.Second, key)
	rule.Timeout, rule.Threshold = 100*time.Millisecond, 0
	c := watch(t, []rules.Rule{rule}, &tracker.Options{TrackSelf: true})
	cmd := exec.CommandContext(t.Context(), program, "pair", key, "0")
	assert.Equal(t, child.Talk(t, cmd).Line(), "begun")
	c.eventually("the timeout", func() error {
		if n := c.counters().Rules["span"].Outliers; n != 1 {
			return fmt.Errorf("%d outliers", n)
		}
		return nil
	})
	o := c.settle()[0]
	assert.Check(t, o.Cause == events.CauseTimeout && o.Task.PID == cmd.Process.Pid &&
		o.Span.Begin.PID == cmd.Process.Pid && o.State == "interruptible",
		"%s of %+v in state %q, begun by %+v", o.Cause, o.Task, o.State, o.Span.Begin)
	assert.Check(t, len(o.Raw.Kernel) != 0 || o.Unstacked, "no kernel stack")
	assert.NilError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	assert.NilError(t, span.End(key))
	reports := c.settle()
	assert.Check(t, len(reports) == 2 && reports[1].Cause == events.CauseAfterTimeout &&
		reports[1].Task.PID == os.Getpid() && reports[1].Span.Begin.PID == cmd.Process.Pid,
		"%d reports, the last %+v", len(reports), reports[len(reports)-1])
}
