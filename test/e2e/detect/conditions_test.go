package detect

import (
	"errors"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker/events"
)

// condition is one rule of a table, and whether it wants what is injected.
type condition struct {
	name string
	when rules.Match
	want bool
}

func ruleSet(track rules.Track, table []condition) []rules.Rule {
	var list []rules.Rule
	for _, c := range table {
		list = append(list, rules.Rule{Name: c.name, Track: track, Attach: attachAll(track), Threshold: threshold, When: c.when})
	}
	return append(list, last(track))
}

// attachAll is what syscall rules must ask for: this kernel may have nothing else.
func attachAll(track rules.Track) rules.Attach {
	if track == rules.Syscall {
		return rules.AttachAll
	}
	return ""
}

// last is a rule for the end of a list. The kernel side decides it by itself,
// and an event's outliers come in the order of the rules: when the last is
// there, so are those before it, which the daemon may have to decide.
func last(track rules.Track) rules.Rule {
	return rules.Rule{Name: "last", Track: track, Attach: attachAll(track), Threshold: threshold, When: rules.Match{Comm: []string{"inj-*"}}}
}

// lastRequest is the same for rules on disks, which the daemon has to decide
// when it is first told of a disk.
func lastRequest(at time.Duration, when rules.Match) rules.Rule {
	return rules.Rule{Name: "last", Track: rules.Block, Threshold: at, When: when}
}

// checkTable demands of every rule all that was injected over its threshold,
// or nothing.
func (c *camera) checkTable(t *testing.T, table []condition, injected []inject.Event, reports []*events.Outlier) {
	t.Helper()
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			l := c.balance(t, threshold, injected, reports, row.name)
			// Rules for any name are told of the wait for the start, too.
			l.other = func(o *events.Outlier) bool { return o.Task.Comm == "inj-idle" }
			if row.want {
				l.check(1, 0)
				return
			}
			for _, p := range l.pairs {
				for _, o := range p.reports {
					// An override with a higher threshold holds for what the machine made longer still.
					at := time.Duration(o.ThresholdNS)
					assert.Check(t, at != threshold && p.Delay() >= at,
						"reported, but its condition %+v does not hold: %+v", row.when, p.Event)
				}
			}
		})
	}
}

