package guest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/trigger"
	"github.com/tailcam/tailcam/rules"
)

// TestTriggerCoredump: a program whose core is dumped fires the rule, with its signal and
// its process. The programs load on every kernel.
func TestTriggerCoredump(t *testing.T) {
	inGuest(t)
	if os.Getenv("TEST_COREDUMP_DIE") != "" {
		assert.NilError(t, unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}))
		panic("GOTRACEBACK=crash makes the runtime raise SIGABRT")
	}
	list, err := rules.Parse("test", []byte("rules: [{name: crash, track: trigger, on: coredump}]"), &rules.LocalMachine{})
	assert.NilError(t, err)
	fired := make(chan *trigger.Firing, 100)
	e := trigger.New(&trigger.Options{Fire: func(f *trigger.Firing) { fired <- f }})
	e.Set(list)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	defer func() {
		stop()
		assert.Check(t, <-ended)
	}()
	children := map[int]bool{}
	for {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestTriggerCoredump$")
		cmd.Env, cmd.Dir = append(os.Environ(), "TEST_COREDUMP_DIE=1", "GOTRACEBACK=crash"), t.TempDir()
		assert.Check(t, cmd.Run() != nil)
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		assert.Assert(t, status.CoreDump() && status.Signal() == unix.SIGABRT, "%v", cmd.ProcessState)
		children[cmd.Process.Pid] = true
		s, _ := e.State("crash")
		assert.Assert(t, s.Err)
		select {
		case f := <-fired:
			assert.Check(t, children[f.Task.PID] && strings.HasPrefix(f.Reason, "SIGABRT"), "%+v, %+v", f.Event, f.Task)
			assert.Check(t, strings.Contains(f.Reason, ", core dumped in ") && strings.Contains(f.Task.Cmdline, "-test.run"), "%+v, %+v", f.Event, f.Task)
			return
		case <-time.After(time.Second): // not attached yet
		}
	}
}
