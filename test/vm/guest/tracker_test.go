package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/test/support/sequence"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestMain lets the test program be the injector's child, too.
func TestMain(m *testing.M) {
	provoke.Child()
	if os.Getenv(sleeperEnv) != "" {
		sleeper()
		os.Exit(0)
	}
	if name := os.Getenv(heldEnv); name != "" {
		held(name)
		os.Exit(1)
	}
	if os.Getenv(nbdEnv) != "" {
		serveNBD()
		os.Exit(0)
	}
	if os.Getenv(executorEnv) != "" {
		executor()
	}
	if os.Getenv(boostEnv) != "" {
		if err := boosted(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == inject.Verb {
		os.Exit(inject.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == sequence.Verb {
		os.Exit(sequence.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// slack is what a guest without hardware virtualization may add between the
// injector's clock and the kernel's hook.
const slack = 15 * time.Millisecond

// everyRule wants something of every tracker, with every kind of condition,
// so that the verifier of this kernel sees every part of the programs.
func everyRule() []rules.Rule {
	stacks := []rules.Stack{rules.KernelStack, rules.UserStack, rules.WakerStack}
	once := rules.SnapshotPolicy{Enabled: true, Every: time.Second, Burst: 1}
	sleep, _ := rules.SyscallNumber("clock_nanosleep")
	nanosleep, _ := rules.SyscallNumber("nanosleep")
	sleeps := []int{sleep, nanosleep}
	return []rules.Rule{
		{
			Name: "wakeup", Track: rules.Wakeup, Threshold: time.Hour, Stacks: stacks, Snapshot: once,
			When:      rules.Match{Thread: []rules.Thread{rules.UserThread}, NotComm: []string{"kwork*/?"}},
			Overrides: []rules.Override{{When: rules.Match{Comm: []string{"tailcam-v*"}}, Threshold: 50 * time.Millisecond}},
		},
		{
			Name: "offcpu", Track: rules.OffCPU, Threshold: 20 * time.Millisecond, Stacks: stacks,
			When: rules.Match{
				PID: []uint32{uint32(os.Getpid())}, NotUID: []uint32{77}, Syscall: sleeps,
				State: []rules.State{rules.Interruptible},
			},
		},
		{
			Name: "syscall", Track: rules.Syscall, Attach: attachCalls(), Threshold: 20 * time.Millisecond, Stacks: stacks[:2],
			When: rules.Match{PID: []uint32{uint32(os.Getpid())}, Syscall: sleeps},
		},
		{
			Name: "block", Track: rules.Block, Threshold: slowDiskDelay,
			When: rules.Match{Device: []string{"null*"}, Op: []rules.Op{rules.Read}},
		},
		{
			Name: "irq", Track: rules.IRQ, Threshold: time.Hour, Timeout: time.Hour, Stacks: stacks[:2], Snapshot: once,
			When: rules.Match{IRQ: []uint32{4}, NotIRQ: []uint32{5}, Name: []string{"tty*"}, NotName: []string{"nothing"}},
		},
		{
			Name: "softirq", Track: rules.Softirq, Threshold: time.Hour, Timeout: time.Hour, Stacks: stacks[:2], Snapshot: once,
			When: rules.Match{Vector: rules.Vectors, Phase: []rules.Phase{rules.Raise, rules.Run}, CPU: []uint32{0}, NotCPU: []uint32{1}},
		},
	}
}

// TestTrackers loads and attaches everything, injects one latency for each
// tracker, and expects it back with the right task and delay.
func TestTrackers(t *testing.T) {
	inGuest(t)
	for _, backend := range []string{flight.BackendMmap, flight.BackendPerf} {
		t.Run(backend, func(t *testing.T) { testTrackers(t, backend) })
	}
}

func testTrackers(t *testing.T, backend string) {
	const ringSize = 256 << 10
	opts := &tracker.Options{Groups: tracker.Groups, TrackSelf: true, Tasks: 4096}
	if backend == flight.BackendMmap {
		opts.Ring = ringSize
	}
	kernel, err := tracker.New(everyRule(), opts)
	assert.NilError(t, err)
	defer func() {
		assert.Check(t, kernel.Close())
	}()
	assert.Check(t, len(kernel.Inactive()) == 0, "rules that do not work on this kernel: %v", kernel.Inactive())
	ring, err := flight.New(kernel, backend, ringSize)
	assert.NilError(t, err)
	defer ring.Close()
	attach(t, kernel)
	outliers := collect(t, kernel)

	t.Run("wakeup", func(t *testing.T) {
		agreeWakeup(t, outliers, "wakeup", func(o *events.Outlier, _ int) bool {
			assert.Check(t, o.Waker != nil, "no waker")
			assert.Check(t, len(o.Raw.Kernel) != 0, "no kernel stack")
			t.Logf("on CPU instead: %+v, want %s", o.OnCPU, inject.CommHog)
			return (copied(t, o, o.Rule) || realTime()) && o.OnCPU != nil && o.OnCPU.Comm == inject.CommHog
		})
	})
	t.Run("sleep", func(t *testing.T) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid := unix.Gettid()
		for _, rule := range []string{"offcpu", "syscall"} {
			agree(t, func() (*events.Outlier, time.Duration, time.Duration) {
				const asked = 60 * time.Millisecond
				drop(outliers)
				took := sleep(t, asked)
				o := await(t, outliers, rule, tid)
				assert.Check(t, len(o.Raw.Kernel) != 0 && len(o.Raw.User) != 0,
					"%s: %d kernel and %d user frames", rule, len(o.Raw.Kernel), len(o.Raw.User))
				if !copied(t, o, rule) {
					return nil, 0, 0
				}
				s := o.Syscall
				assert.Check(t, s != nil && (s.Name == "nanosleep" || s.Name == "clock_nanosleep"),
					"slept in %+v", s)
				assert.Check(t, rule != "offcpu" || o.State == "interruptible", "state %s", o.State)
				return o, asked, took
			})
		}
	})
	t.Run("block", func(t *testing.T) {
		agree(t, func() (*events.Outlier, time.Duration, time.Duration) {
			drop(outliers)
			took, err := readDirect(slowDisk, 8192)
			assert.NilError(t, err)
			o := await(t, outliers, "block", 0)
			assert.Check(t, o.Block.Device == "nullb0" && o.Block.Sector == 16 && o.Block.Bytes == 4096 &&
				o.Block.Op == "read", "request %+v", o.Block)
			return o, slowDiskDelay, took // the device never answers early
		})
	})
	t.Run("recorder", func(t *testing.T) {
		_, err := ring.Freeze()
		assert.NilError(t, err)
		drained, err := ring.Drain()
		assert.NilError(t, err)
		kinds := map[uint16]int{}
		for _, s := range drained.CPUs {
			for i := range s.Records {
				kinds[uint16(s.Records[i].Type())]++
			}
		}
		t.Logf("records by type: %v", kinds)
		for _, want := range []uint16{1, 2, 9, 19} {
			assert.Check(t, kinds[want] != 0, "no record of type %d", want)
		}
		assert.Check(t, ring.Release())
	})
}

// attach attaches all that the rules need.
func attach(t *testing.T, kernel *tracker.Tracker) {
	t.Helper()
	assert.NilError(t, kernel.Attach())
	kernel.AttachCalls(t.Context())
	failed := kernel.CallFunctions().Failed
	assert.Assert(t, len(failed) == 0, "not attached: %v", failed)
}

// copied reports whether the user stack was copied. Of a task that a switch has given the
// CPU that is for x86 alone, and not for two of them at once. A real-time kernel has a thread
// of each CPU do what such interrupts are for, and raises none while that has work left
// (kernel/irq_work.c, __irq_work_queue_local()): it may wait for the same hog as the task.
func copied(t *testing.T, o *events.Outlier, rule string) bool {
	t.Helper()
	assert.Assert(t, o.User != nil && o.User.Registers[abi.UserSp] != 0, "%s: no registers", rule)
	data := o.User.Memory.Wait(time.Second).Data
	t.Logf("%s: %d bytes of the user stack", rule, len(data))
	return len(data) > 0 || runtime.GOARCH != "amd64" && rule != "syscall"
}

// agree injects a latency until what was reported lies within what is known
// of it, or nothing if it was disturbed. A guest on a busy host disturbs many
// injections; it cannot make a wrong tracker right.
func agree(t *testing.T, inject func() (o *events.Outlier, least, most time.Duration)) {
	t.Helper()
	for range 15 {
		o, least, most := inject()
		if o == nil {
			continue
		}
		got := time.Duration(o.DelayNS)
		t.Logf("%s: reported %v, known to be between %v and %v", o.Rule, got, least, most)
		if least <= got && got <= most {
			return
		}
	}
	t.Error("no injected latency was reported as it was")
}

// agreeWakeup lets a woken task wait for its CPU until a rule tells of it as it was.
// Its way there may have been another one than is meant.
func agreeWakeup(t *testing.T, outliers <-chan *events.Outlier, rule string, meant func(o *events.Outlier, tid int) bool) {
	t.Helper()
	agree(t, func() (*events.Outlier, time.Duration, time.Duration) {
		const asked = 100 * time.Millisecond
		truth, err := inject.Wakeup(context.Background(), asked)
		if err != nil {
			t.Log(err)
			return nil, 0, 0
		}
		// Attempts that were disturbed are outliers, too: the one meant overlaps the truth.
		o := await(t, outliers, rule, truth.TID)
		for o.EndMono < truth.StartMono {
			o = await(t, outliers, rule, truth.TID)
		}
		if !meant(o, truth.TID) {
			return nil, 0, 0
		}
		return o, asked - slack, truth.Delay() + slack
	})
}

// sleepCalls are the system calls that sleep makes, by kernel and architecture.
func sleepCalls() []int {
	newer, _ := rules.SyscallNumber("clock_nanosleep")
	older, _ := rules.SyscallNumber("nanosleep")
	return []int{newer, older}
}

func sleep(t *testing.T, d time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	ts := unix.NsecToTimespec(d.Nanoseconds())
	for {
		err := unix.Nanosleep(&ts, &ts)
		if err == nil {
			return time.Since(start)
		}
		assert.ErrorIs(t, err, unix.EINTR)
	}
}

// drop forgets what came so far.
func drop(outliers <-chan *events.Outlier) {
	for {
		select {
		case <-outliers:
		default:
			return
		}
	}
}

func collect(t *testing.T, kernel *tracker.Tracker) <-chan *events.Outlier {
	out := make(chan *events.Outlier, 4096)
	go func() {
		defer close(out)
		for {
			o, err := kernel.Read()
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			out <- o
		}
	}()
	return out
}

// gather reads outliers of what began since a time until one of a rule comes, and
// returns the first of each rule.
func gather(t *testing.T, outliers <-chan *events.Outlier, since uint64, last string) map[string]*events.Outlier {
	t.Helper()
	first := map[string]*events.Outlier{}
	for late := time.After(30 * time.Second); first[last] == nil; {
		select {
		case o := <-outliers:
			if o != nil && o.StartMono >= since && first[o.Rule] == nil {
				first[o.Rule] = o
			}
		case <-late:
			t.Fatalf("no outlier of rule %s; others: %v", last, first)
		}
	}
	return first
}

// await returns the next outlier of a rule and thread (0: any).
func await(t *testing.T, outliers <-chan *events.Outlier, rule string, tid int) *events.Outlier {
	t.Helper()
	late := time.After(30 * time.Second)
	var others []string
	for {
		select {
		case o := <-outliers:
			if o != nil && o.Rule == rule && (tid == 0 || o.Task.TID == tid) {
				return o
			}
			if o != nil && !slices.Contains(others, o.Rule) {
				others = append(others, o.Rule)
			}
		case <-late:
			t.Fatalf("no outlier of rule %s, thread %d; others came of %v", rule, tid, others)
		}
	}
}
