package guest

import (
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestChain follows a timer to the task that it wakes, which has to wait for a
// hog; and the end of a read from the slow disk to user space. On real-time
// kernels the second goes through a thread: its softirq has one.
func TestChain(t *testing.T) {
	inGuest(t)
	stacks := []rules.Stack{rules.KernelStack, rules.UserStack}
	list := append(everyRule(),
		rules.Rule{
			Name: "chain-run", Track: rules.Chain, Threshold: 50 * time.Millisecond, Stacks: stacks,
			When: rules.Match{Comm: []string{"tailcam-v*"}, From: rules.Origins, Ends: []rules.End{rules.ToRun}},
		},
		rules.Rule{
			Name: "chain-end", Track: rules.Chain, Threshold: time.Microsecond, Stacks: stacks,
			When: rules.Match{Comm: []string{"guest-reader"}, From: rules.Origins, Ends: []rules.End{rules.ToUser, rules.ToBlock}},
		},
	)
	kernel, outliers := watch(t, list, &tracker.Options{Groups: tracker.Groups, Ring: 64 << 10, TrackSelf: true, Tasks: 4096})

	t.Run("run", func(t *testing.T) {
		agreeWakeup(t, outliers, "chain-run", func(o *events.Outlier, tid int) bool {
			t.Logf("by way of %s", chainWay(t, o))
			last := o.Chain.Stages[len(o.Chain.Stages)-1]
			return last.Stage == "wakeup" && last.Task.TID == tid
		})
	})
	t.Run("end", func(t *testing.T) {
		done := make(chan int)
		defer close(done)
		go readSlowly(t, done)
		tid := <-done
		ways := map[string]int{}
		for range 5 {
			done <- 0
			o := await(t, outliers, "chain-end", tid)
			ways[chainWay(t, o)+" to "+o.Chain.End]++
			assert.Check(t, len(o.Raw.Kernel) != 0, "no kernel stack")
		}
		t.Logf("ways of a read: %v", ways)
	})
	if c, err := kernel.Counters(); err != nil || c.Trackers[rules.Chain].Seen == 0 {
		t.Errorf("seen %+v, %v", c, err)
	} else {
		t.Logf("chains: %+v, %+v", c.Trackers[rules.Chain], c.Lost)
	}
}

// readSlowly reads from the slow disk each time that it is asked to, in a
// thread of its own, whose id it tells first.
func readSlowly(t *testing.T, ask chan int) {
	name, _ := unix.BytePtrFromString("guest-reader")
	runtime.LockOSThread() // and never unlocked: the thread ends with its name
	assert.Check(t, unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0))
	ask <- unix.Gettid()
	at := int64(0)
	for range ask {
		at += 4096
		_, err := readDirect(slowDisk, at)
		assert.Check(t, err)
	}
}

// chainWay writes the stages of a chain, and demands that they are the delay.
func chainWay(t *testing.T, o *events.Outlier) string {
	t.Helper()
	assert.Assert(t, o.Chain != nil && len(o.Chain.Stages) != 0, "a chain without stages: %+v", o)
	var sum int64
	var names []string
	for _, s := range o.Chain.Stages {
		sum += s.NS
		name := strings.TrimSpace(s.Stage + " " + s.What)
		if s.Task != nil {
			name += " " + s.Task.Comm
		}
		names = append(names, name)
	}
	assert.Check(t, sum == o.DelayNS, "stages of %d ns, a delay of %d", sum, o.DelayNS)
	return strings.Join(names, ", ")
}
