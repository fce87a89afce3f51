package detect

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker/events"
)

// How much is injected, and how much must count: some of it gets spoilt.
const (
	threshold = 10 * time.Millisecond
	over      = 2 * threshold
	under     = threshold * 8 / 10

	askOver, askUnder = 256, 10500
	wantOver          = 200
	wantUnder         = 10000
	threads           = "64"
)

var allStacks = []rules.Stack{rules.KernelStack, rules.UserStack, rules.WakerStack}

func injected(t *testing.T, command ...string) []inject.Event {
	t.Helper()
	asked := []string{strconv.Itoa(askOver), micros(over), strconv.Itoa(askUnder), micros(under), threads}
	return exact(t, threshold, wantOver, wantUnder, slices.Concat(command, asked)...)
}

// keptWaiting demands that reports name who ran instead, which by tells, for as
// long as he did, if nobody preempted him: until over has passed since the start.
// Who waited for twice as long may have waited for others, too.
func (c *camera) keptWaiting(t *testing.T, found []*pair, by func(*pair, *events.OnCPU) bool) {
	t.Helper()
	_, pardoned := c.pardons()
	for _, p := range found {
		o := p.reports[0]
		ran := over - time.Duration(o.EndMono-uint64(o.RunnableNS)-p.Start) - skew
		if !p.Alone || p.Delay() >= 2*over || o.OnCPU != nil && o.OnCPU.CPU == p.CPU && by(p, o.OnCPU) &&
			time.Duration(o.OnCPU.RanNS) >= ran && o.OnCPU.RanNS <= o.RunnableNS {
			continue
		}
		// Where switches were hidden, he may not be known; but nobody else ran so long. He may be the waker.
		hidden := pardoned(p.PID) || o.Waker != nil && o.Waker.PID != p.PID && pardoned(o.Waker.PID)
		assert.Check(t, hidden && (o.OnCPU == nil || by(p, o.OnCPU) || time.Duration(o.OnCPU.RanNS) < ran/2),
			"%v of %+v: %+v ran instead, want at least %v", time.Duration(o.DelayNS), p.Event, o.OnCPU, ran)
	}
}

// byHog is the injector's thread that has the CPU instead.
func byHog(p *pair, on *events.OnCPU) bool { return on.Comm == "inj-hog" && on.PID == p.PID }

// userStack demands the injecting function innermost in every stack, and the way there
// in all that do not say that they are approximate.
func userStack(t *testing.T, found []*pair) {
	t.Helper()
	var tally struct{ right, wrong, approximate, approximatelyRight int }
	for _, p := range found {
		o := p.reports[0]
		if len(o.Stacks.User) == 0 || !strings.HasPrefix(o.Stacks.User[0], p.Func+"+0x") {
			t.Errorf("user stack %q does not begin in %s", o.Stacks.User, p.Func)
		}
		whole := slices.ContainsFunc(o.Stacks.User, func(f string) bool {
			return strings.HasPrefix(f, "main+0x") || strings.HasPrefix(f, "start_thread+0x")
		})
		switch {
		case o.Stacks.Approximate && whole:
			tally.approximatelyRight++
		case o.Stacks.Approximate:
			tally.approximate++
		case whole:
			tally.right++
		default:
			if tally.wrong++; tally.wrong <= 5 {
				t.Logf("user stack %q", o.Stacks.User)
			}
		}
	}
	t.Logf("user stacks: %+v", tally)
	assert.Check(t, 100*tally.wrong <= len(found), "%d of %d user stacks are wrong, and do not say so", tally.wrong, len(found))
}

// kernelStack demands one of these functions in the kernel stack.
func kernelStack(t *testing.T, c *camera, o *events.Outlier, functions ...string) {
	t.Helper()
	c.named(t, o.Raw.Kernel, functions...)
}

// named demands that one of these names is in a kernel stack.
func (c *camera) named(t *testing.T, addresses []uint64, functions ...string) {
	t.Helper()
	stack, err := c.names.Kernel(addresses)
	assert.NilError(t, err)
	for _, f := range stack.Frames {
		for _, want := range functions {
			if strings.Contains(f, want) {
				return
			}
		}
	}
	t.Errorf("none of %v in the kernel stack %q", functions, stack.Frames)
}

func TestWakeup(t *testing.T) {
	c := watch(t, []rules.Rule{{
		Name: "wakeup", Track: rules.Wakeup, Threshold: threshold, Stacks: allStacks,
		When: rules.Match{Comm: []string{"inj-wakeup"}},
	}}, nil)
	injected := injected(t, "wakeup")
	found := c.balance(t, threshold, injected, c.settle(), "wakeup").check(wantOver, wantUnder)
	userStack(t, found)
	_, pardoned := c.pardons()
	for _, p := range found {
		o := p.reports[0]
		kernelStack(t, c, o, "nanosleep")
		assert.Check(t, o.WaitCPU != nil && *o.WaitCPU == p.CPU && o.CPU == p.CPU && o.EntryCPU == p.CPU,
			"waited on CPU %v, entry on %d, exit on %d; is pinned to %d", o.WaitCPU, o.EntryCPU, o.CPU, p.CPU)
		assert.Check(t, !o.Preempted, "marked preempted, but slept: %+v", p.Event)
		assert.Check(t, o.RunnableNS == o.DelayNS, "runnable %d ns of a delay of %d", o.RunnableNS, o.DelayNS)
		// The timer interrupt came while the hog ran, by its own account.
		if w := o.Waker; p.Alone && (w == nil || w.Comm != "inj-hog" || w.PID != p.PID) {
			assert.Check(t, pardoned(p.PID), "woken by %+v, want the hog of %+v", w, p.Event)
		}
	}
	c.keptWaiting(t, found, byHog)
}

