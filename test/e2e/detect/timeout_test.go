package detect

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/rules"
	injectors "github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker/events"
)

// timed is what was reported of one piece of work of one rule, in order.
type timed struct {
	timeouts []*events.Outlier
	exits    []*events.Outlier
}

type workKey struct {
	rule  string
	tid   int
	start uint64
}

// byWork sorts outliers by the work they are of.
func byWork(outliers []*events.Outlier) map[workKey]*timed {
	m := map[workKey]*timed{}
	for _, o := range outliers {
		k := workKey{o.Rule, o.Task.TID, o.StartMono}
		if m[k] == nil {
			m[k] = &timed{}
		}
		if o.Cause == events.CauseTimeout {
			m[k].timeouts = append(m[k].timeouts, o)
		} else {
			m[k].exits = append(m[k].exits, o)
		}
	}
	return m
}

// of finds the reports of one injected latency.
func of(m map[workKey]*timed, rule string, e injectors.Event) *timed {
	var all timed
	for k, w := range m {
		if k.rule == rule && k.tid == e.TID && k.start+uint64(skew) >= e.Start && k.start <= e.End {
			all.timeouts = append(all.timeouts, w.timeouts...)
			all.exits = append(all.exits, w.exits...)
		}
	}
	return &all
}

// logLateness says how late timeouts were. No test fails on it: the machine decides.
func logLateness(t *testing.T, outliers []*events.Outlier, timeout time.Duration) {
	t.Helper()
	var late []time.Duration
	for _, o := range outliers {
		if o.Cause == events.CauseTimeout && o.DelayNS < 2*timeout.Nanoseconds() {
			late = append(late, time.Duration(o.DelayNS)-timeout)
		}
	}
	if len(late) == 0 {
		return
	}
	slices.Sort(late)
	t.Logf("%d timeouts, late by: median %v, 99 %% %v, most %v", len(late), late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
}

// Every wait that outlasts the timeout is reported while it lasts and at its
// end, once each; none that ends before is.
func TestTimeoutOfWaits(t *testing.T) {
	const timeout, long, short = 40 * time.Millisecond, 120 * time.Millisecond, 8 * time.Millisecond
	asleep := []string{"pipe_read", "futex", "nanosleep", "clone", "poll"}
	for _, kind := range []struct {
		name    string
		rule    rules.Rule
		command []string
		state   string
		stack   []string
	}{
		{"asleep", rules.Rule{Track: rules.OffCPU, When: rules.Match{Comm: []string{"inj-offcpu"}}}, []string{"offcpu", "all"}, "", asleep},
		{"call", rules.Rule{Track: rules.Syscall, Attach: rules.AttachAll, When: rules.Match{Comm: []string{"inj-syscall"},
			Syscall: calls(t, "read", "poll", "ppoll", "futex", "nanosleep", "clock_nanosleep", "restart_syscall")}}, []string{"syscall", "all"}, "interruptible", asleep},
		{"runnable", rules.Rule{Track: rules.Wakeup, When: rules.Match{Comm: []string{"inj-wakeup"}}}, []string{"wakeup"}, "runnable", []string{"nanosleep"}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			kind.rule.Name, kind.rule.Timeout = kind.name, timeout
			kind.rule.Stacks = []rules.Stack{rules.KernelStack, rules.UserStack}
			c := watch(t, []rules.Rule{kind.rule}, nil)
			injected := exact(t, timeout, 40, 1, slices.Concat(kind.command, []string{"64", micros(long), "2000", micros(short), "32"})...)
			outliers := c.settle()
			work := byWork(outliers)
			must, mustNot, _ := injectors.Split(injected, timeout, 30*time.Millisecond)
			pardoned, _ := c.pardons()
			for _, e := range must {
				w := of(work, kind.name, e)
				if len(w.exits) == 0 && len(w.timeouts) < 2 && pardoned(e.TID) {
					continue // the kernel has hidden its switch, or the one back
				}
				if len(w.timeouts) != 1 || len(w.exits) != 1 || w.exits[0].Cause != events.CauseAfterTimeout || !w.exits[0].AfterTimeout {
					t.Errorf("%v of %s: %d timeouts, %d exits", e.Delay(), e.Func, len(w.timeouts), len(w.exits))
					continue
				}
				o := w.timeouts[0]
				assert.Check(t, o.DelayNS >= timeout.Nanoseconds() && o.EndMono <= e.End+uint64(skew) &&
					o.ThresholdNS == timeout.Nanoseconds(),
					"fired after %v of %v, threshold %v", time.Duration(o.DelayNS), e.Delay(), time.Duration(o.ThresholdNS))
				assert.Check(t, kind.state == "" || o.State == kind.state, "state %s, want %s", o.State, kind.state)
				kernelStack(t, c, o, kind.stack...)
				assert.Check(t, o.Task.Comm == e.Comm && o.Task.PID == e.PID && len(o.Raw.User) != 0,
					"task %+v, %d user frames; injected %+v", o.Task, len(o.Raw.User), e)
			}
			for _, e := range mustNot {
				if w := of(work, kind.name, e); len(w.timeouts)+len(w.exits) > 0 {
					t.Errorf("%v of %s was reported", e.Delay(), e.Func)
				}
			}
			t.Logf("%d over, %d under", len(must), len(mustNot))
			assert.Check(t, len(must) != 0, "no latency was as asked")
			logLateness(t, outliers, timeout)
		})
	}
}

