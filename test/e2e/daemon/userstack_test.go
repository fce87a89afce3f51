package daemon

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/tracker/events"
)

// waiter starts a program that waits for input.
func waiter(t *testing.T, uid int, command ...string) (stdin io.WriteCloser) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	stdin, err := cmd.StdinPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return stdin
}

// waits are rules for tasks of a user that sleep: while they do, and afterwards.
func waits(uid int) string {
	when := fmt.Sprintf("{uid: %d}", uid)
	return rulesFile(
		entry("offcpu", "offcpu", "30ms", when, "stacks: [kernel, user]", "snapshot: false"),
		"  - {name: stuck, track: offcpu, timeout: 40ms, when: "+when+", stacks: [user], snapshot: false}\n")
}

// TestUserStacksWithoutFramePointers: programs as distributions build them have whole stacks.
func TestUserStacksWithoutFramePointers(t *testing.T) {
	needRoot(t)
	program := filepath.Join(publicDir(t, ""), "chain")
	out, err := exec.Command(needTool(t, "gcc", "gcc libc6-dev"), "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls",
		"-fno-ipa-ra", "-o", program, "../../../internal/symbols/testdata/chain.c").CombinedOutput()
	assert.NilError(t, err, "%s", out)
	for _, tc := range []struct {
		command string
		way     []string // in this order, innermost first
	}{
		{program, []string{"link_innermost", "link_three", "link_two", "link_alloca", "link_aligned", "link_one", "main", "__libc_start_main"}},
		{"/bin/cat", []string{"read", "(cat+", "__libc_start_main", "(cat+"}},
	} {
		t.Run(filepath.Base(tc.command), func(t *testing.T) {
			uid := newUID()
			d := start(t, waits(uid))
			stdin := waiter(t, uid, tc.command)
			eventually(t, "it is stuck", func() bool { return len(d.events("stuck")) > 0 })
			_, err := stdin.Write([]byte{'x'})
			assert.NilError(t, err)
			eventually(t, "it has gone on", func() bool { return len(d.events("offcpu")) > 0 })
			for _, rule := range []string{"stuck", "offcpu"} {
				o := lastOf(t, d, rule)
				rest := strings.Join(o.Stacks.User, " ")
				for _, f := range tc.way {
					_, after, ok := strings.Cut(rest, f)
					assert.Check(t, ok, "%s: no %s in the rest of %q; missing %q", rule, f, o.Stacks.User, o.Stacks.UserMissing)
					rest = after
				}
				assert.Check(t, is.Equal(o.Stacks.UserMissing, ""))
				assert.Check(t, rule != "stuck" || !o.Stacks.Approximate, "it sleeps, and its stack is approximate")
				t.Logf("%s, approximate %t: %q", rule, o.Stacks.Approximate, o.Stacks.User)
			}
		})
	}
}

// lastOf is the first event of a rule, completed if that came later.
func lastOf(t *testing.T, d *running, rule string) (o events.Outlier) {
	t.Helper()
	eventually(t, "it is complete", func() bool {
		list := d.events(rule)
		o = list[0]
		for _, later := range list {
			if later.ID == o.ID {
				o = later
			}
		}
		return !o.Partial
	})
	return o
}

// TestUserStackOfExited: of a process that is gone its files may not be known. Then its
// stack says so.
func TestUserStackOfExited(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(entry("offcpu", "offcpu", "30ms", fmt.Sprintf("{uid: %d}", uid), "stacks: [user]", "snapshot: false")))
	for n := 1; n <= 20; n++ {
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		assert.NilError(t, cmd.Start())
		time.Sleep(60 * time.Millisecond)
		assert.NilError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
		if len(d.events("offcpu")) == 0 {
			continue // it was not asleep yet
		}
		eventually(t, "they are complete", func() bool {
			return !slices.ContainsFunc(d.events("offcpu"), func(o events.Outlier) bool { return o.Partial })
		})
		for _, o := range d.events("offcpu") {
			assert.Check(t, len(o.Stacks.User) >= 5 || len(o.Stacks.User) == 1 && o.Stacks.UserMissing != "",
				"user stack %q, missing %q", o.Stacks.User, o.Stacks.UserMissing)
			if strings.Contains(o.Stacks.UserMissing, "exited") {
				t.Logf("%q: %s", o.Stacks.User, o.Stacks.UserMissing)
				return
			}
		}
	}
	t.Log("each was read before it was gone")
}
