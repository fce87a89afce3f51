package guest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
)

// TestNarrowDaemon: the daemon attaches to calls of 32-bit programs when it has seen
// such a program, and says how far it is.
func TestNarrowDaemon(t *testing.T) {
	inGuest(t)
	needFunctions(t)
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "s.sock"), filepath.Join(dir, "rules.yaml")
	assert.NilError(t, os.WriteFile(file, []byte("rules: [{name: sleeps, track: syscall, threshold: 50ms, "+
		"when: {comm: sleeper, syscall: [nanosleep, clock_nanosleep]}, stacks: [], snapshot: false}]"), 0o600))
	env := []string{"PATH=/bin"}
	daemon := exec.Command("/bin/tailcam", "run", "--rules", file, "--socket-path", socket,
		"--snapshots-dir", filepath.Join(dir, "snaps"), "--snapshots-min-free", "0", "--budget-cpu", "100%")
	var log bytes.Buffer
	daemon.Stdout, daemon.Stderr, daemon.Env = &log, &log, env
	assert.NilError(t, daemon.Start())
	t.Cleanup(func() {
		assert.Check(t, daemon.Process.Signal(unix.SIGTERM))
		err := daemon.Wait()
		assert.Check(t, err == nil && !t.Failed(), "the daemon: %v\n%s", err, &log)
		assert.Check(t, strings.Contains(log.String(), "32-bit calls: attached: "), "%s", &log)
	})
	await := func(want string, args ...string) string {
		t.Helper()
		for end := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Second) {
			cmd := exec.Command("/bin/tailcam", append(args, "--socket", socket)...)
			cmd.Env = env
			out, err := cmd.CombinedOutput()
			if err == nil && strings.Contains(string(out), want) {
				return string(out)
			}
			assert.Assert(t, !time.Now().After(end), "no %s: %v\n%s", want, err, out)
		}
	}
	await("32-bit calls: not attached: no 32-bit program has been seen", "status")
	assert.ErrorContains(t, runNarrow(t).Wait(), "exit status 1") // it only asks for arguments
	await(fmt.Sprintf("32-bit calls: attached: %d functions", sleepFunctions), "status")
	assert.NilError(t, runNarrow(t, "sleep64", "200ms").Wait())
	out := await(`"abi":"`+rules.SyscallABI(rules.Syscalls32)+`"`, "events", "-o", "json")
	assert.Check(t, strings.Contains(out, `"nr":407,"name":"clock_nanosleep_time64"`), "%s", out)
}