func TestOffCPU(t *testing.T) {
	c := watch(t, []rules.Rule{{
		Name: "offcpu", Track: rules.OffCPU, Threshold: threshold, Stacks: allStacks,
		When: rules.Match{Comm: []string{"inj-offcpu"}},
	}}, nil)
	injected := injected(t, "offcpu", "all")
	found := c.balance(t, threshold, injected, c.settle(), "offcpu").check(wantOver, wantUnder)
	userStack(t, found)
	want := map[string]struct{ state, stack, waker string }{
		"inject_offcpu_read":  {"interruptible", "pipe", "inj-partner"},
		"inject_offcpu_futex": {"interruptible", "futex", "inj-partner"},
		"inject_offcpu_sleep": {"interruptible", "nanosleep", ""},
		"inject_offcpu_vfork": {"uninterruptible", "clone", "inj-child"},
	}
	pardoned, _ := c.pardons()
	stacks := 0
	for _, p := range found {
		o, w := p.reports[0], want[p.Func]
		assert.Check(t, is.Equal(o.State, w.state), "%s slept", p.Func)
		kernelStack(t, c, o, w.stack)
		if o.Waker == nil {
			assert.Check(t, pardoned(p.TID), "woken by no one: %+v", p.Event)
		} else if w.waker != "" && o.Waker.Comm != w.waker {
			t.Errorf("%s woken by %+v, want %s", p.Func, o.Waker, w.waker)
		}
		assert.Check(t, o.Syscall != nil && o.Syscall.Ret == nil, "%s slept in %+v", p.Func, o.Syscall)
		assert.Check(t, o.RunnableNS <= o.DelayNS, "runnable %d ns of a sleep of %d", o.RunnableNS, o.DelayNS)
		if len(o.Raw.Waker) > 0 {
			stacks++
			if w.waker == "inj-partner" {
				c.named(t, o.Raw.Waker, w.stack)
			}
		}
	}
	// One that meets another in the kernel's table of stacks has none.
	t.Logf("%d of %d stacks of wakers", stacks, len(found))
	assert.Check(t, stacks != 0, "no stack of any waker")
}

func TestSyscall(t *testing.T) {
	c := watch(t, []rules.Rule{{
		Name: "syscall", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: threshold, Stacks: allStacks[:2],
		When: rules.Match{Comm: []string{"inj-syscall"}},
	}}, nil)
	injected := injected(t, "syscall", "all")
	found := c.balance(t, threshold, injected, c.settle(), "syscall").check(wantOver, wantUnder)
	userStack(t, found)
	want := map[string]struct {
		name string
		ret  int64
	}{
		"inject_syscall_read":  {"read", 1},
		"inject_syscall_poll":  {"ppoll", 1},
		"inject_syscall_futex": {"futex", 0},
		"inject_syscall_sleep": {"clock_nanosleep", 0},
	}
	for _, p := range found {
		o, w := p.reports[0], want[p.Func]
		assert.Check(t, o.Syscall != nil && o.Syscall.Name == w.name && o.Syscall.Ret != nil &&
			*o.Syscall.Ret == w.ret, "%s made %+v, want %+v", p.Func, o.Syscall, w)
		assert.Check(t, len(o.Raw.Kernel) != 0, "%s: no kernel stack", p.Func)
	}
}

// Latencies a little over the threshold are reported, those a little under it not.
func TestThresholdIsExact(t *testing.T) {
	for track, command := range map[rules.Track][]string{
		rules.Wakeup: {"wakeup"}, rules.OffCPU: {"offcpu", "all"}, rules.Syscall: {"syscall", "all"},
	} {
		t.Run(string(track), func(t *testing.T) {
			c := watch(t, []rules.Rule{{
				Name: "rule", Track: track, Attach: attachAll(track), Threshold: threshold, When: rules.Match{Comm: []string{"inj-" + string(track)}},
			}}, nil)
			asked := []string{"64", micros(threshold * 115 / 100), "64", micros(threshold * 9 / 10), "16"}
			injected := exact(t, threshold, 40, 40, slices.Concat(command, asked)...)
			c.balance(t, threshold, injected, c.settle(), "rule").check(40, 40)
		})
	}
}

// The stack must be that of the task that slept, not of the one that made room
// for it at that moment: it sleeps in a function of another name.
func TestWakerOnSameCPU(t *testing.T) {
	c := watch(t, []rules.Rule{{
		Name: "offcpu", Track: rules.OffCPU, Threshold: threshold, Stacks: allStacks,
		When: rules.Match{Comm: []string{"inj-victim"}},
	}}, nil)
	injected := exact(t, threshold, 190, 0, "samecpu", "200", micros(over))
	found := c.balance(t, threshold, injected, c.settle(), "offcpu").check(190, 0)
	userStack(t, found)
	for _, p := range found {
		o := p.reports[0]
		for _, f := range o.Stacks.User {
			assert.Check(t, !strings.Contains(f, "inject_samecpu_waker"), "the waker's stack: %q", o.Stacks.User)
		}
		kernelStack(t, c, o, "pipe")
		assert.Check(t, o.Waker != nil && o.Waker.Comm == "inj-other" && o.Waker.PID == p.PID &&
			o.Waker.TID != p.TID, "woken by %+v, want inj-other of process %d", o.Waker, p.PID)
		assert.Check(t, o.CPU == p.CPU, "came back on CPU %d, is pinned to %d", o.CPU, p.CPU)
	}
}
