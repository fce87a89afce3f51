package trouble

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/cpus"
)

func inGuest(t *testing.T) {
	t.Helper()
	if os.Getenv("TAILCAM_GUEST") != "1" {
		t.Skip("ruins the machine it runs on: inside a test virtual machine only")
	}
}

func TestFails(t *testing.T) {
	inGuest(t)
	t.Error("as asked")
}

func TestPasses(t *testing.T) { inGuest(t) }

func TestSkips(t *testing.T) {
	inGuest(t)
	t.Skip("as asked")
}

func TestPanics(t *testing.T) {
	inGuest(t)
	assert.NilError(t, os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0))
}

func TestRestarts(t *testing.T) {
	inGuest(t)
	t.Fatal(unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
}

// TestHangs stops the test binary's threads, so that its own time limit cannot
// end it either.
func TestHangs(t *testing.T) {
	inGuest(t)
	t.Fatal(unix.Kill(0, unix.SIGSTOP))
}

// TestSleeps is ended by the test binary's time limit.
func TestSleeps(t *testing.T) {
	inGuest(t)
	time.Sleep(time.Hour)
}

// TestEatsMemory takes more than there is.
func TestEatsMemory(t *testing.T) {
	inGuest(t)
	var held [][]byte
	for {
		page := make([]byte, 16<<20)
		for i := 0; i < len(page); i += 4096 {
			page[i] = 1
		}
		held = append(held, page) //nolint:staticcheck // kept, so that memory runs out
	}
}

// TestStarves leaves no CPU time to anyone else, init included.
func TestStarves(t *testing.T) {
	inGuest(t)
	if os.Getenv("TAILCAM_HOG") != "" {
		for spins := 0; ; {
			spins++
		}
	}
	assert.NilError(t, os.WriteFile("/proc/sys/kernel/sched_rt_runtime_us", []byte("-1"), 0))
	// Children inherit the policy and the CPU of the thread that starts them.
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 99}
	assert.NilError(t, unix.SchedSetAttr(0, &attr, 0))
	for cpu := range runtime.NumCPU() {
		assert.NilError(t, cpus.Keep(cpu))
		hog := exec.Command("/proc/self/exe", "-test.run=TestStarves")
		hog.Env = append(os.Environ(), "TAILCAM_HOG=1")
		assert.NilError(t, hog.Start())
	}
	time.Sleep(time.Hour)
}