// All conditions at once: each event is held against every rule, so this also
// is the test that several rules may fire for one event.
func TestConditionsOnTasks(t *testing.T) {
	needRoot(t)
	h := hold(t, "offcpu", "all", "24", micros(over), "24", micros(under), "8")
	comm := func(globs ...string) rules.Match { return rules.Match{Comm: globs} }
	notComm := func(globs ...string) rules.Match { return rules.Match{PID: pidOf(h), NotComm: globs} }
	table := []condition{
		{"comm", comm("inj-offcpu"), true},
		{"comm-shorter", comm("inj-offcp"), false},
		{"comm-longer", comm("inj-offcpux"), false},
		{"comm-case", comm("Inj-offcpu"), false},
		{"comm-prefix", comm("inj-off*"), true},
		{"comm-suffix", comm("*offcpu"), true},
		{"comm-star-matches-nothing", comm("inj-offcpu*"), true},
		{"comm-question", comm("inj?offcp?"), true},
		{"comm-question-too-many", comm("inj-offcpu?"), false},
		{"comm-two-stars", comm("i*off*u"), true},
		{"comm-three-stars", comm("*j*f*c*"), true},
		{"comm-stars-go-back", comm("*f*fcpu"), true},
		{"comm-stars-too-often", comm("*f*f*f*"), false},
		{"comm-stars-in-wrong-order", comm("*c*f*"), false},
		{"comm-double-star", comm("**inj**cpu**"), true},
		{"comm-star-question", comm("*?offcpu"), true},
		{"comm-all-stars", comm("***************"), true},
		{"comm-all-questions", comm("??????????"), true},
		{"comm-second", comm("nothing", "in*x", "inj-offcpu"), true},
		{"comm-none", comm("nothing", "in*x", "inj-off"), false},
		{"not-comm", notComm("inj-idle", "inj-child"), true},
		{"not-comm-glob", notComm("nothing", "*off*"), false},
		{"comm-and-not-comm", rules.Match{Comm: []string{"inj-*"}, NotComm: []string{"*-offcpu"}}, false},
		{"pid", rules.Match{PID: []uint32{1, uint32(h.PID()), 2}}, true},
		{"pid-other", rules.Match{PID: []uint32{1, 2}}, false},
		{"not-pid", rules.Match{Comm: []string{"inj-offcpu"}, NotPID: []uint32{1, 2}}, true},
		{"not-pid-own", rules.Match{Comm: []string{"inj-offcpu"}, NotPID: []uint32{1, uint32(h.PID())}}, false},
		{"uid", rules.Match{Comm: []string{"inj-offcpu"}, UID: []uint32{7, 0}}, true},
		{"uid-other", rules.Match{Comm: []string{"inj-offcpu"}, UID: []uint32{65534}}, false},
		{"not-uid", rules.Match{Comm: []string{"inj-offcpu"}, NotUID: []uint32{65534}}, true},
		{"not-uid-own", rules.Match{Comm: []string{"inj-offcpu"}, NotUID: []uint32{65534, 0}}, false},
		{"thread-user", rules.Match{Comm: []string{"inj-offcpu"}, Thread: []rules.Thread{rules.UserThread}}, true},
		{"thread-kernel", rules.Match{Comm: []string{"inj-offcpu"}, Thread: []rules.Thread{rules.KernelThread}}, false},
		{"everything-at-once", rules.Match{
			Comm: []string{"inj-*"}, NotComm: []string{"kworker*"}, PID: pidOf(h), NotPID: []uint32{1},
			UID: []uint32{0}, NotUID: []uint32{1}, Thread: []rules.Thread{rules.UserThread},
			State: []rules.State{rules.Interruptible, rules.Uninterruptible},
			// a vfork sleeps in clone
			Syscall: calls(t, "read", "futex", "clock_nanosleep", "clone"),
		}, true},
		{"all-but-one", rules.Match{
			Comm: []string{"inj-*"}, PID: pidOf(h), UID: []uint32{1}, Thread: []rules.Thread{rules.UserThread},
		}, false},
	}
	c := watch(t, ruleSet(rules.OffCPU, table), nil)
	h.LetGo()
	c.checkTable(t, table, h.Wait(), c.settle())

	t.Run("as-nobody", func(t *testing.T) {
		before := len(c.settle())
		injected := inject.RunWith(t, inject.As(65534), "offcpu", "sleep", "8", micros(over), "8", micros(under), "4")
		reports := c.since(before)
		for name, want := range map[string]bool{"uid": false, "uid-other": true, "not-uid": false, "not-uid-own": false, "comm": true} {
			c.checkTable(t, []condition{{name, rules.Match{}, want}}, injected, reports)
		}
		for _, o := range reports {
			assert.Check(t, o.Task.UID == 65534 || o.Task.Comm != "inj-offcpu", "uid %d", o.Task.UID)
		}
	})
}

// What a task sleeps in, and how.
func TestConditionsOnSleeps(t *testing.T) {
	state := func(s ...rules.State) rules.Match { return rules.Match{Comm: []string{"inj-offcpu"}, State: s} }
	in := func(names ...string) rules.Match {
		return rules.Match{Comm: []string{"inj-offcpu"}, Syscall: calls(t, names...)}
	}
	notIn := func(names ...string) rules.Match {
		return rules.Match{Comm: []string{"inj-offcpu"}, NotSyscall: calls(t, names...)}
	}
	for way, table := range map[string][]condition{
		"vfork": {
			{"uninterruptible", state(rules.Uninterruptible), true},
			{"interruptible", state(rules.Interruptible), false},
			{"either", state(rules.Interruptible, rules.Uninterruptible), true},
			{"other", state(rules.OtherState), false},
		},
		"read": {
			{"uninterruptible", state(rules.Uninterruptible), false},
			{"interruptible", state(rules.Interruptible), true},
			{"in-read", in("read"), true},
			{"in-others", in("write", "futex", "poll"), false},
			{"in-one-of", in("futex", "read"), true},
			{"not-in-read", notIn("read"), false},
			{"not-in-others", notIn("futex", "write"), true},
		},
		"futex": {
			{"in-read", in("read"), false},
			{"in-futex", in("futex"), true},
		},
	} {
		t.Run(way, func(t *testing.T) {
			c := watch(t, ruleSet(rules.OffCPU, table), nil)
			injected := inject.Run(t, "offcpu", way, "24", micros(over), "24", micros(under), "8")
			c.checkTable(t, table, injected, c.settle())
		})
	}
}

