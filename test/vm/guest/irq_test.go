package guest

import (
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/slowirq"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

const (
	spinFor = 80 * time.Millisecond
	netRX   = 3 // vector

	// The emulator lets each CPU run for 100 ms before the other one: it takes
	// that long until anybody can see what is stuck.
	stuckFor = 600 * time.Millisecond
)

// TestInterrupts makes an interrupt handler and a softirq of this kernel take
// long, and a softirq wait behind the latter.
func TestInterrupts(t *testing.T) {
	inGuest(t)
	kernel, outliers := watch(t, []rules.Rule{
		{
			Name: "irq", Track: rules.IRQ, Threshold: spinFor, Stacks: []rules.Stack{rules.KernelStack, rules.UserStack},
			When: rules.Match{Name: []string{"tty*"}, CPU: []uint32{0, 1}},
		},
		{
			Name: "run", Track: rules.Softirq, Threshold: spinFor, Stacks: []rules.Stack{rules.KernelStack},
			When: rules.Match{Vector: []rules.Vector{"net_rx"}, Phase: []rules.Phase{rules.Run}},
		},
		{
			Name: "raise", Track: rules.Softirq, Threshold: spinFor / 4,
			When: rules.Match{NotVector: []rules.Vector{"net_rx"}, Phase: []rules.Phase{rules.Raise}},
		},
		{Name: "stuck", Track: rules.IRQ, Timeout: stuckFor / 4, When: rules.Match{Name: []string{"tty*"}}},
	}, &tracker.Options{Groups: tracker.Groups, Ring: 256 << 10})
	t.Run("irq", func(t *testing.T) { testHandler(t, outliers) })
	t.Run("softirq", func(t *testing.T) { testSoftirq(t, outliers) })
	t.Run("starved", func(t *testing.T) { testStarved(t, outliers) })
	counters, err := kernel.Counters()
	assert.NilError(t, err)
	for _, track := range []rules.Track{rules.IRQ, rules.Softirq} {
		k := counters.Trackers[track]
		if t.Logf("%s: %+v", track, k); k.Seen == 0 || k.TableFull+k.Replaced > 0 {
			t.Errorf("%s: %+v", track, k)
		}
	}
}

// testHandler writes to the serial console, which interrupts for more.
func testHandler(t *testing.T, outliers <-chan *events.Outlier) {
	tty, err := os.OpenFile("/dev/ttyS0", os.O_WRONLY|unix.O_NOCTTY, 0)
	assert.NilError(t, err)
	defer tty.Close()
	keepTimers(t)
	s := slowirq.Attach(t, "irq_handler_entry", slowirq.Any, false, stuckFor)
	for range 20 { // another interrupt may take the spin
		drop(outliers)
		s.Arm()
		truth, err := s.Wait(func() { _, _ = tty.WriteString("the serial line interrupts\r\n") })
		assert.NilError(t, err)
		if truth.Arg != 4 { // the interrupt of the first serial line of a PC
			t.Logf("irq %d came first", truth.Arg)
			continue
		}
		first := gather(t, outliers, 0, "irq")
		o := first["stuck"]
		if o == nil || !spun(t, first["irq"], truth) {
			continue // the guest stood still
		}
		if o.Cause != events.CauseTimeout || o.EndMono > truth.End || o.CPU != int(truth.CPU) || o.IRQ.Name != "ttyS0" {
			t.Errorf("reported while it was stuck: %s after %v on CPU %d, %+v, truth %+v", o.Cause, time.Duration(o.DelayNS), o.CPU, o.IRQ, truth)
		}
		o = first["irq"]
		assert.Check(t, o.IRQ.IRQ != nil && *o.IRQ.IRQ == int(truth.Arg) && o.IRQ.Name == "ttyS0" &&
			len(o.Raw.Kernel) != 0, "%+v, %d kernel frames", o.IRQ, len(o.Raw.Kernel))
		return
	}
	t.Error("no interrupt of the serial line was reported as it was, and while it was stuck")
}

// keepTimers makes timers expire on both CPUs, from which stuck work is looked
// for: while one is stuck, the other may be idle for long.
func keepTimers(t *testing.T) {
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	for cpu := range 2 {
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends here
			pin(t, cpu)
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
	pin(t, cpu)
	defer pin(t, 0, 1)
	up(t, "lo")
	sink, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	assert.NilError(t, err)
	defer sink.Close()
	conn, err := net.DialUDP("udp4", nil, sink.LocalAddr().(*net.UDPAddr))
	assert.NilError(t, err)
	defer conn.Close()
	s := slowirq.Attach(t, "softirq_entry", netRX, false, spinFor)
	for range 10 {
		drop(outliers)
		done := make(chan struct{})
		go func() { // waits on a timer of this CPU
			defer close(done)
			runtime.LockOSThread()
			pin(t, cpu)
			receive(20 * time.Millisecond)
		}()
		time.Sleep(5 * time.Millisecond)
		s.Arm()
		truth, err := s.Wait(func() { _, _ = conn.Write([]byte("x")) })
		assert.NilError(t, err)
		<-done
		o := await(t, outliers, "run", 0)
		if !spun(t, o, truth) {
			continue
		}
		assert.Check(t, o.IRQ.Vector == "net_rx" && o.IRQ.Phase == "run" && len(o.Raw.Kernel) != 0,
			"%+v, %d kernel frames", o.IRQ, len(o.Raw.Kernel))
		for end := time.After(time.Second); ; {
			select {
			case o := <-outliers:
				t.Logf("%s: %s of %v from %d to %d on CPU %d, spun from %d to %d", o.Rule, o.IRQ.Vector, time.Duration(o.DelayNS),
					o.StartMono, o.EndMono, o.CPU, truth.Start, truth.End)
				if o.Rule == "raise" && o.IRQ.Phase == "raise" && o.CPU == cpu && o.StartMono >= truth.Start &&
					o.StartMono < truth.End && o.EndMono >= truth.End {
					return
				}
				continue
			case <-end:
			}
			break
		}
	}
	t.Error("no softirq was reported as held up by the long one")
}

// testStarved lets a real-time task hog a CPU while a timer of that CPU ends.
// Only a real-time kernel leaves the timer to a thread, which has to wait.
func testStarved(t *testing.T, outliers <-chan *events.Outlier) {
	const cpu = 1
	realTime := strings.HasSuffix(os.Getenv("TAILCAM_GUEST_KERNEL"), "-rt")
	for range 10 {
		drop(outliers)
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			pin(t, cpu)
			receive(20 * time.Millisecond)
		}()
		time.Sleep(5 * time.Millisecond)
		start, end := hog(t, cpu, 2*spinFor)
		<-done
		for late := time.After(time.Second); ; {
			select {
			case o := <-outliers:
				t.Logf("%s: %s of %v from %d to %d on CPU %d by %s, hogged from %d to %d", o.Rule, o.IRQ.Vector,
					time.Duration(o.DelayNS), o.StartMono, o.EndMono, o.CPU, o.Task.Comm, start, end)
				if o.Rule == "raise" && o.CPU == cpu && o.StartMono >= start && o.StartMono+uint64(spinFor/4) < end && o.EndMono >= end {
					assert.Check(t, realTime,
						"held up by the hog, although the end of the interrupt runs softirqs here")
					return
				}
				continue
			case <-late:
			}
			break
		}
		if !realTime {
			return
		}
	}
	t.Error("no softirq was reported as held up by the hog")
}

// hog spins on a CPU as a real-time task, and returns from when to when.
func hog(t *testing.T, cpu int, d time.Duration) (start, end uint64) {
	t.Helper()
	return startHog(t, cpu, d)()
}

// startHog returns when the task spins; what it returns waits for the end. Until it spins
// this polls: what Go would wake to tell of it may be behind the task.
func startHog(t *testing.T, cpu int, d time.Duration) (wait func() (start, end uint64)) {
	t.Helper()
	var start, end uint64
	var begun atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer begun.Store(true)
		runtime.LockOSThread() // and never unlocked: the thread ends here
		pin(t, cpu)
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}
		if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
			t.Error(err)
			return
		}
		var all unix.Sigset_t
		for i := range all.Val {
			all.Val[i] = ^all.Val[i]
		}
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil); err != nil {
			t.Error(err)
			return
		}
		start = linux.Monotonic()
		begun.Store(true)
		end = spinUntil(start + uint64(d))
	}()
	for !begun.Load() {
		runtime.Gosched()
	}
	return func() (uint64, uint64) {
		<-done
		return start, end
	}
}

