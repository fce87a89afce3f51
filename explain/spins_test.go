package explain

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// spinNames are functions of the cases, by address.
var spinNames = map[uint64]string{
	100: "rt_mutex_slowlock_block.constprop.0+0x150", 101: "rt_mutex_wait_proxy_lock+0x3f", 102: "futex_lock_pi+0x20c", 110: "copy_page_range+0x2",
	120: "rwsem_spin_on_owner+0x3a", 121: "rwsem_down_write_slowpath+0x9c", 122: "osq_lock+0x40",
}

// spun explains a system call of the victim that took 10 ms, of samples in no order.
func (s *script) spun(t *testing.T, call string) Result {
	t.Helper()
	s.swap(11500, 0, victim, 0, sleeps(0))
	slices.SortStableFunc(s.list, func(a, b trace.Event) int { return int(a.Time) - int(b.Time) })
	names := caseNames
	names.Function = func(a uint64) string { return spinNames[a] }
	return explained(t, &s.list, []Outlier{{
		Rule: "r", Track: "syscall", Start: 1_000_000, End: 11_000_000, TID: victim, Comm: "victim", Syscall: call,
	}}, names).Outliers[0]
}

// TestSpins: a task that spins for a lock is held up by who wakes it in the end, although it
// has not slept; and a task that works, and is woken meanwhile, is held up by nobody.
func TestSpins(t *testing.T) {
	spins, works := stackOf(victim, false, 100, 101, 102), stackOf(victim, false, 110)
	for _, c := range []struct {
		name    string
		samples map[uint64]trace.Stack // by time, in us
		woken   bool
		locked  int64 // ns
		says    string
	}{
		{"spins all the time", map[uint64]trace.Stack{3000: spins, 8000: spins}, true, 10_000_000,
			"10.0 ms waiting for a priority-inheriting mutex that other 2 held, which ran for 10.0 ms"},
		{"works before", map[uint64]trace.Stack{3000: works, 8000: spins}, true, 3_000_000, "running in the kernel"},
		{"works", map[uint64]trace.Stack{3000: works, 8000: works}, true, 0, "copying page tables"},
		{"spins, and works at last", map[uint64]trace.Stack{3000: spins, 8000: works}, true, 0, "running in the kernel"},
		{"no sample", nil, true, 0, "running in the kernel"},
		{"nobody wakes it", map[uint64]trace.Stack{3000: spins, 8000: spins}, false, 10_000_000,
			"10.0 ms waiting for a priority-inheriting mutex (spinning, as its holder runs)"},
		{"works first, and nobody wakes it", map[uint64]trace.Stack{3000: works, 8000: spins}, false, 3_000_000, "running in the kernel"},
		{"its program runs", map[uint64]trace.Stack{8000: stackOf(victim, true, 100)}, true, 0, "running in the kernel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0))
			for at, stack := range c.samples {
				s.add(at, trace.Sample, 0, victim, stack)
			}
			if c.woken {
				s.wake(11000, 1, other, victim, 0)
			}
			r := s.spun(t, "futex")
			var locked int64
			for i := range r.Parts {
				if p := &r.Parts[i]; p.Cause == Locked {
					locked += p.NS
					assert.Equal(t, p.Wait, "pi_mutex")
				}
			}
			assert.Equal(t, locked, c.locked)
			assert.Check(t, strings.Contains(r.Verdict, c.says), "%s", r.Verdict)
		})
	}
}