func TestConditionsOnCalls(t *testing.T) {
	table := []condition{
		{"one", rules.Match{Comm: []string{"inj-syscall"}, Syscall: calls(t, "ppoll")}, true},
		{"several", rules.Match{Comm: []string{"inj-syscall"}, Syscall: calls(t, "futex", "ppoll", "fsync")}, true},
		{"others", rules.Match{Comm: []string{"inj-syscall"}, Syscall: calls(t, "read", "write", "poll")}, false},
		{"not-others", rules.Match{Comm: []string{"inj-syscall"}, NotSyscall: calls(t, "read", "write", "poll")}, true},
		{"not-it", rules.Match{Comm: []string{"inj-syscall"}, NotSyscall: calls(t, "futex", "ppoll")}, false},
		{"both", rules.Match{Comm: []string{"inj-syscall"}, Syscall: calls(t, "ppoll"), NotSyscall: calls(t, "futex")}, true},
	}
	c := watch(t, ruleSet(rules.Syscall, table), nil)
	injected := inject.Run(t, "syscall", "poll", "24", micros(over), "240", micros(under), "8")
	c.checkTable(t, table, injected, c.settle())

	// A call that no rule names is not even looked at.
	only := watch(t, ruleSet(rules.Syscall, table[:1])[:1], nil)
	before := only.counters().Trackers[rules.Syscall].Seen
	inject.Run(t, "syscall", "sleep", "8", micros(over), "20000", "1", "8")
	n := only.counters().Trackers[rules.Syscall].Seen - before
	assert.Check(t, n <= 10000, "%d calls were tracked, though no rule wants them", n)
}

// Kernel threads have no process, no user stack, and a rule of their own.
func TestConditionsOnKernelThreads(t *testing.T) {
	c := watch(t, []rules.Rule{
		{
			Name: "kernel", Track: rules.OffCPU, Threshold: time.Microsecond, Stacks: allStacks,
			When: rules.Match{Thread: []rules.Thread{rules.KernelThread}, Comm: []string{"rcu_*", "kworker*"}},
		},
		{
			Name: "user", Track: rules.OffCPU, Threshold: time.Microsecond,
			When: rules.Match{Thread: []rules.Thread{rules.UserThread}, Comm: []string{"rcu_*", "kworker*"}},
		},
	}, nil)
	c.eventually("a kernel thread is reported", func() error {
		if c.counters().Rules["kernel"].Outliers == 0 {
			return errors.New("none is")
		}
		return nil
	})
	for _, o := range c.settle() {
		assert.Check(t, o.Rule == "kernel" && o.Task.Kernel && len(o.Raw.User) == 0 && o.Syscall == nil,
			"rule %s reported %+v with a user stack of %d frames, in %+v", o.Rule, o.Task, len(o.Raw.User), o.Syscall)
	}
}

// Overrides: the first that matches gives the threshold, be it lower or higher.
func TestOverrides(t *testing.T) {
	long := 10 * over
	o := func(at time.Duration, globs ...string) rules.Override {
		return rules.Override{When: rules.Match{Comm: globs}, Threshold: at}
	}
	list := []rules.Rule{
		{Name: "none", Threshold: threshold},
		{Name: "lower", Threshold: long, Overrides: []rules.Override{o(threshold, "inj-*")}},
		{Name: "higher", Threshold: threshold, Overrides: []rules.Override{o(long, "inj-*")}},
		{Name: "first-lower", Threshold: long, Overrides: []rules.Override{o(threshold, "*-offcpu"), o(long, "inj-*")}},
		{Name: "first-higher", Threshold: threshold, Overrides: []rules.Override{o(long, "*-offcpu"), o(threshold, "inj-*")}},
		{Name: "second", Threshold: long, Overrides: []rules.Override{o(long, "x"), o(threshold, "y", "inj-*"), o(long, "*")}},
		{Name: "no-match", Threshold: threshold, Overrides: []rules.Override{o(long, "x"), o(time.Nanosecond, "y")}},
		{Name: "without-conditions", Threshold: long, Overrides: []rules.Override{{Threshold: threshold}}},
	}
	reported := map[string]bool{
		"none": true, "lower": true, "first-lower": true, "second": true, "no-match": true, "without-conditions": true,
	}
	var table []condition
	for i := range list {
		list[i].Track = rules.OffCPU
		list[i].When = rules.Match{Comm: []string{"inj-offcpu"}}
		table = append(table, condition{list[i].Name, list[i].When, reported[list[i].Name]})
	}
	c := watch(t, list, nil)
	injected := inject.Run(t, "offcpu", "all", "24", micros(over), "48", micros(under), "8")
	c.checkTable(t, table, injected, c.settle())
}