// Waits of about the length of the timeout: whatever the tick and the exit make
// of each, they agree. A timeout has its exit, an exit after a timeout had one.
func TestTimeoutRacesExit(t *testing.T) {
	const timeout = 20 * time.Millisecond
	c := watch(t, []rules.Rule{{
		Name: "race", Track: rules.OffCPU, Timeout: timeout, When: rules.Match{Comm: []string{"inj-offcpu"}}, Stacks: []rules.Stack{rules.KernelStack},
	}, {
		Name: "race-call", Track: rules.Syscall, Attach: rules.AttachAll, Timeout: timeout, When: rules.Match{Comm: []string{"inj-offcpu"}, Syscall: calls(t, "nanosleep", "clock_nanosleep")},
	}}, nil)
	total, both := 0, 0
	for _, length := range []time.Duration{timeout - time.Millisecond, timeout, timeout + time.Millisecond, timeout + 4*time.Millisecond} {
		injectors.Run(t, "offcpu", "sleep", "400", micros(length), "400", micros(length), "32")
	}
	outliers := c.settle()
	pardoned, _ := c.pardons()
	for k, w := range byWork(outliers) {
		total++
		switch {
		case len(w.timeouts) > 1 || len(w.exits) > 1:
			t.Errorf("%v: %d timeouts, %d exits", k, len(w.timeouts), len(w.exits))
		case len(w.timeouts) != len(w.exits):
			assert.Check(t, pardoned(k.tid), "%v: %d timeouts, %d exits", k, len(w.timeouts), len(w.exits))
		case w.exits[0].Cause != events.CauseAfterTimeout:
			t.Errorf("%v: ended as %s", k, w.exits[0].Cause)
		default:
			both++
		}
	}
	t.Logf("%d waits timed out, %d of them with their exit", total, both)
	assert.Check(t, both >= 100, "only %d waits came close", both)
}