// TestAdaptiveSpins: a task that spins for a lock of the kernel is held up by whom runs all that
// time, if that is one; and by nobody who does not.
func TestAdaptiveSpins(t *testing.T) {
	spins, works, queues := stackOf(victim, false, 120, 121), stackOf(victim, false, 110), stackOf(victim, false, 122, 121)
	owned := "waiting for a lock of the kernel that other 2 held, which ran for "
	unknown := "waiting for a lock of the kernel (spinning, as its holder runs)"
	for _, c := range []struct {
		name    string
		samples map[uint64]trace.Stack // by time, in us
		sleeps  int                    // whom the lock belongs to that it sleeps for in the end; 0: it does not
		more    func(s *script)
		locked  int64 // ns, of the spinning and of the sleep
		says    string
	}{
		{"spins all the time", map[uint64]trace.Stack{3000: spins, 8000: spins}, 0, nil, 10_000_000, "10.0 ms " + owned + "10.0 ms"},
		{"works before", map[uint64]trace.Stack{2000: works, 3000: spins, 8000: spins}, 0, nil, 8_000_000, "8.0 ms " + owned + "8.0 ms"},
		{"works after", map[uint64]trace.Stack{3000: spins, 8000: spins, 10000: works}, 0, nil, 7_000_000, "7.0 ms " + owned + "7.0 ms"},
		{"works in between", map[uint64]trace.Stack{5000: spins, 6000: works, 7000: spins}, 0, nil, 8_000_000, owned},
		{"works", map[uint64]trace.Stack{3000: works, 8000: works}, 0, nil, 0, "copying page tables"},
		{"its program runs", map[uint64]trace.Stack{8000: stackOf(victim, true, 120)}, 0, nil, 0, "running in the kernel"},
		{"is in line", map[uint64]trace.Stack{3000: queues, 8000: queues}, 0, nil, 0, "in line to spin"},
		{"two run", map[uint64]trace.Stack{3000: spins, 8000: spins}, 0, func(s *script) {
			s.swap(450, 2, 0, third, sleeps(0))
		}, 10_000_000, unknown},
		{"nobody runs all the time", map[uint64]trace.Stack{3000: spins, 8000: spins}, 0, func(s *script) {
			s.swap(5000, 1, other, 0, sleeps(0))
		}, 10_000_000, unknown},
		{"two run, and one has it in the end", map[uint64]trace.Stack{3000: spins, 8000: spins}, third, func(s *script) {
			s.swap(450, 2, 0, third, sleeps(0))
		}, 10_000_000, "that third 3 (SCHED_FIFO 50) held, which ran for 10.0 ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0))
			for at, stack := range c.samples {
				s.add(at, trace.Sample, 0, victim, stack)
			}
			if c.more != nil {
				c.more(s)
			}
			if c.sleeps != 0 {
				s.add(9000, trace.LockBegin, 0, victim, trace.Lock{Lock: 5, Flags: lockWrite, OwnerTID: c.sleeps}).
					swap(9001, 0, victim, 0, trace.Switch{PrevState: 2, Call: 0}).wake(10999, 2, c.sleeps, victim, 0).
					swap(10999, 0, 0, victim, sleeps(0)).add(11000, trace.LockEnd, 0, victim, trace.Lock{Lock: 5})
			}
			r := s.spun(t, "pwrite64")
			var locked int64
			for i := range r.Parts {
				if p := &r.Parts[i]; p.Cause == Locked {
					locked += p.NS
				}
			}
			assert.Check(t, locked >= c.locked-1000 && locked <= c.locked, "%d, not %d", locked, c.locked)
			assert.Check(t, strings.Contains(r.Verdict, c.says), "%s", r.Verdict)
		})
	}
}

// TestFileLocks: who wakes a task that waits in flock or fcntl had the lock of the file.
func TestFileLocks(t *testing.T) {
	for _, call := range []string{"flock", "fcntl", "read"} {
		t.Run(call, func(t *testing.T) {
			s := &script{}
			s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(73)).
				wake(11000, 1, other, victim, 0).swap(11000, 0, 0, victim, sleeps(0))
			names := caseNames
			names.Syscall = func(int) string { return call }
			r := explained(t, &s.list, []Outlier{{
				Rule: "r", Track: "syscall", Start: 1_000_000, End: 11_000_000, TID: victim, Comm: "victim", Syscall: call,
			}}, names).Outliers[0]
			if call == "read" {
				assert.Equal(t, r.Blame.Cause, Task)
				return
			}
			assert.Check(t, r.Blame.Cause == Locked && r.Blame.Wait == "file_lock" && r.Confidence == Inferred, "%+v", r.Blame)
			assert.Check(t, strings.Contains(r.Verdict, "waiting for a lock of a file that other 2 held"), "%s", r.Verdict)
		})
	}
}
