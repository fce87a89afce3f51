package guest

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/cpus"
	"github.com/tailcam/tailcam/test/support/slowirq"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/kernel"
)

const (
	spinFor = 80 * time.Millisecond

	// The emulator lets each CPU run for 100 ms before the other one: it takes
	// that long until anybody can see what is stuck.
	stuckFor = 600 * time.Millisecond

	// A serial line that interrupts when it has sent something, and its handler. It is the first
	// of those that x86 also has: the driver of arm64's own finds room for all that it has to send.
	serialTTY, serialAction = "/dev/ttyS0", "ttyS0"
)

// TestInterrupts makes an interrupt handler and a softirq of this kernel take
// long, and a softirq wait behind the latter.
func TestInterrupts(t *testing.T) {
	inGuest(t)
	kernel, outliers := watch(t, []rules.Rule{
		{
			Name: "irq", Track: rules.IRQ, Threshold: spinFor, Stacks: []rules.Stack{rules.KernelStack, rules.UserStack},
			When: rules.Match{Name: []string{serialAction}, CPU: []uint32{0, 1}},
		},
		{
			Name: "run", Track: rules.Softirq, Threshold: spinFor, Stacks: []rules.Stack{rules.KernelStack},
			When: rules.Match{Vector: []rules.Vector{"net_rx"}, Phase: []rules.Phase{rules.Run}},
		},
		{
			Name: "raise", Track: rules.Softirq, Threshold: spinFor / 4,
			When: rules.Match{NotVector: []rules.Vector{"net_rx"}, Phase: []rules.Phase{rules.Raise}},
		},
		{Name: "stuck", Track: rules.IRQ, Timeout: stuckFor / 4, When: rules.Match{Name: []string{serialAction}}},
	}, &tracker.Options{Groups: tracker.Groups, Ring: 256 << 10})
	t.Run("irq", func(t *testing.T) { testHandler(t, outliers) })
	t.Run("softirq", func(t *testing.T) { testSoftirq(t, outliers) })
	t.Run("starved", func(t *testing.T) { testStarved(t, outliers) })
	counters, err := kernel.Counters()
	assert.NilError(t, err)
	missed := kernel.Missed()
	for track, end := range map[rules.Track]string{rules.IRQ: "irq_handler_exit", rules.Softirq: "softirq_exit"} {
		k := counters.Trackers[track]
		t.Logf("%s: %+v, missed: %v", track, k, missed)
		assert.Check(t, k.Seen > 0 && k.TableFull == 0 && k.Replaced <= missed[end], "%s: %+v, missed: %v", track, k, missed)
	}
}

// testHandler writes to a serial line, which interrupts for more.
func testHandler(t *testing.T, outliers <-chan *events.Outlier) {
	tty, err := os.OpenFile(serialTTY, os.O_WRONLY|unix.O_NOCTTY, 0)
	assert.NilError(t, err)
	defer tty.Close()
	line := interruptOf(t, serialAction)
	keepTimers(t)
	s := slowirq.Attach(t, "irq_handler_entry", int(line), false, stuckFor) // on arm64 timers are such interrupts, too
	for range 20 {
		drop(outliers)
		s.Arm()
		truth, err := s.Wait(func() { _, _ = tty.WriteString("the serial line interrupts\r\n") })
		assert.NilError(t, err)
		first := gather(t, outliers, 0, "irq")
		o := first["stuck"]
		if o == nil || !spun(t, first["irq"], truth) {
			continue // the guest stood still
		}
		assert.Check(t, o.Cause == events.CauseTimeout && o.EndMono <= truth.End && o.CPU == int(truth.CPU) && o.IRQ.Name == serialAction,
			"reported while it was stuck: %s after %v on CPU %d, %+v, truth %+v", o.Cause, time.Duration(o.DelayNS), o.CPU, o.IRQ, truth)
		o = first["irq"]
		assert.Check(t, o.IRQ.IRQ != nil && *o.IRQ.IRQ == int(truth.Arg) && o.IRQ.Name == serialAction &&
			len(o.Raw.Kernel) != 0, "%+v, %d kernel frames", o.IRQ, len(o.Raw.Kernel))
		return
	}
	t.Error("no interrupt of the serial line was reported as it was, and while it was stuck")
}

// interruptOf returns the number of the interrupt that a handler is for.
func interruptOf(t *testing.T, action string) uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/interrupts")
	assert.NilError(t, err)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[len(f)-1] != action {
			continue
		}
		if number, err := strconv.ParseUint(strings.TrimSuffix(f[0], ":"), 10, 32); err == nil {
			return number
		}
	}
	t.Fatalf("nothing handles interrupts as %s:\n%s", action, text)
	return 0
}

