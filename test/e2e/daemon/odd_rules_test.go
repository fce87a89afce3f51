package daemon

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/stuckfs"
)

// TestOddRuleFiles: a reload that finds no file, or one that nobody answers for,
// changes nothing, says so, and holds up neither the next reload nor the end.
func TestOddRuleFiles(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "snapshot: false")))
	d := h.start(t)
	put := func(make func() error) {
		t.Helper()
		assert.NilError(t, os.Remove(h.rules))
		assert.NilError(t, make())
	}
	refused := func(says string) {
		t.Helper()
		d.reload("the running rules are unchanged")
		assert.Check(t, d.log.has(says), "the log does not say %q", says)
	}
	put(func() error { return syscall.Mkfifo(h.rules, 0o644) })
	refused(h.rules + ": is a FIFO")
	put(func() error { return os.Symlink("/dev/zero", h.rules) })
	refused("is a device")

	source := writeFile(t, h.dir+"/source", rulesFile(napRule("late", uid, "snapshot: false")), 0o644)
	fs := stuckfs.Mount(t, "rules", source)
	fs.Hang()
	t.Cleanup(fs.Answer)
	put(func() error { return os.Symlink(fs.Path(), h.rules) })
	refused("check the file systems of rules:")
	refused("an earlier read is still blocked")

	// It works on meanwhile.
	naps(t, uid, 2, 5*time.Millisecond, 1)
	settled(t, d, "nap", 2)

	a := tailcam(t, (&home{rules: h.rules, socket: h.dir + "/other.sock", snaps: h.dir + "/other"}).command()[1:]...)
	assert.Check(t, a.code == 1 && strings.Contains(a.err, "read rules: timed out reading rule files"),
		"a start on rules that hang: exit status %d, %q", a.code, a.err)

	fs.Answer()
	eventually(t, "rules are read again", func() bool {
		d.signal(syscall.SIGHUP)
		return d.log.has("rules reloaded")
	})
	d.status().rule("late")

	other := stuckfs.Mount(t, "rules", source)
	other.Hang()
	t.Cleanup(other.Answer)
	put(func() error { return os.Symlink(other.Path(), h.rules) })
	d.signal(syscall.SIGHUP)
	start := time.Now()
	d.stop(syscall.SIGTERM)
	t.Logf("SIGTERM during a reload that hangs: ended after %s", time.Since(start))
}
