package daemon

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/inject"
)

// provoke runs the injector as a user, to its end.
func provoke(t *testing.T, uid int, args ...string) []inject.Event {
	t.Helper()
	return inject.RunWith(t, inject.As(uid), args...)
}

// naps makes n system calls of that length, shared by threads: each one, and
// nothing else, is an outlier of a rule from napRule, however busy the machine is.
func naps(t *testing.T, uid, n int, length time.Duration, threads int) []inject.Event {
	t.Helper()
	events := provoke(t, uid, napArgs(n, length, threads)...)
	assert.Assert(t, len(events) == n, "injected %d of %d", len(events), n)
	return events
}

func napArgs(n int, length time.Duration, threads int) []string {
	return []string{"syscall", "sleep", strconv.Itoa(n), strconv.FormatInt(length.Microseconds(), 10), "0", "1", strconv.Itoa(threads)}
}

// napRule is a rule whose only outliers are the naps of a user. more is
// further keys, one a line.
func napRule(name string, uid int, more ...string) string {
	return entry(name, "syscall", "1ms", "{uid: "+strconv.Itoa(uid)+", comm: inj-syscall, syscall: clock_nanosleep}", more...)
}

// entry is one rule. Syscall rules ask for what every kernel has.
func entry(name, track, threshold, when string, more ...string) string {
	text := []string{
		"  - name: " + name, "track: " + track, "threshold: " + threshold, "when: " + when,
	}
	if track == "syscall" {
		text = append(text, "attach: all")
	}
	return strings.Join(append(text, more...), "\n    ") + "\n"
}

func rulesFile(entries ...string) string { return "rules:\n" + strings.Join(entries, "") }

// load keeps every CPU busy with tasks that wake each other, until stop.
func load(t *testing.T) (stop func()) {
	t.Helper()
	path := needTool(t, "hackbench", "rt-tests")
	// Its end is bounded even if this program dies without a word.
	cmd := exec.Command("timeout", "60", path, "-g", "2", "-l", "100000000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	assert.NilError(t, cmd.Start())
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		// it may have ended
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait() // killed
	}
	t.Cleanup(stop)
	return stop
}