// keepTimers makes timers expire on both CPUs, from which stuck work is looked
// for: while one is stuck, the other may be idle for long.
func keepTimers(t *testing.T) {
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	for cpu := range 2 {
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends here
			assert.Check(t, cpus.Keep(cpu))
			ts := unix.NsecToTimespec((4 * time.Millisecond).Nanoseconds())
			for {
				select {
				case <-done:
					return
				default:
					_ = unix.Nanosleep(&ts, nil)
				}
			}
		}()
	}
}

// testSoftirq sends packets to itself from one CPU, on which a timer ends meanwhile.
func testSoftirq(t *testing.T, outliers <-chan *events.Outlier) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const cpu = 1
	assert.NilError(t, cpus.Keep(cpu))
	defer func() { assert.Check(t, cpus.Keep(0, 1)) }()
	assert.NilError(t, loopbackUp())
	send := cpus.Packets(t)
	s := slowirq.Attach(t, "softirq_entry", cpus.NetRX, false, spinFor)
	preemption, err := kernel.PreemptionHere()
	assert.NilError(t, err)
	for range 10 {
		drop(outliers)
		wait := cpus.Timer(t, cpu, 20*time.Millisecond)
		s.Arm()
		truth, err := s.Wait(send)
		assert.NilError(t, err)
		wait()
		o := await(t, outliers, "run", 0)
		if !spun(t, o, truth) {
			continue
		}
		assert.Check(t, o.IRQ.Vector == "net_rx" && o.IRQ.Phase == "run" && len(o.Raw.Kernel) != 0,
			"%+v, %d kernel frames", o.IRQ, len(o.Raw.Kernel))
		// Where tasks are preempted in the program that spins, the timer's thread takes the CPU.
		if heldUp(t, outliers, cpu, truth.Start, truth.End) != "" || preemption.Tracepoints {
			return
		}
	}
	t.Error("no softirq was reported as held up by the long one")
}

// testStarved lets a real-time task hog a CPU while a timer of that CPU ends.
// A real-time kernel leaves the timer to a thread, which has to wait; others only if softirqs have
// taken long before, as they do where the machine is emulated.
func testStarved(t *testing.T, outliers <-chan *events.Outlier) {
	const cpu = 1
	for range 10 {
		drop(outliers)
		wait := cpus.Timer(t, cpu, 20*time.Millisecond)
		start, end := cpus.Hog(t, cpu, 50, 2*spinFor)()
		wait()
		by := heldUp(t, outliers, cpu, start, end)
		assert.Check(t, realTime() || by == "" || strings.HasPrefix(by, "ksoftirqd/"), "held up by the hog, although the end of the interrupt runs softirqs here")
		if by != "" || !realTime() {
			return
		}
	}
	t.Error("no softirq was reported as held up by the hog")
}

// heldUp tells on whom a softirq ran that is reported within a second, and was raised on a CPU
// while that was taken, a rule's threshold before the end, and ran after it; "": there is none.
func heldUp(t *testing.T, outliers <-chan *events.Outlier, cpu int, start, end uint64) (by string) {
	t.Helper()
	for late := time.After(time.Second); ; {
		select {
		case o := <-outliers:
			t.Logf("%s: %s of %v from %d to %d on CPU %d by %s, taken from %d to %d", o.Rule, o.IRQ.Vector,
				time.Duration(o.DelayNS), o.StartMono, o.EndMono, o.CPU, o.Task.Comm, start, end)
			if o.Rule == "raise" && o.IRQ.Phase == "raise" && o.CPU == cpu && o.StartMono >= start &&
				o.StartMono+uint64(spinFor/4) < end && o.EndMono >= end {
				return o.Task.Comm
			}
		case <-late:
			return ""
		}
	}
}

// spun holds a report against the truth; false: the rest of the handler, emulated, took long itself.
func spun(t *testing.T, o *events.Outlier, truth slowirq.Spun) bool {
	t.Helper()
	t.Logf("%s: %v on top of %s[%d] on CPU %d, spun for %v", o.Rule, time.Duration(o.DelayNS), o.Task.Comm, o.Task.TID, o.CPU, truth.Delay())
	assert.Check(t, o.StartMono <= truth.Start && o.EndMono >= truth.End && o.CPU == int(truth.CPU),
		"reported from %d to %d on CPU %d, truth %+v", o.StartMono, o.EndMono, o.CPU, truth)
	return time.Duration(o.DelayNS)-truth.Delay() <= 4*slack
}