// spinUntil spins until a time, and returns when it ended. Go does not preempt it where
// signals are blocked: it calls nothing that asks.
//
//go:nosplit
func spinUntil(end uint64) uint64 {
	var now unix.Timespec
	for uint64(now.Nano()) < end {
		_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&now)), 0)
	}
	return uint64(now.Nano())
}

// spun holds a report against the truth; false: the rest of the handler, emulated, took long itself.
func spun(t *testing.T, o *events.Outlier, truth slowirq.Spun) bool {
	t.Helper()
	t.Logf("%s: %v on top of %s[%d] on CPU %d, spun for %v", o.Rule, time.Duration(o.DelayNS), o.Task.Comm, o.Task.TID, o.CPU, truth.Delay())
	assert.Check(t, o.StartMono <= truth.Start && o.EndMono >= truth.End && o.CPU == int(truth.CPU),
		"reported from %d to %d on CPU %d, truth %+v", o.StartMono, o.EndMono, o.CPU, truth)
	return time.Duration(o.DelayNS)-truth.Delay() <= 4*slack
}

func pin(t *testing.T, cpus ...int) {
	t.Helper()
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	assert.Check(t, unix.SchedSetaffinity(0, &set))
}

// receive waits for a packet that never comes, as long as a timer of the kernel says.
func receive(d time.Duration) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	tv := unix.NsecToTimeval(d.Nanoseconds())
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	_, _ = unix.Read(fd, make([]byte, 1))
}

// up switches a network interface on.
func up(t *testing.T, name string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	assert.NilError(t, err)
	assert.NilError(t, unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req))
	req.SetUint16(req.Uint16() | unix.IFF_UP)
	assert.NilError(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req))
}
