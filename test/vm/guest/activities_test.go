package guest

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/contexts"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/threadctx"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// contextRecord is what OpenTelemetry's OTEP 4947 has a thread-local variable point to.
type contextRecord struct {
	trace [16]byte
	span  [8]byte
	valid byte
	_     byte
	bytes uint16 // of attributes
	attrs [4]byte
}

var published *contextRecord

// TestThreadContexts: a slow call has the context that its thread publishes, and a sleep too
// where interrupts can be seen; with every tracker that reads one loaded.
func TestThreadContexts(t *testing.T) {
	inGuest(t)
	const threshold = 10 * time.Millisecond
	sleep, ok := rules.SyscallNumber("nanosleep")
	assert.Assert(t, ok)
	when := rules.Match{PID: []uint32{uint32(os.Getpid())}, Syscall: []int{sleep}}
	kernel, err := tracker.New([]rules.Rule{
		{Name: "call", Track: rules.Syscall, Threshold: threshold, When: when, Attach: rules.AttachAll},
		{Name: "sleep", Track: rules.OffCPU, Threshold: threshold, When: when, Stacks: []rules.Stack{rules.UserStack}},
		{Name: "wakeup", Track: rules.Wakeup, Threshold: time.Hour},
		{Name: "chain", Track: rules.Chain, Threshold: time.Hour, When: rules.Match{Ends: []rules.End{rules.ToRun, rules.ToUser}}},
		{Name: "span", Track: rules.Span, Threshold: time.Hour},
	}, &tracker.Options{TrackSelf: true, Contexts: true, Attributes: true})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, kernel.Close()) })
	assert.Assert(t, len(kernel.Inactive()) == 0, "%v", kernel.Inactive())
	attach(t, kernel)
	outliers := collect(t, kernel)

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, image, err := process.Words(os.Getpid())
	assert.NilError(t, err)
	place := abi.ContextPlace{
		StartCode: image.StartCode, StartStack: image.StartStack,
		Offset: int64(uintptr(unsafe.Pointer(&published)) - threadPointer(t)),
	}
	assert.NilError(t, kernel.SetContext(os.Getpid(), &place))
	published = &contextRecord{trace: [16]byte{1, 15: 2}, span: [8]byte{3, 7: 4}, valid: 1, bytes: 4, attrs: [4]byte{7, 2, 'a', 'b'}}
	seen := map[string]bool{}
	for range 15 { // an interrupt may be late
		for rule, o := range slept(t, outliers) {
			assert.Check(t, rule == "sleep" && o.TraceID == "" || o.TraceID+o.SpanID == "010000000000000000000000000000020300000000000004", "%s: %+v", rule, o)
			raw := o.Context.Wait(time.Second).Attributes
			assert.Check(t, o.TraceID == "" || raw != nil && raw.PID == os.Getpid() && string(raw.Data) == "\x07\x02ab", "%s: %+v", rule, raw)
			seen[rule] = seen[rule] || o.TraceID != ""
		}
		if seen["sleep"] || runtime.GOARCH != "amd64" {
			break
		}
	}
	assert.Check(t, seen["call"] && seen["sleep"] == (runtime.GOARCH == "amd64"), "%v", seen)
	checkNow(t, kernel, events.Trace{ID: published.trace, Span: published.span})
	place.StartStack++ // another program
	assert.NilError(t, kernel.SetContext(os.Getpid(), &place))
	for rule, o := range slept(t, outliers) {
		assert.Check(t, o.TraceID == "", "%s: %+v", rule, o)
	}
}

// TestContextPrograms: slow calls of C programs have the context of their thread, in whichever way
// the variable is linked.
func TestContextPrograms(t *testing.T) {
	inGuest(t)
	sleep, ok := rules.SyscallNumber("nanosleep")
	assert.Assert(t, ok)
	kernel, outliers := watch(t, []rules.Rule{{
		Name: "call", Track: rules.Syscall, Threshold: 10 * time.Millisecond, Attach: rules.AttachAll,
		When: rules.Match{Comm: []string{"threadctx"}, Syscall: []int{sleep}},
	}}, &tracker.Options{Contexts: true})
	for i, way := range threadctx.Ways() {
		if way.Musl() {
			continue // guests have one C library
		}
		t.Run(way.Name, func(t *testing.T) {
			program := way.In(filepath.Join("/contexts", strconv.Itoa(i))).Start(t, "work", "3", "50000")
			place, err := contexts.Find(directly{symbols.New(nil)}, program.PID())
			assert.NilError(t, err)
			assert.NilError(t, kernel.SetContext(program.PID(), &place))
			program.Go()
			sleeps := program.Wait()
			assert.Equal(t, len(sleeps), 8) // of each of two threads three, and one without a context
			for i := range sleeps {
				o := await(t, outliers, "call", sleeps[i].TID)
				if o.Context != nil {
					o.SetTrace(o.Context.Wait(time.Second))
				}
				assert.Check(t, o.TraceID == sleeps[i].TraceID && o.SpanID == sleeps[i].SpanID, "%q, %q: %+v", o.TraceID, o.SpanID, sleeps[i])
			}
		})
	}
}

// directly reads files and memory in this process.
type directly struct{ *symbols.Resolver }

func (directly) Words(pid int, addrs ...uint64) ([]uint64, process.Image, error) {
	return process.Words(pid, addrs...)
}

// checkNow: what this thread publishes can be read by who asks.
func checkNow(t *testing.T, kernel *tracker.Tracker, want events.Trace) {
	t.Helper()
	threads, err := kernel.ContextThreads()
	assert.NilError(t, err)
	own := slices.DeleteFunc(threads, func(c abi.ContextThread) bool { return int(c.Tid) != unix.Gettid() })
	assert.Equal(t, len(own), 1)
	assert.DeepEqual(t, contexts.Read(directly{}, own, time.Now().Add(time.Minute)), []contexts.Thread{{PID: os.Getpid(), TID: unix.Gettid(), Trace: want}})
}

// slept is what each rule reports of a sleep.
func slept(t *testing.T, outliers <-chan *events.Outlier) map[string]*events.Outlier {
	t.Helper()
	d := unix.NsecToTimespec((50 * time.Millisecond).Nanoseconds())
	_ = unix.Nanosleep(&d, nil)
	list := map[string]*events.Outlier{}
	for _, rule := range []string{"sleep", "call"} {
		list[rule] = await(t, outliers, rule, unix.Gettid())
		if c := list[rule].Context; c != nil {
			list[rule].SetTrace(c.Wait(time.Second))
		}
	}
	return list
}

// threadPointer is that of this thread. On arm64, Go has none without cgo.
func threadPointer(t *testing.T) (pointer uintptr) {
	t.Helper()
	if runtime.GOARCH == "amd64" {
		const getFS = 0x1003 // ARCH_GET_FS
		_, _, errno := unix.RawSyscall(archPrctl, getFS, uintptr(unsafe.Pointer(&pointer)), 0)
		assert.Assert(t, errno == 0)
	}
	return pointer
}

const archPrctl = 158 // of x86-64
