package detect

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/cpus"
	"github.com/tailcam/tailcam/test/support/slowirq"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// refresh is what writing to /proc/sys/vm/stat_refresh queues on each CPU, on
// the queue events, and waits for (mm/vmstat.c, vmstat_refresh).
const refresh = "refresh_vm_stats"

// refreshStats queues the work from a thread of its own on one CPU, and returns
// that thread and when it began and ended.
func refreshStats(t *testing.T, cpu int) (tid int, start, end uint64) {
	t.Helper()
	onCPU(t, cpu, func() error {
		tid = unix.Gettid()
		start = linux.Monotonic()
		err := os.WriteFile("/proc/sys/vm/stat_refresh", []byte("1"), 0)
		end = linux.Monotonic()
		return err
	})
	return tid, start, end
}

// releaseTerminal queues work of another function on the queue events of one CPU: each
// end of a terminal that is closed (drivers/tty/tty_io.c, queue_release_one_tty).
func releaseTerminal(t *testing.T, cpu int) {
	t.Helper()
	onCPU(t, cpu, func() error {
		f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return f.Close()
	})
}

// onCPU runs f on a thread of its own, on one CPU.
func onCPU(t *testing.T, cpu int, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		err := cpus.Keep(cpu)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	assert.NilError(t, <-done)
}

// otherCPU is one on which the calling goroutine does not run, and pins it elsewhere.
func otherCPU(t *testing.T) (own, other int) {
	t.Helper()
	var all unix.CPUSet
	assert.NilError(t, unix.SchedGetaffinity(0, &all))
	own = pinned(t)
	for other = own + 1; !all.IsSet(other); other++ {
		if other > runtime.NumCPU() {
			t.Skip("needs two CPUs")
		}
	}
	return own, other
}

// kernelFunctions names functions of the kernel for the tracker.
func kernelFunctions(t *testing.T) func(address uint64) string {
	t.Helper()
	names := symbols.New(nil)
	return func(address uint64) string {
		got, err := names.Kernel([]uint64{address})
		if err != nil || len(got.Frames) != 1 {
			return ""
		}
		symbol, _, _ := strings.Cut(got.Frames[0], "+")
		return symbol
	}
}

func workOf(o *events.Outlier, phase string) bool {
	return o.Work != nil && o.Work.Phase == phase && o.Work.Queue == "events"
}

// Work that is queued on a CPU which a real-time task keeps waits as long as that
// does. It is reported with its queue, its worker and who queued it; what runs at
// once on the other CPUs is not.
func TestWorkqueueWait(t *testing.T) {
	needRoot(t)
	own, other := otherCPU(t)
	const threshold, busy = 20 * time.Millisecond, 150 * time.Millisecond
	wait := rules.Match{Phase: []rules.Phase{rules.Wait}, Function: []string{refresh}}
	elsewhere, excluded := wait, wait
	elsewhere.Queue = []string{"mm_*"}
	excluded.Function, excluded.NotFunction = nil, []string{refresh}
	excluded.CPU = []uint32{uint32(other)}
	excluded.Queue = []string{"events"}
	c := watch(t, []rules.Rule{
		{Name: "wait", Track: rules.Workqueue, Threshold: threshold, When: wait},
		{Name: "timeout", Track: rules.Workqueue, Timeout: threshold, When: wait},
		{Name: "elsewhere", Track: rules.Workqueue, Threshold: threshold, When: elsewhere},
		{Name: "excluded", Track: rules.Workqueue, Threshold: time.Nanosecond, When: excluded},
		{Name: "any", Track: rules.Workqueue, Threshold: time.Nanosecond, When: wait},
	}, &tracker.Options{Symbol: kernelFunctions(t), TrackSelf: true})
	c.eventually("the daemon has judged the function", func() error {
		refreshStats(t, own)
		releaseTerminal(t, other)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.received["any"] == 0 || c.received["excluded"] == 0 {
			return errors.New("nothing yet")
		}
		return nil
	})
	const rounds = 5
	done := 0
	for try := 0; done < rounds; try++ {
		assert.Assert(t, try != 50, "the kernel never kept a CPU from its workers for as long as asked")
		seen := len(c.settle())
		hogged := cpus.Hog(t, other, 10, busy)
		tid, from, to := refreshStats(t, own)
		hogged()
		waited := time.Duration(to - from) // of whoever queued the work: until all of it was done
		count := map[string]int{}
		for _, o := range c.since(seen) {
			count[o.Rule+" "+string(o.Cause)]++
			switch {
			case o.Rule == "any":
				continue
			case o.Rule == "excluded":
				assert.Check(t, o.Work.Function != refresh, "an excluded function was reported: %+v", o.Work)
				continue
			case o.Rule == "elsewhere" || !workOf(o, "wait") || o.StartMono < from || o.EndMono > to:
				t.Errorf("rule %s reported %+v from %d to %d, queued within %d and %d", o.Rule, o.Work, o.StartMono, o.EndMono, from, to)
			case o.Cause == events.CauseTimeout:
				assert.Check(t, o.Task.TID == 0, "timeout by task %+v, but no worker had it", o.Task)
			case !strings.HasPrefix(o.Task.Comm, "kworker/"):
				t.Errorf("it ran in %+v", o.Task)
			case o.CPU == other && time.Duration(o.DelayNS) > waited-threshold && waited > 4*threshold:
				count["as long as "+o.Rule]++
			}
			by := o.Work.QueuedBy
			assert.Check(t, by != nil && by.TID == tid && by.PID == os.Getpid() && by.Context == "",
				"queued by %+v, want thread %d", by, tid)
		}
		if waited < 4*threshold {
			continue // the kernel lends others a part of a real-time task's CPU
		}
		assert.Check(t, count["wait threshold"] != 0,
			"nothing was reported of work that took %v: %v", waited, count)
		if count["as long as wait"] == 1 && count["timeout timeout"] == 1 && count["as long as timeout"] == 1 {
			done++
		}
	}
}

