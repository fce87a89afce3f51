package recorded

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Spinner is the name of the thread that a child spins in.
const Spinner = "recorded-spin"

const spinVerb = "recorded-spin"

// Child does what the test program was started for by StartSpinner, and
// does not return then. TestMain calls it first.
func Child() {
	if len(os.Args) < 2 {
		return
	}
	if os.Args[1] == spinVerb {
		spin()
	}
}

func spin() {
	runtime.LockOSThread()
	name := append([]byte(Spinner), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
		os.Exit(1)
	}
	for {
		_ = time.Now()
	}
}

// StartSpinner starts a process that computes until the end of the test.
func StartSpinner(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", spinVerb)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
