package tailcam

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/activitypeer"
)

// near is how exact accounts are: 1 %, or 50 us.
func near(got, want uint64) bool { return max(got, want)-min(got, want) <= max(want/100, 50_000) }

func threadTime() uint64 {
	const threadCPU = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&ts)), 0)
	return uint64(ts.Nano())
}

func spin(d time.Duration) {
	for end := threadTime() + uint64(d); threadTime() < end; {
	}
}

// TestExact: what a goroutine's thread does and waits for is in its token's account.
func TestExact(t *testing.T) {
	p := activitypeer.StartKernel(t)
	h, err := Open(p.Path, nil)
	assert.NilError(t, err)
	defer h.Close()
	th := h.Thread()
	defer th.Release()
	const pause = 20 * time.Millisecond
	read, write, err := os.Pipe() // not blocking: the runtime parks the thread
	assert.NilError(t, err)
	defer read.Close()
	defer write.Close()
	var blocking [2]int
	assert.NilError(t, syscall.Pipe(blocking[:]))
	var lock sync.Mutex
	for _, test := range []struct {
		name string
		part func(*Account) uint64 // that has nearly all of the wall time
		do   func()
	}{
		{"spins", func(a *Account) uint64 { return a.CPUNS }, func() { spin(pause) }},
		{"sleeps", func(a *Account) uint64 { return a.BlockedTimerNS }, func() {
			ts := syscall.NsecToTimespec(int64(pause))
			_ = syscall.Nanosleep(&ts, nil)
		}},
		{"waits for a mutex", func(a *Account) uint64 { return a.BlockedLockNS }, func() { // a futex, as all that parks a locked thread
			lock.Lock()
			time.AfterFunc(pause, lock.Unlock)
			lock.Lock()
			defer lock.Unlock()
		}},
		{"waits for the network poller", func(a *Account) uint64 { return a.BlockedLockNS }, func() {
			time.AfterFunc(pause, func() { _, _ = write.Write([]byte{1}) })
			_, _ = read.Read(make([]byte, 1))
		}},
		{"reads a pipe", func(a *Account) uint64 { return a.BlockedTaskNS }, func() {
			time.AfterFunc(pause, func() { _, _ = syscall.Write(blocking[1], []byte{1}) })
			_, _ = syscall.Read(blocking[0], make([]byte, 1))
		}},
	} {
		// A machine may take the CPU at any time, also between the reading of the scheduler's clock and of
		// ours: what is not exact is measured again.
		wrong := "not measured"
		for n := 0; wrong != "" && n < 10; n++ {
			a, wall, ran := measure(t, h, th, test.do)
			rest := a.RunnableNS + a.CPUNS + a.UnexplainedNS
			if test.name == "spins" {
				rest -= a.CPUNS
			}
			switch {
			case !near(a.CPUNS, ran):
				wrong = "cpu"
			case !near(a.WallNS, wall):
				wrong = "wall"
			case !near(a.CPUNS+a.RunnableNS+a.BlockedNS+a.UnexplainedNS, a.WallNS):
				wrong = "parts are not the whole"
			case !near(test.part(&a)+rest, a.WallNS):
				wrong = "another part"
			default:
				wrong = ""
				continue
			}
			wrong = fmt.Sprintf("%s: %s: wall %d, cpu %d, account %+v", test.name, wrong, wall, ran, a)
		}
		assert.Check(t, is.Equal(wrong, ""))
	}
	assert.Check(t, syscall.Close(blocking[0]))
	assert.Check(t, syscall.Close(blocking[1]))
}

// measure returns the account of what do does, and what other clocks say: wall time, and the
// thread's time on a CPU.
func measure(t *testing.T, h *Handle, th *Thread, do func()) (a Account, wall, cpu uint64) {
	t.Helper()
	token := h.Token("request")
	cpu, wall = threadTime(), nanotime()
	th.Switch(token)
	do()
	th.Switch(0)
	wall, cpu = nanotime()-wall, threadTime()-cpu
	a, ok := h.End(token)
	assert.Check(t, ok)
	return a, wall, cpu
}
