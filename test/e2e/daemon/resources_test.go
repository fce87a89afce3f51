package daemon

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestFewDescriptors: a daemon that may not open enough files says so before it
// does anything, and what to raise; with just enough it works.
func TestFewDescriptors(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "the limits are of the command line")
	prlimit := needTool(t, "prlimit", "util-linux")
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 1ms, every: 1ms, burst: 100}")))
	for _, n := range []string{"16", "64", "256"} {
		argv := append([]string{"--nofile=" + n + ":" + n}, h.command()...)
		a := outcome(t, exec.CommandContext(t.Context(), prlimit, argv...))
		assert.Check(t, a.code == 1 && strings.Contains(a.err, "raise LimitNOFILE=") &&
			!strings.Contains(a.err, "goroutine ") && strings.Count(a.err, "\n") <= 2, "%s descriptors: %+v", n, a)
	}
	d := h.exec(t, append([]string{prlimit, "--nofile=512:512"}, h.command()...))
	naps(t, uid, 3, 5*time.Millisecond, 1)
	settled(t, d, "nap", 3)
	byHand(d, "with few descriptors")
	d.stop(syscall.SIGTERM)
}

// TestLittleAddressSpace: a daemon whose helpers cannot have the address space that
// they reserve says so, tells of outliers all the same, and takes snapshots.
func TestLittleAddressSpace(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "the limits are of the command line")
	prlimit := needTool(t, "prlimit", "util-linux")
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 1ms, every: 1ms, burst: 100}")))
	d := h.exec(t, append([]string{prlimit, "--as=1073741824"}, h.command()...))
	assert.Check(t, d.log.has("address space is limited to 1024 MiB"), "the log does not tell of the limit")
	follow := followLate(t, d, "nap")
	naps(t, uid, 3, 5*time.Millisecond, 1)
	eventually(t, "the outliers are told", func() bool { return follow.count() >= 3 })
	eventually(t, "a snapshot is there", func() bool { return len(d.list()) > 0 })
	begin := time.Now()
	d.stop(syscall.SIGTERM)
	t.Logf("ended %s after TERM", time.Since(begin).Round(time.Millisecond))
	assert.Check(t, !d.log.has("goroutine "), "the log has the trace of a panic")
}