// A request that its disk does not answer is reported again and again while
// nobody could see it by waiting for its end.
func TestTimeoutOfRequest(t *testing.T) {
	needRoot(t)
	disk, err := inject.Slow(t.Context())
	if err != nil {
		t.Skipf("needs a slow disk: %v", err)
	}
	defer disk.Close()
	const timeout, repeat, held = 100 * time.Millisecond, 200 * time.Millisecond, 800 * time.Millisecond
	c := watch(t, []rules.Rule{{
		Name: "stuck", Track: rules.Block, Timeout: timeout, Repeat: repeat, Stacks: []rules.Stack{rules.KernelStack},
		When: rules.Match{Device: []string{disk.Device()}},
	}, {
		Name: "waits", Track: rules.OffCPU, Timeout: timeout, Repeat: repeat, Stacks: []rules.Stack{rules.KernelStack},
		When: rules.Match{Comm: []string{inject.CommReader}, State: []rules.State{rules.Uninterruptible}},
	}}, nil)
	_, err = disk.Read(t.Context(), timeout/4)
	assert.NilError(t, err) // teaches the disk's name
	before := len(c.settle())
	truth, err := disk.Read(t.Context(), held)
	assert.NilError(t, err)
	outliers := c.since(before)
	for _, rule := range []string{"stuck", "waits"} {
		var got []string
		var last *events.Outlier
		for _, o := range outliers {
			if o.Rule != rule {
				continue
			}
			last = o
			got = append(got, fmt.Sprintf("%s %v", o.Cause, time.Duration(o.DelayNS).Round(time.Millisecond)))
			assert.Check(t, o.Task.TID == truth.TID, "%s: of %+v, want thread %d", rule, o.Task, truth.TID)
			if o.Cause != events.CauseTimeout {
				continue
			}
			assert.Check(t, o.EndMono < truth.EndMono, "%s: fired after the end", rule)
			kernelStack(t, c, o, "io_schedule", "blkdev")
			if rule == "stuck" && (o.Block.Device != disk.Device() || o.Block.Sector != truth.Sector || o.Block.Op != "read" || o.Block.Bytes != 4096) {
				t.Errorf("request %+v, want sector %d of %s", o.Block, truth.Sector, disk.Device())
			}
		}
		t.Logf("%s: %s", rule, strings.Join(got, ", "))
		if last == nil || last.Cause != events.CauseAfterTimeout {
			t.Errorf("%s: reported %v, want the end last", rule, got)
			continue
		}
		// At 100, 300, 500 and 700 ms, and at the end; a tick may come too late for the last one.
		want := 2 + int((time.Duration(last.DelayNS)-timeout)/repeat)
		assert.Check(t, len(got) <= want && len(got) >= want-1 && len(got) >= 3,
			"%s: reported %v, want %d reports", rule, got, want)
	}
}

