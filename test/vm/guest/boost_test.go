package guest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot"
)

const boostEnv = "TAILCAM_GUEST_BOOST"

// TestBoostByLimits: with the limits that the shipped unit sets, and without a capability, the
// threads of a process are raised to SCHED_RR on an overloaded machine, and given back.
func TestBoostByLimits(t *testing.T) {
	inGuest(t)
	for resource, most := range map[int]uint64{unix.RLIMIT_RTPRIO: 1, unix.RLIMIT_NICE: 40} {
		var before unix.Rlimit
		assert.NilError(t, unix.Getrlimit(resource, &before))
		assert.NilError(t, unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}))
		t.Cleanup(func() { assert.Check(t, unix.Setrlimit(resource, &before)) })
	}
	spinners := 12 * runtime.NumCPU()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(spinners + 8))
	var stop atomic.Bool
	defer stop.Store(true)
	for range spinners {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), boostEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s", out)
}

// boosted is the process that is raised.
func boosted() error {
	b, err := snapshot.NewBoost(time.Minute)
	if err != nil {
		return err
	}
	if !b.Stats().RealTime {
		return fmt.Errorf("SCHED_RR is not permitted")
	}
	for end := time.Now().Add(time.Minute); !linux.Overloaded(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("the machine is not overloaded")
		}
	}
	time.Sleep(time.Second) // beyond an older answer
	b.Start()
	raised, err := realTimeThreads()
	if err != nil || raised == 0 || !b.Stats().Raised {
		return fmt.Errorf("%d threads are raised, %+v: %w", raised, b.Stats(), err)
	}
	b.End()
	if raised, err = realTimeThreads(); err != nil || raised != 0 {
		return fmt.Errorf("%d threads stay raised: %w", raised, err)
	}
	return nil
}

// realTimeThreads counts those of this process.
func realTimeThreads() (n int, err error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return 0, err
		}
		if a, err := unix.SchedGetAttr(tid, 0); err == nil && a.Policy == unix.SCHED_RR {
			n++
		}
	}
	return n, nil
}
