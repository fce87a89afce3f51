package detect

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// everyKind are changes that each need what was not loaded at the start.
func everyKind(t *testing.T) []func(*camera, []rules.Rule) error {
	t.Helper()
	never := func(r rules.Rule) func(*camera, []rules.Rule) error {
		r.Threshold = 24 * time.Hour
		return func(c *camera, list []rules.Rule) error { return c.kernel.Swap(append([]rules.Rule{r}, list...)) }
	}
	set := func(change func(*tracker.Options)) func(*camera, []rules.Rule) error {
		return func(c *camera, _ []rules.Rule) error { return c.kernel.Configure(change) }
	}
	ring := func(size int) func(*camera, []rules.Rule) error {
		return set(func(o *tracker.Options) { o.Ring = size })
	}
	groups := func(list ...string) func(*camera, []rules.Rule) error {
		return set(func(o *tracker.Options) { o.Groups = list })
	}
	return []func(*camera, []rules.Rule) error{
		never(rules.Rule{Name: "block", Track: rules.Block}),
		never(rules.Rule{Name: "late", Track: rules.OffCPU, Timeout: time.Hour}),
		groups("sched", "irq", "block"),
		never(rules.Rule{Name: "waker", Track: rules.Wakeup, Stacks: []rules.Stack{rules.WakerStack, rules.UserStack}}),
		ring(1 << 20),
		never(rules.Rule{Name: "irq", Track: rules.IRQ}),
		never(rules.Rule{Name: "softirq", Track: rules.Softirq}),
		groups("timer", "process"),
		never(rules.Rule{Name: "work", Track: rules.Workqueue}),
		set(func(o *tracker.Options) { o.Rate, o.Burst = 1e6, 1e6 }),
		never(rules.Rule{Name: "span", Track: rules.Span}),
		ring(256 << 10),
		groups("sched", "irq", "timer", "block", "workqueue", "process", "reclaim", "lock", "throttle"),
		never(rules.Rule{Name: "chain", Track: rules.Chain, When: rules.Match{From: rules.Origins, Ends: []rules.End{rules.ToRun}}}),
		never(rules.Rule{Name: "call", Track: rules.Syscall, When: rules.Match{Syscall: calls(t, "fsync")}}),
		set(func(o *tracker.Options) { o.Rate, o.Burst = 0, 0 }),
		never(rules.Rule{Name: "every", Track: rules.Syscall, Attach: rules.AttachAll, When: rules.Match{Syscall: calls(t, "fsync")}}),
	}
}

// TestReplace loads the kernel side again and again, for trackers, timeouts, stacks, groups
// and sizes that were not there, while many threads are slow: no outlier is lost, and none
// comes twice.
func TestReplace(t *testing.T) {
	needRoot(t)
	h := hold(t, "offcpu", "all", "6000", micros(over), "6000", micros(under), "16")
	stay := []rules.Rule{sleepers("stays", h)}
	c := watch(t, stay, &tracker.Options{Groups: []string{"sched"}, Ring: 128 << 10})
	changes := everyKind(t)
	var longest time.Duration
	injected, reports := c.during(h, time.Millisecond, func(n int) error {
		begin := time.Now()
		err := changes[(n-1)%len(changes)](c, stay)
		longest = max(longest, time.Since(begin))
		if err != nil {
			return fmt.Errorf("change %d: %w", n, err)
		}
		return nil
	})
	t.Logf("the longest change took %v", longest)
	c.balance(t, threshold, injected, reports, "stays").check(5000, 5000)
	for _, o := range reports {
		assert.Check(t, o.Rule == "stays", "rule %s reported %+v", o.Rule, o.Task)
	}
	n := c.counters().Rules["stays"].Outliers
	assert.Check(t, n == uint64(len(reports)), "counted %d over all changes, read %d", n, len(reports))
}

