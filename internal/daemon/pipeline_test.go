package daemon

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// rig is a pipeline whose outliers come from a test, with a clock that stands still.
type rig struct {
	*pipeline
	clock time.Time
	in    chan any // *events.Outlier, or an error, or what to panic with

	mu   sync.Mutex
	told []events.Outlier
}

func newRig(enrich func(o *events.Outlier)) *rig {
	r := &rig{clock: time.Unix(1000, 0), in: make(chan any, 100000)}
	tell := func(o *events.Outlier) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, *o)
	}
	r.pipeline = (&pipeline{
		read: func() (*events.Outlier, error) {
			switch v := (<-r.in).(type) {
			case *events.Outlier:
				return v, nil
			case error:
				return nil, v
			case nil:
				return nil, os.ErrClosed
			default:
				panic(v)
			}
		},
		submit: func(*events.Outlier) {}, enrich: enrich, publish: tell, complete: tell,
		guard: guard.New(nil), log: zap.NewNop(), now: func() time.Time { return r.clock }, run: "run",
	}).prepare()
	return r
}

// outlierOf is one of a process that ended just now.
func (r *rig) outlierOf(pid, uid int, delay int64) *events.Outlier {
	return &events.Outlier{
		Time: r.clock, Rule: fmt.Sprintf("rule%d", pid), DelayNS: delay, Task: events.Task{PID: pid, TID: pid, UID: uid},
		Raw: events.RawStacks{User: []uint64{0x1000}},
	}
}

// nameNext names the outlier whose turn it is, as a worker does.
func (r *rig) nameNext(took time.Duration) {
	t, ok := r.queue.Next()
	if ok {
		r.name(t.Item)
		t.Done(took)
	}
}

func (r *rig) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for i := range r.told {
		o := &r.told[i]
		out = append(out, fmt.Sprintf("%s pid %d: %s%s%v", o.ID, o.Task.PID,
			map[bool]string{true: "partial "}[o.Partial], map[bool]string{true: "completed "}[o.Completed], o.Stacks.User))
	}
	return out
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	assert.Check(t, slices.Equal(got, want), "got  %q\nwant %q", got, want)
}

func named(o *events.Outlier) {
	o.Enrichment.Learn(func(o *events.Outlier) { o.Stacks.User = []string{"main+0x1"} })
}

// What is named in time is told once, as soon as it is.
func TestToldWhenNamed(t *testing.T) {
	r := newRig(named)
	r.accept(r.outlierOf(1, 0, 5))
	want(t, r.list())
	r.nameNext(0)
	want(t, r.list(), "run-1 pid 1: [main+0x1]")
	r.clock = r.clock.Add(time.Hour)
	r.publishDue()
	want(t, r.list(), "run-1 pid 1: [main+0x1]")
	assert.Check(t, r.late.get("rule1") == 0, "told late")
}

// What is not is told at its deadline with addresses, and completed later.
func TestToldAtDeadline(t *testing.T) {
	r := newRig(named)
	r.accept(r.outlierOf(1, 0, 5))
	wait := r.publishDue()
	assert.Check(t, wait == publishAfter, "looks again in %s", wait)
	r.clock = r.clock.Add(publishAfter - 1)
	r.publishDue()
	want(t, r.list())
	r.clock = r.clock.Add(1)
	r.publishDue()
	first := "run-1 pid 1: partial [[unknown] 0x1000]"
	want(t, r.list(), first)
	r.nameNext(0)
	want(t, r.list(), first, "run-1 pid 1: completed [main+0x1]")
	assert.Check(t, r.late.get("rule1") == 1 && r.skipped.get("rule1") == 0,
		"late %d, skipped %d", r.late.get("rule1"), r.skipped.get("rule1"))
}

// One that was read late has less time, but has some.
func TestDeadline(t *testing.T) {
	read := time.Unix(1000, 0)
	for ago, left := range map[time.Duration]time.Duration{
		0: publishAfter, 100 * time.Millisecond: publishAfter - 100*time.Millisecond, 190 * time.Millisecond: minNamingTime,
		time.Hour: minNamingTime, -time.Hour: publishAfter, // the clock was set
	} {
		got := deadline(read.Add(-ago), read).Sub(read)
		assert.Check(t, got == left, "%s after its end: %s left, want %s", ago, got, left)
	}
}

