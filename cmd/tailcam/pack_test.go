package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// TestPacked: what reads a snapshot reads a packed one alike, and leaves nothing behind.
func TestPacked(t *testing.T) {
	dir, ids := slowSnapshots(t)
	tmp, elsewhere := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	file := filepath.Join(elsewhere, "slow.tailcam")
	status, stdout, stderr := invoke(t, "snapshots", "pack", ids[0], "--dir", dir, "-O", file)
	assert.Assert(t, status == exitOK && stdout == file+"\n", "%d, %q, %q", status, stdout, stderr)
	for _, args := range []string{"explain %", "explain % -o json", "snapshots show % -o json", "export % --format folded -O -", "diff % " + filepath.Join(dir, ids[1])} {
		asDir := strings.Fields(strings.Replace(args, "%", filepath.Join(dir, ids[0]), 1))
		asFile := strings.Fields(strings.Replace(args, "%", file, 1))
		_, want, _ := invoke(t, asDir...)
		status, got, stderr := invoke(t, asFile...)
		if strings.HasPrefix(args, "snapshots show") { // which tells where it is, and what is beside it
			assert.Check(t, status == exitOK && strings.Contains(got, ids[0]), "%s: %q", args, stderr)
			continue
		}
		assert.Check(t, status == exitOK && got == want && got != "", "%s: %d, %q\n%s\nwant\n%s", args, status, stderr, got, want)
	}
	status, _, stderr = invoke(t, "snapshots", "pack", ids[0], "--dir", dir, "-O", file)
	assert.Check(t, status == exitError && strings.Contains(stderr, "already exists: use --force"), "%d, %q", status, stderr)
	assert.NilError(t, os.WriteFile(file, []byte("no pack"), 0o600))
	status, _, stderr = invoke(t, "explain", file)
	assert.Check(t, status == exitError && strings.Contains(stderr, "it is no packed snapshot"), "%d, %q", status, stderr)
	left, err := os.ReadDir(tmp)
	assert.Check(t, err == nil && is.Len(left, 0)().Success(), "left in TMPDIR: %v", left)
}
