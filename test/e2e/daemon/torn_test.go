package daemon

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot"
)

const half = ".tmp-"

// TestTorn kills the daemon again and again while it writes a snapshot. What
// has a snapshot's name is complete, and the next start works and tidies up.
func TestTorn(t *testing.T) {
	needRoot(t)
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	args := []string{"--recorder-size", "4MiB"}
	torn, wanted := 0, 5
	for round := 0; torn < wanted; round++ {
		assert.Assert(t, round != 4*wanted, "in %d rounds only %d snapshots were torn", round, torn)
		d := h.start(t, args...)
		left := halves(t, h.snaps)
		assert.Assert(t, len(left) == 0, "the start has left %q", left)
		killWhileWriting(t, d)
		complete(t, h.snaps)
		if len(halves(t, h.snaps)) > 0 {
			torn++
			if torn == wanted {
				break // the next start has something to remove
			}
		}
	}
	d := h.start(t, args...)
	assert.Check(t, d.log.has("removed an incomplete snapshot"), "the log does not tell of the leftover")
	checkSnapshot(t, byHand(d, "after all that"))
	only(t, h.snaps, len(d.list()))
}

// killWhileWriting has snapshots taken until one is half there, and kills the
// daemon a moment later.
func killWhileWriting(t *testing.T, d *running) {
	t.Helper()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for !d.ended() {
			// the daemon dies under it
			exec.Command(built.tailcam, "snapshot", "--socket", d.socket).Run()
		}
	}()
	for len(halves(t, d.snaps)) == 0 {
		time.Sleep(100 * time.Microsecond)
	}
	// Early as often as late: how long writing takes differs from machine to machine.
	time.Sleep(time.Duration(rand.IntN(8000>>rand.IntN(7))) * time.Microsecond)
	d.stop(syscall.SIGKILL)
	<-asked
}

// halves lists what is not complete in a store.
func halves(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), half) {
			names = append(names, e.Name())
		}
	}
	return names
}

// complete holds that everything with a snapshot's name is one, and removes it.
func complete(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	for _, e := range entries {
		if _, err := snapshot.ParseID(e.Name()); err != nil {
			assert.Check(t, e.Name() == ".lock" || e.Name() == ".state" || e.Name() == ".state.new" || strings.HasPrefix(e.Name(), half),
				"%s lies in the store", e.Name())
			continue
		}
		path := filepath.Join(dir, e.Name())
		checkSnapshot(t, path)
		err := os.RemoveAll(path)
		assert.Assert(t, err == nil || errors.Is(err, os.ErrNotExist), "%v", err)
	}
}