// A lock that is never released; and a task that dies while it waits leaves nothing behind.
func TestTimeoutOfLock(t *testing.T) {
	needRoot(t)
	flock, err := exec.LookPath("flock")
	if err != nil {
		t.Skip("needs flock (util-linux)")
	}
	path := t.TempDir() + "/lock"
	lock, err := os.Create(path)
	assert.NilError(t, err)
	defer lock.Close()
	assert.NilError(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	c := watch(t, []rules.Rule{{
		Name: "lock", Track: rules.Syscall, Attach: rules.AttachAll, Timeout: 50 * time.Millisecond, Repeat: 50 * time.Millisecond,
		When: rules.Match{Comm: []string{"flock"}, Syscall: calls(t, "flock")}, Stacks: []rules.Stack{rules.KernelStack},
	}}, nil)
	for _, killed := range []bool{true, false} {
		before := len(c.settle())
		cmd := exec.CommandContext(t.Context(), flock, path, "true")
		assert.NilError(t, cmd.Start())
		c.eventually("three reports of the wait", func() error {
			if n := len(c.from(before)); n < 3 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		if killed {
			assert.NilError(t, cmd.Process.Kill())
		} else if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		var last *events.Outlier
		for _, o := range c.since(before) {
			last = o
			assert.Check(t, o.Syscall.Name == "flock", "call %+v", o.Syscall)
			if o.Cause == events.CauseTimeout {
				kernelStack(t, c, o, "flock")
			}
		}
		assert.Check(t, last.Cause == events.CauseAfterTimeout,
			"killed %t: the last report is %s", killed, last.Cause) // a killed task still leaves its call
		c.eventually("nothing of it is pending", func() error {
			if slices.Contains(c.pending(rules.Syscall), uint64(cmd.Process.Pid)) {
				return fmt.Errorf("%d is", cmd.Process.Pid)
			}
			return nil
		})
	}
}

// What is pending when the rules change is reported once all the same.
func TestTimeoutAcrossSwap(t *testing.T) {
	needRoot(t)
	rule := rules.Rule{
		Name: "asleep", Track: rules.OffCPU, Timeout: 60 * time.Millisecond, When: rules.Match{Comm: []string{"inj-offcpu"}},
		Stacks: []rules.Stack{rules.KernelStack},
	}
	c := watch(t, []rules.Rule{rule}, nil)
	ctx, stop := context.WithCancel(t.Context())
	swapped := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			list := []rules.Rule{rule}
			if n%2 == 0 { // the same rule at another place
				list = []rules.Rule{{Name: "other", Track: rules.OffCPU, Timeout: time.Hour}, rule}
			}
			assert.Check(t, c.kernel.Swap(list))
		}
		swapped <- n
	}()
	injected := injectors.Run(t, "offcpu", "sleep", "100", micros(200*time.Millisecond), "100", micros(5*time.Millisecond), "16")
	stop()
	n := <-swapped
	work := byWork(c.settle())
	must, _, _ := injectors.Split(injected, 60*time.Millisecond, 40*time.Millisecond)
	missed := 0
	pardoned, _ := c.pardons()
	for _, e := range must {
		switch w := of(work, "asleep", e); {
		case len(w.exits) == 0 && len(w.timeouts) < 2 && pardoned(e.TID):
			missed++ // the kernel has hidden its switch, or the one back
		case len(w.timeouts) != 1 || len(w.exits) != 1:
			t.Errorf("%v: %d timeouts, %d exits", e.Delay(), len(w.timeouts), len(w.exits))
		}
	}
	k := c.counters().Rules["other"]
	assert.Check(t, k.Outliers <= 0, "a rule that waits for an hour has fired: %+v", k)
	t.Logf("%d sleeps over, %d swaps, %d missed", len(must), n, missed)
}

// A long call shows where it was each time it left its CPU.
func TestProgress(t *testing.T) {
	needRoot(t)
	c := watch(t, []rules.Rule{{
		Name: "copy", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: time.Millisecond, When: rules.Match{Comm: []string{"dd"}, Syscall: calls(t, "write")},
		Stacks: []rules.Stack{rules.KernelStack, rules.ProgressStacks},
	}}, nil)
	// One write of 1 MiB into a pipe that is read slowly: it sleeps many times.
	cmd := exec.CommandContext(t.Context(), "dd", "if=/dev/zero", "bs=1M", "count=1")
	r, w, err := os.Pipe()
	assert.NilError(t, err)
	defer r.Close()
	cmd.Stdout = w
	assert.NilError(t, cmd.Start())
	w.Close()
	chunk := make([]byte, 32<<10)
	for got := 0; got < 1<<20; {
		n, err := r.Read(chunk)
		assert.NilError(t, err)
		got += n
		time.Sleep(2 * time.Millisecond)
	}
	assert.NilError(t, cmd.Wait())
	var o *events.Outlier
	for _, o = range c.settle() {
		if o.DelayNS > (20 * time.Millisecond).Nanoseconds() {
			break
		}
	}
	assert.Assert(t, o != nil && len(o.Raw.Progress) == 8, "progress %+v", o)
	last := int64(0)
	for i, p := range o.Raw.Progress {
		t.Logf("%v %s %d frames", time.Duration(p.AgeNS), p.State, len(p.Kernel))
		assert.Check(t, p.AgeNS > last && p.AgeNS <= o.DelayNS && len(p.Kernel) != 0, "stack %d: %+v", i, p)
		last = p.AgeNS
		c.named(t, p.Kernel, "pipe_write")
	}
}
