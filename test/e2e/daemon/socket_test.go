package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestSocketRemoved: whoever removes the socket, its lock or their directory is told by
// the log, and can reach the daemon again; what another daemon has put there stays.
func TestSocketRemoved(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "stacks: []", "snapshot: false")))
	run := filepath.Join(h.dir, "run")
	h.socket = filepath.Join(run, "s.sock")
	d := h.start(t)
	follow := followLate(t, d, "nap") // a connection that stays
	told := 0
	for _, c := range []struct {
		what   string
		remove func() error
	}{
		{"the socket", func() error { return os.Remove(h.socket) }},
		{"its directory", func() error { return os.RemoveAll(run) }},
		{"its lock", func() error { return os.Remove(h.socket + ".lock") }},
	} {
		said := d.log.count("the socket was removed: listening again")
		assert.NilError(t, c.remove())
		if c.what == "the socket" {
			// It comes back by itself: this may be too late to see it.
			a := d.verb("status")
			assert.Check(t, a.code == 0 || strings.Contains(a.err, "daemon not reachable at "+h.socket), "%+v", a)
		}
		eventually(t, c.what+" is back", func() bool { return d.log.count("the socket was removed: listening again") > said })
		d.ok("status")
		naps(t, uid, 3, 2*time.Millisecond, 1)
		told += 3
		eventually(t, "a reader from before reads on", func() bool { return follow.count() >= told })
		a := tailcam(t, append(h.command()[1:], "--snapshots-dir", h.snaps+"2")...)
		assert.Check(t, a.code == 1 && strings.Contains(a.err, "another daemon is running"), "a second daemon: %+v", a)
	}

	// Another daemon has it meanwhile. The first one can only be reached by signals, and leaves it alone.
	d.pause()
	assert.NilError(t, os.RemoveAll(run))
	other := *h
	other.snaps = h.snaps + "2"
	second := other.start(t)
	d.resume()
	eventually(t, "the log of the first tells of it", func() bool { return d.log.has("was replaced: another daemon may be running") })
	pid := d.pid()
	d.signal(syscall.SIGTERM)
	eventually(t, "the first ends", d.ended)
	assert.Check(t, second.pid() != pid)
	second.ok("status")
	second.stop(syscall.SIGTERM)
}
