package guest

import (
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// TestCallCost keeps the promise that the shipped syscall rules cost other calls
// nothing. The clock of this guest counts instructions, so that the same work
// takes the same time.
func TestCallCost(t *testing.T) {
	inGuest(t)
	if !strings.HasSuffix(os.Getenv("TAILCAM_GUEST_KERNEL"), "-idle") {
		t.Skip("the clock of this guest does not count instructions")
	}
	list, err := rules.Load([]string{"../../../configs/rules.d"}, &rules.LocalMachine{})
	assert.NilError(t, err)
	list = slices.DeleteFunc(list, func(r rules.Rule) bool { return r.Track != rules.Syscall })
	other, named := callTime(unix.SYS_GETPPID), callTime(unix.SYS_FSTAT)
	t.Logf("nothing attached: getppid %v, fstat %v", other, named)
	for _, way := range []rules.Attach{rules.AttachAuto, rules.AttachAll} {
		for i := range list {
			list[i].Attach = way
		}
		begin := time.Now()
		kernel, err := tracker.New(list, nil)
		assert.NilError(t, err)
		assert.Assert(t, len(kernel.Inactive()) == 0, "%v", kernel.Inactive())
		attach(t, kernel)
		t.Logf("%s: %d functions, loaded and attached in %v", way, kernel.CallFunctions().Attached, time.Since(begin))
		got := callTime(unix.SYS_GETPPID)
		t.Logf("%s: getppid %v, fstat %v", way, got, callTime(unix.SYS_FSTAT))
		begin = time.Now()
		assert.NilError(t, kernel.Close())
		t.Logf("%s: closed in %v", way, time.Since(begin))
		assert.Check(t, way == rules.AttachAll || got <= other*102/100, "getppid takes %v, and %v with nothing attached", got, other)
	}
}

// callTime is how long a call takes that fails at once.
func callTime(nr uintptr) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const calls = 10000
	best := time.Duration(math.MaxInt64)
	for range 5 {
		begin := time.Now()
		for range calls {
			_, _, _ = unix.RawSyscall(nr, math.MaxUint32, 0, 0)
		}
		best = min(best, time.Since(begin)/calls)
	}
	return best
}
