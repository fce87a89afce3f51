package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/cpus"
)

// TestMeasure measures an empty program, and leaves none attached and nobody playing.
func TestMeasure(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches to the kernel")
	}
	g, err := startGame(t.Context(), cpus.First(t))
	assert.NilError(t, err)
	before := links(t)
	row, err := measure(t.Context(), g, &compared()[0], 3, 20*time.Millisecond)
	assert.NilError(t, err)
	assert.Check(t, strings.Count(row, " ns") == 2 && !strings.Contains(row, "NaN"), "the row is %q", row)
	assert.Check(t, links(t) == before, "links are left")
	assert.NilError(t, g.end())
	_, err = g.roundTrip(t.Context(), time.Millisecond)
	assert.Check(t, errors.Is(err, os.ErrNotExist), "who has ended still plays: %v", err)
}

// TestMain is a player where a game starts one.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == playerArgument {
		play(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

// links counts those that this process keeps.
func links(t *testing.T) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	assert.NilError(t, err)
	for _, f := range list {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", f.Name())); err == nil && strings.Contains(to, "bpf_link") {
			n++
		}
	}
	return n
}