// A work item that runs for long is reported with its length, its worker, and how
// long it had waited; its timeout while it runs, with the worker's name.
func TestWorkqueueRun(t *testing.T) {
	needRoot(t)
	own, _ := otherCPU(t)
	const threshold, asked = 20 * time.Millisecond, 60 * time.Millisecond
	run := rules.Match{Phase: []rules.Phase{rules.Run}, Function: []string{"refresh_*"}, Queue: []string{"events"}}
	c := watch(t, []rules.Rule{
		{Name: "run", Track: rules.Workqueue, Threshold: threshold, When: run, Histogram: &rules.Histogram{}},
		{Name: "timeout", Track: rules.Workqueue, Timeout: threshold, When: run, Stacks: []rules.Stack{rules.KernelStack}},
		{Name: "waits", Track: rules.Workqueue, Threshold: asked, When: rules.Match{
			Phase: []rules.Phase{rules.Wait}, Function: []string{refresh},
		}},
	}, &tracker.Options{Symbol: kernelFunctions(t), TrackSelf: true})
	c.eventually("the daemon has judged queue and function for the histogram", func() error {
		n := histogramOf(t, c, "run")
		if refreshStats(t, own); histogramOf(t, c, "run")-n < uint64(runtime.NumCPU()) {
			return errors.New("not all is counted yet")
		}
		return nil
	})
	s := slowirq.AttachTo(t, "workqueue_execute_start", slowirq.Filter{
		Arg: slowirq.Any, Struct: "work_struct", Field: "func", Bytes: 8, Value: addressOf(t, refresh),
	}, asked)
	before := histogramOf(t, c, "run")
	const rounds = 5
	for range rounds {
		seen := len(c.settle())
		s.Arm()
		var tid int
		var returned uint64
		spun, err := s.Wait(func() { tid, _, returned = refreshStats(t, own) })
		assert.NilError(t, err)
		count := map[string]int{}
		for _, o := range c.since(seen) {
			if o.CPU != int(spun.CPU) || o.EndMono < spun.Start {
				continue // another CPU's, on a machine that is busy
			}
			count[o.Rule+" "+string(o.Cause)]++
			if !workOf(o, "run") || o.Work.WaitNS == nil || o.Work.QueuedBy == nil || o.Work.QueuedBy.TID != tid {
				t.Errorf("rule %s reported %+v", o.Rule, o.Work)
				continue
			}
			assert.Check(t, strings.HasPrefix(o.Task.Comm, "kworker/") && o.StartMono <= spun.Start,
				"rule %s: from %d on CPU %d by %+v, spun from %d on CPU %d", o.Rule, o.StartMono, o.CPU, o.Task, spun.Start, spun.CPU)
			if o.Cause == events.CauseTimeout {
				assert.Check(t, o.EndMono <= returned,
					"timeout at %d, after its end before %d", o.EndMono, returned)
			} else if o.EndMono < spun.End || o.EndMono > returned {
				t.Errorf("ended at %d, spun until %d, waited for until %d", o.EndMono, spun.End, returned)
			}
		}
		assert.Check(t, count["run threshold"] == 1 &&
			count["timeout after_timeout"]+count["timeout threshold"] <= 1 && count["waits threshold"] == 0,
			"reported %v, want the run once", count)
	}
	if got, want := histogramOf(t, c, "run")-before, uint64(rounds*runtime.NumCPU()); got != want {
		t.Errorf("%d runs in the histogram, want %d", got, want)
	}
}

// Work that is cancelled while it waits leaves nothing: neither a timeout nor a slot.
func TestWorkqueueLeavesNothing(t *testing.T) {
	needRoot(t)
	own, _ := otherCPU(t)
	c := watch(t, []rules.Rule{{
		Name: "stuck", Track: rules.Workqueue, Timeout: 5 * time.Second, When: rules.Match{Phase: []rules.Phase{rules.Wait}},
	}}, nil)
	for range 200 {
		refreshStats(t, own)
	}
	c.eventually("all that ran is released", func() error {
		if n := len(c.pending(rules.Workqueue)); n > 64 { // of the whole machine: some always wait or run
			return fmt.Errorf("%d pending", n)
		}
		return nil
	})
	_, err := c.kernel.Reclaim()
	assert.NilError(t, err)
}

func histogramOf(t *testing.T, c *camera, rule string) uint64 {
	t.Helper()
	h, err := c.kernel.Histograms()
	assert.NilError(t, err)
	return h.Rules[rule].All().Count
}

// addressOf is where a function of the kernel begins.
func addressOf(t *testing.T, name string) (address uint64) {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	assert.NilError(t, err)
	defer f.Close()
	if err := linux.ReadSymbols(f, func(s *linux.Symbol) error {
		if string(s.Name) == name {
			address = s.Addr
		}
		return nil
	}); err != nil || address == 0 {
		t.Fatalf("find %s: %v", name, err)
	}
	return address
}
