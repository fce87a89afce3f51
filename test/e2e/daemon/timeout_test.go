package daemon

import (
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	support "github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestTimeoutWhileStopped: work gets stuck while the daemon stands still. It is
// told afterwards as it was then: the kernel side needs no one for it.
func TestTimeoutWhileStopped(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile("  - {name: stuck, track: offcpu, timeout: 200ms, repeat: 200ms, when: {uid: "+strconv.Itoa(uid)+
		", comm: sleep}, stacks: [kernel, user], snapshot: {after: 0s, every: 100ms}}\n"))
	before := support.Stolen(t)
	d.pause()
	cmd := exec.CommandContext(t.Context(), "sleep", "0.9")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	assert.NilError(t, cmd.Run())
	time.Sleep(time.Second)
	d.resume()
	var got []events.Outlier
	eventually(t, "the sleep has ended", func() bool {
		got = d.events("stuck")
		return len(got) > 0 && got[len(got)-1].AfterTimeout
	})
	for i := range got {
		o := &got[i]
		t.Logf("%s after %v: %v", o.Cause, time.Duration(o.DelayNS), o.Stacks.Kernel)
		assert.Check(t, o.Task.PID == cmd.Process.Pid &&
			(o.Cause != events.CauseTimeout || o.State == "interruptible" && len(o.Stacks.Kernel) != 0),
			"outlier %+v", o)
	}
	// At 200, 400, 600, 800 ms and at the end, which may come later on a busy machine, as may a timeout.
	if n, all := len(got), int(got[len(got)-1].DelayNS/200e6)+1; n > all || n < 3 || n < 5 && support.Stolen(t) == before {
		t.Errorf("%d outliers, want %d", n, all)
	}
	assert.Check(t, got[0].Snapshot != nil, "no snapshot of the moment")
}

// TestUserStackOfStuck: what is stuck shows where in the program.
func TestUserStackOfStuck(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile("  - {name: stuck, track: syscall, attach: all, timeout: 100ms, when: {uid: "+strconv.Itoa(uid)+
		", comm: inj-syscall, syscall: [read]}, stacks: [kernel, user], snapshot: false}\n"))
	truth := provoke(t, uid, "syscall", "read", "1", "400000", "0", "1", "1")[0]
	eventually(t, "its end is told", func() bool { return len(d.events("stuck")) == 2 })
	o := d.events("stuck")[0]
	assert.Check(t, o.Cause == events.CauseTimeout && o.EndMono < truth.End,
		"first came %s at %d, it ended at %d", o.Cause, o.EndMono, truth.End)
	assert.Check(t, len(o.Stacks.User) >= 3, "user stack %q", o.Stacks.User)
	t.Logf("%q", o.Stacks.User)
}
