package detect

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// Calls that are interrupted, restarted, stopped or killed are reported in the
// pieces that the kernel makes of them, and none leaves anything behind.
func TestEdgesOfCalls(t *testing.T) {
	c := watch(t, []rules.Rule{
		{
			Name: "edge", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: threshold, Stacks: allStacks[:2],
			When: rules.Match{
				Comm:    []string{"inj-edge"},
				Syscall: calls(t, "read", "clock_nanosleep", "restart_syscall"),
			},
		},
		// Nothing can be that slow: it only makes the tracker look at every call.
		{Name: "all", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: time.Hour},
		{Name: "sleeps", Track: rules.OffCPU, Threshold: time.Hour},
		{Name: "waits", Track: rules.Wakeup, Threshold: time.Hour},
	}, nil)
	const rounds = 5
	injected := exact(t, threshold, 4*rounds, 0, "edge", strconv.Itoa(rounds), micros(over))

	l := &ledger{t: t, c: c, threshold: threshold, slack: tolerance}
	l.assign(injected, c.settle(), "edge")
	// What a killed thread or an exec-ing one slept besides is not listed.
	l.other = func(o *events.Outlier) bool { return o.Syscall.Name == "clock_nanosleep" }
	names := map[string]int{}
	for _, p := range l.check(4*rounds, 0) {
		name := p.reports[0].Syscall.Name
		names[name]++
		read := p.Func == "inject_edge_read"
		assert.Check(t, read == (name == "read") &&
			(read || name == "clock_nanosleep" || name == "restart_syscall"), "%s is reported as %s", p.Func, name)
	}
	t.Logf("reported: %v", names)
	assert.Check(t, len(names) >= 2, "want reads, sleeps and their restarts")
	for _, p := range l.pairs {
		for _, o := range p.reports {
			// A call that a kill ended did take that long, and says so.
			if p.Kind == inject.Dead && (o.Syscall.Name != "read" || *o.Syscall.Ret >= 0) {
				t.Errorf("of a thread that died in %s: %+v returned %d", p.Func, o.Syscall, *o.Syscall.Ret)
			}
		}
	}
	for _, track := range []rules.Track{rules.Syscall, rules.OffCPU} {
		c.leavesNothing(track, injected)
	}
}

// leavesNothing demands that no key of a pending table is of these threads,
// nor of any thread that is gone. The last switch of a thread frees its place
// in the task table, and some kernels do not report every switch: see pardons.
func (c *camera) leavesNothing(track rules.Track, injected []inject.Event) {
	c.t.Helper()
	ours := map[uint64]bool{}
	for _, e := range injected {
		ours[uint64(e.TID)] = true
		ours[uint64(e.PID)] = true
	}
	c.eventually("nothing of threads that are gone is pending for "+string(track), func() error {
		var left []uint64
		pardoned, _ := c.pardons()
		for _, k := range c.pending(track) {
			_, err := os.Stat(fmt.Sprintf("/proc/%d", k))
			if (err != nil || ours[k]) && (track == rules.Syscall || !pardoned(int(k))) {
				left = append(left, k)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("threads %v", left)
		}
		return nil
	})
	counts, err := c.kernel.Pending()
	assert.Check(c.t, err == nil && len(counts) != 0, "pending: %v, %v", counts, err)
}

// Threads that come, work and go by the thousand leave nothing behind either.
func TestThreadsThatEnd(t *testing.T) {
	c := watch(t, []rules.Rule{
		{Name: "calls", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: time.Hour},
		{Name: "sleeps", Track: rules.OffCPU, Threshold: time.Hour},
		{Name: "waits", Track: rules.Wakeup, Threshold: time.Hour},
	}, &tracker.Options{TrackSelf: true})
	for range 20 {
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				runtime.LockOSThread() // and never unlocked: the thread ends
				ts := unix.NsecToTimespec(int64(time.Millisecond))
				err := unix.Nanosleep(&ts, nil)
				assert.Check(t, err == nil || err == unix.EINTR, "%v", err)
			})
		}
		wg.Wait()
	}
	for _, track := range []rules.Track{rules.Syscall, rules.OffCPU} {
		c.leavesNothing(track, nil)
	}
	c.settle()
}