// One process whose naming does not return delays nobody else, and its own are
// told in their order.
func TestStuckProcess(t *testing.T) {
	release := make(chan struct{})
	r := newRig(func(o *events.Outlier) {
		if o.Task.PID == 1 {
			<-release
		}
		named(o)
	})
	r.now = time.Now
	done := make(chan error, 1)
	go func() { done <- r.serve() }()
	for n := range 20 {
		o := r.outlierOf(1, 0, int64(n))
		o.Time = time.Now()
		r.in <- o
	}
	for pid := 2; pid < 200; pid++ {
		o := r.outlierOf(pid, pid%3, 0)
		o.Time = time.Now()
		r.in <- o
	}
	count := func(pid int) (n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i := range r.told {
			if (r.told[i].Task.PID == 1) == (pid == 1) && !r.told[i].Completed {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(30 * time.Second); count(0) < 198 || count(1) < 20; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("told of %d others and %d of the stuck process", count(0), count(1))
		}
	}
	close(release)
	close(r.in)
	assert.NilError(t, <-done)
	r.mu.Lock()
	defer r.mu.Unlock()
	last, completed := uint64(0), 0
	for i := range r.told {
		o := &r.told[i]
		switch {
		case o.Task.PID != 1:
		case o.Completed:
			completed++
		case o.Seq <= last:
			t.Errorf("%s after %d", o.ID, last)
		default:
			last = o.Seq
		}
	}
	assert.Check(t, completed == 20, "%d of 20 were completed", completed)
}

// A process has more outliers than can be named: each is told of, in its turn,
// and that it has no names is counted.
func TestNamesSkipped(t *testing.T) {
	r := newRig(named)
	const n = 3000
	for range n {
		r.accept(r.outlierOf(1, 0, 0))
	}
	skipped := r.skipped.get("rule1")
	assert.Assert(t, skipped != 0 && skipped != n, "%d skipped", skipped)
	r.accept(r.outlierOf(2, 0, 0)) // another process still finds room
	assert.Check(t, r.skipped.get("rule2") == 0, "that of another process was skipped")
	for range 2 {
		r.nameNext(0)
	}
	want(t, r.list(), "run-1 pid 1: [main+0x1]", "run-3001 pid 2: [main+0x1]")
	r.clock = r.clock.Add(publishAfter)
	r.publishDue()
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Check(t, len(r.told) == n+1, "told of %d", len(r.told))
	for i, o := range r.told[2:] {
		assert.Assert(t, o.Seq == uint64(i+2) && o.Partial, "%d: %+v", i, o)
	}
	l := r.deadlines.list
	assert.Check(t, len(l) == 0, "%d still wait", len(l))
}

// However many wait for their deadline, memory is bounded: the oldest is told.
func TestWaitingIsBounded(t *testing.T) {
	r := newRig(named)
	for i := range maxDeadlines + 10 {
		r.accept(r.outlierOf(i, i, 0))
	}
	assert.Check(t, len(r.deadlines.list) == maxDeadlines, "%d wait", len(r.deadlines.list))
	got := r.list()
	assert.Check(t, len(got) == 10 && got[0] == "run-1 pid 0: partial [[unknown] 0x1000]", "told %q", got)
}

// Names that come too late are not looked for; nothing is told twice then.
func TestTooLateToName(t *testing.T) {
	r := newRig(func(*events.Outlier) { t.Error("named") })
	r.accept(r.outlierOf(1, 0, 0))
	r.clock = r.clock.Add(publishAfter)
	r.publishDue()
	r.clock = r.clock.Add(maxNamingDelay)
	r.nameNext(0)
	want(t, r.list(), "run-1 pid 1: partial [[unknown] 0x1000]")
	assert.Check(t, r.skipped.get("rule1") == 1, "not counted")
}

// A panic costs the piece of data that caused it.
func TestPanics(t *testing.T) {
	r := newRig(func(o *events.Outlier) {
		named(o)
		if o.DelayNS == 1 {
			panic("naming")
		}
	})
	published := r.publish
	r.publish = func(o *events.Outlier) {
		if o.DelayNS == 2 {
			panic("publish")
		}
		published(o)
	}
	r.submit = func(o *events.Outlier) {
		if o.DelayNS == 3 {
			panic("submit")
		}
	}
	r.now = time.Now
	for n := range int64(5) {
		r.in <- r.outlierOf(1, 0, n)
	}
	r.in <- "decode"
	r.in <- fmt.Errorf("%w: of 3 bytes", tracker.ErrSample)
	r.in <- r.outlierOf(1, 0, 5)
	close(r.in)
	assert.NilError(t, r.serve())
	var got []int64
	for i := range r.told {
		if !r.told[i].Completed {
			got = append(got, r.told[i].DelayNS)
		}
		o := &r.told[i]
		assert.Check(t, (o.DelayNS == 1) == o.Partial && (o.Stacks.User[0] == "main+0x1" || o.Partial), "%+v", o)
	}
	assert.Check(t, slices.Equal(got, []int64{0, 1, 3, 4, 5}), "told of %v", got)
	assert.Check(t, r.unusable.Load() == 2 && r.dropped.get("rule1") == 1,
		"unusable %d, dropped %d", r.unusable.Load(), r.dropped.get("rule1"))
	counts := map[string]uint64{}
	for _, c := range r.guard.Counts() {
		if c.Count > 0 {
			counts[c.Place] = c.Count
		}
	}
	for _, place := range []string{"decode", "naming", "publish", "snapshot"} {
		assert.Check(t, counts[place] == 1, "%d panics in %s", counts[place], place)
	}
}

// Any other error of the kernel side ends the daemon.
func TestReadFails(t *testing.T) {
	r := newRig(named)
	broken := errors.New("broken")
	r.in <- broken
	assert.Check(t, is.ErrorIs(r.serve(), broken))
}

func TestDropCounter(t *testing.T) {
	var c ruleCounter
	c.add("a")
	c.add("a")
	assert.Check(t, c.get("a") == 2 && c.get("b") == 0, "a %d, b %d", c.get("a"), c.get("b"))
}
