package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	ct "github.com/tailcam/tailcam/internal/catalog/catalogtest"
)

// terminal opens a terminal of some rows, and returns what was shown on it when it is closed.
func terminal(t *testing.T, rows uint16) (*os.File, func() string) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { screen.Close() })
	fd := int(screen.Fd())
	assert.NilError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	assert.NilError(t, err)
	assert.NilError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: 80}))
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	assert.NilError(t, err)
	done := make(chan []byte)
	go func() {
		shown, _ := io.ReadAll(screen) // EIO when the last who has the terminal open closes it
		done <- shown
	}()
	return tty, func() string {
		assert.NilError(t, tty.Close())
		return strings.ReplaceAll(string(<-done), "\r\n", "\n")
	}
}

// Text that is longer than the terminal goes through PAGER; all else, and data, does not.
func TestPager(t *testing.T) {
	_, socket := serve(t)
	t.Setenv(socketEnv, socket)
	t.Setenv("TERM", "xterm")
	t.Setenv("COLUMNS", "80")
	_, text, _ := invoke(t, "status")
	long := uint16(strings.Count(text, "\n")) // one line too long, with the prompt
	seen := filepath.Join(t.TempDir(), "seen")
	for _, c := range []struct {
		line, pager string
		rows        uint16
		paged       bool
	}{
		{"status", "tee " + seen, long, true},
		{"status", "LC_ALL=C tee " + seen, long, true},
		{"status", "tee " + seen, long + 1, false},
		{"status --no-pager", "tee " + seen, 5, false},
		{"--no-pager status", "tee " + seen, 5, false},
		{"status -o json", "tee " + seen, 1, false},
		{"version", "tee " + seen, 1, false},
		{"status", "", 5, false},
		{"status", "cat", 5, false},
		{"status", "no-such-pager -x", 5, false},
		{"status", "head -n 0", 5, false}, // left at once: the rest is dropped
	} {
		t.Setenv("PAGER", c.pager)
		assert.NilError(t, os.RemoveAll(seen))
		tty, shown := terminal(t, c.rows)
		var stderr bytes.Buffer
		status := execute(t.Context(), newCLI(tty, &stderr, testDeps()), strings.Fields(c.line+" --color never"))
		onScreen := shown()
		assert.Check(t, status == exitOK && stderr.Len() == 0, "%+v: status %d, %s", c, status, &stderr)
		got, err := os.ReadFile(seen)
		assert.Check(t, (err == nil) == c.paged, "%+v: %v", c, err)
		if strings.HasPrefix(c.line, "status") && c.line != "status -o json" && c.pager != "head -n 0" {
			assert.Check(t, is.Equal(onScreen, text), "%+v", c)
		}
		assert.Check(t, !c.paged || string(got) == text, "%+v: %s", c, got)
	}
}

// A pager changes no exit status, and errors come after it.
func TestPagerKeepsStatus(t *testing.T) {
	t.Setenv("TERM", "xterm")
	dir, ids := ct.Make(t, ct.One{}, ct.One{})
	assert.NilError(t, os.WriteFile(filepath.Join(dir, ids[0], "snapshot.json"), nil, 0o600))
	for _, pager := range []string{"sed s/^/paged:/", "false"} {
		t.Setenv("PAGER", pager)
		tty, shown := terminal(t, 1)
		var stderr bytes.Buffer
		status := execute(t.Context(), newCLI(tty, &stderr, testDeps()), []string{"snapshots", "verify", "--snapshots-dir", dir})
		onScreen := shown()
		assert.Check(t, status == exitError && strings.HasPrefix(onScreen, "paged:") == (pager != "false"), "status %d, %s", status, onScreen)
	}
}
