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
		if round == 4*wanted {
			t.Fatalf("in %d rounds only %d snapshots were torn", round, torn)
		}
		d := h.start(t, args...)
		if left := halves(t, h.snaps); len(left) > 0 {
			t.Fatalf("the start has left %q", left)
		}
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
	if !d.log.has("removed an incomplete snapshot") {
		t.Error("the log does not tell of the leftover")
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := snapshot.ParseID(e.Name()); err != nil {
			if e.Name() != ".lock" && e.Name() != ".state" && !strings.HasPrefix(e.Name(), half) {
				t.Errorf("%s lies in the store", e.Name())
			}
			continue
		}
		path := filepath.Join(dir, e.Name())
		checkSnapshot(t, path)
		if err := os.RemoveAll(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}