// TestReplaceEach makes each change once, and sees that what was added works.
func TestReplaceEach(t *testing.T) {
	needRoot(t)
	idle := rules.Rule{Name: "idle", Track: rules.IRQ, Threshold: time.Hour}
	c := watch(t, []rules.Rule{idle}, nil)
	amounts := []string{"24", micros(over), "24", micros(under), "8"}
	for track, args := range map[string][]string{"offcpu": {"offcpu", "all"}, "wakeup": {"wakeup"}} {
		name := "new-" + track
		rule := rules.Rule{Name: name, Track: rules.Track(track), Threshold: threshold, When: rules.Match{Comm: []string{"inj-" + track + "*"}}}
		assert.NilError(t, c.kernel.Swap([]rules.Rule{idle, rule}))
		before := len(c.settle())
		injected := inject.Run(t, append(args, amounts...)...)
		c.balance(t, threshold, injected, c.since(before), name).check(20, 20)
	}
}

// TestTimeoutOfBefore: the first timeout finds work that was pending before it was there,
// and its exit.
func TestTimeoutOfBefore(t *testing.T) {
	needRoot(t)
	const sleep = 12 * time.Second
	h := hold(t, "offcpu", "sleep", "4", micros(sleep), "0", micros(under), "4")
	rule := rules.Rule{Name: "late", Track: rules.OffCPU, Threshold: time.Hour, When: rules.Match{PID: pidOf(h), Comm: []string{"inj-off*"}}}
	c := watch(t, []rules.Rule{rule}, nil)
	h.LetGo()
	c.eventually("all sleep", func() error {
		if n := len(c.pending(rules.OffCPU)); n < 4 {
			return fmt.Errorf("%d are pending", n)
		}
		return nil
	})
	rule.Timeout = sleep / 2
	begin := time.Now()
	assert.NilError(t, c.kernel.Swap([]rules.Rule{rule}))
	swapped := linux.Monotonic()
	t.Logf("the rule had its timeout %v after the work began", time.Since(begin))
	injected := h.Wait()
	reports := byWork(c.settle())
	for _, e := range injected {
		assert.Assert(t, e.End > swapped+uint64(time.Second), "the machine is too slow: the work ended before the rule had its timeout")
		w := of(reports, "late", e)
		assert.Check(t, len(w.timeouts) == 1 && len(w.exits) == 1 && w.exits[0].Cause == events.CauseAfterTimeout,
			"thread %d: %d by timeout, %d at the exit", e.TID, len(w.timeouts), len(w.exits))
	}
}

// TestReplaceLeavesNothing goes back and forth 40 times: descriptors, which all programs and
// maps have, hooks and the memory of maps stay as they are.
func TestReplaceLeavesNothing(t *testing.T) {
	needRoot(t)
	rule := rules.Rule{Name: "idle", Track: rules.OffCPU, Threshold: time.Hour, When: rules.Match{Comm: []string{"nobody"}}}
	pair := pairRules(t, "rules:\n"+pairAt(t, "pair", "key: [pid, arg0], threshold: 1h"))
	c := watch(t, append(pair, rule), &tracker.Options{Groups: []string{"sched"}, Ring: 128 << 10})
	change := func(n int) {
		err := c.kernel.Configure(func(o *tracker.Options) {
			o.Groups, o.Ring = []string{"sched"}, 128<<10
			if n%2 == 1 {
				o.Groups, o.Ring = []string{"sched", "lock"}, 256<<10
			}
		})
		assert.NilError(t, err)
	}
	look := func() (fds, programs int, bytes uint64) {
		runtime.GC()
		entries, err := os.ReadDir("/proc/self/fd")
		assert.NilError(t, err)
		return len(entries), len(c.kernel.Programs()), c.kernel.MapBytes()
	}
	change(1)
	change(2)
	fds, programs, bytes := look()
	begin := time.Now()
	const rounds = 40
	for n := 1; n <= rounds; n++ {
		change(n)
	}
	t.Logf("%d changes, %v each", rounds, time.Since(begin)/rounds)
	c.eventually("what was replaced is closed", func() error {
		f, p, b := look()
		if f > fds || p != programs || b > bytes+bytes/100 { // names of threads come and go
			return fmt.Errorf("%d descriptors, %d programs, %d bytes of maps; before: %d, %d, %d", f, p, b, fds, programs, bytes)
		}
		return nil
	})
}
