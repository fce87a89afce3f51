package guest

import (
	"math/bits"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/activities"
	"github.com/tailcam/tailcam/internal/linux"
)

// TestTokens: the kernel side of activities loads here, and a sleep of a thread lands in
// the token that it carries.
func TestTokens(t *testing.T) {
	inGuest(t)
	a, err := activities.New(nil)
	assert.NilError(t, err)
	defer func() { assert.Check(t, a.Close()) }()
	for program, err := range a.Missing() {
		t.Logf("%s: %v", program, err)
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	assert.NilError(t, err)
	p, err := a.Open(&activities.Opening{PID: os.Getpid(), PidFD: fd, Inherit: true})
	assert.NilError(t, err)
	defer p.Close()
	assert.NilError(t, unix.Close(fd))
	size := (1 + p.Threads() + p.Tokens()) * abi.ActivitySharedBytes
	var shared []byte
	assert.NilError(t, p.Descriptors(func(fds []int) (err error) {
		shared, err = unix.Mmap(fds[0], 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	}))

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid, index := uint32(unix.Gettid()), 1+p.Threads()
	token := (*abi.ActivityToken)(unsafe.Pointer(&shared[index*abi.ActivitySharedBytes]))
	atomic.StoreUint32(&token.Generation, 1)
	home := int(tid * abi.ActivityHash >> (32 - bits.TrailingZeros(uint(p.Threads()))))
	slot := (*abi.ActivityThread)(unsafe.Pointer(&shared[(1+home)*abi.ActivitySharedBytes]))
	slot.Half[0] = abi.ActivityHalf{Token: uint32(index), Generation: 1, SinceNs: linux.Monotonic()}
	atomic.StoreUint32(&slot.Tid, tid)
	ts := unix.NsecToTimespec(int64(50 * time.Millisecond))
	for unix.Nanosleep(&ts, &ts) != nil { // signals of the runtime
	}
	var account abi.ActivityAccount
	p.Read(func(_, accounts []byte) {
		account = *(*abi.ActivityAccount)(unsafe.Pointer(&accounts[index*abi.ActivityAccountBytes]))
	})
	var parts uint64
	for i := abi.ActivityBlockedDiskNs; i <= abi.ActivityBlockedOtherNs; i++ {
		parts += account.Value[i]
	}
	// An emulator may take its time until the thread sleeps, in the call.
	whole := account.Value[abi.ActivityCpuNs] + account.Value[abi.ActivityRunnableNs] + account.Value[abi.ActivityBlockedNs]
	assert.Check(t, account.Generation == 1 && account.Value[abi.ActivityBlockedTimerNs] >= uint64(25*time.Millisecond) &&
		whole >= uint64(49*time.Millisecond), "%v", account)
	assert.Check(t, parts == account.Value[abi.ActivityBlockedNs], "%v", account)
}
