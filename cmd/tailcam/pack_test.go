package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

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

// TestPackedStandardInput: what reads a packed snapshot reads it from standard input alike, however it
// comes, without the rest of it, and leaves nothing behind.
func TestPackedStandardInput(t *testing.T) {
	dir, ids := slowSnapshots(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	file := filepath.Join(t.TempDir(), "slow.tailcam")
	status, _, stderr := invoke(t, "snapshots", "pack", ids[0], "--dir", dir, "-O", file)
	assert.Assert(t, status == exitOK, "%q", stderr)
	text, err := os.ReadFile(file)
	assert.NilError(t, err)
	packed := string(text)
	from := func(ctx context.Context, in io.Reader, args ...string) (int, string, string) {
		p := testDeps()
		p.stdin = in
		var stdout, stderr bytes.Buffer
		status := execute(ctx, newCLI(&stdout, &stderr, p), args)
		return status, stdout.String(), stderr.String()
	}
	for _, args := range []string{
		"explain %", "snapshots show % -o json", "export % --format folded -O -", "diff % " + filepath.Join(dir, ids[1]), "diff " + filepath.Join(dir, ids[1]) + " %",
	} {
		_, want, _ := invoke(t, strings.Fields(strings.Replace(args, "%", file, 1))...)
		in := iotest.OneByteReader(io.MultiReader(strings.NewReader(packed), neverEnds{}))
		status, got, stderr := from(t.Context(), in, strings.Fields(strings.Replace(args, "%", "-", 1))...)
		if strings.HasPrefix(args, "snapshots show") { // which tells where it is
			assert.Check(t, status == exitOK && strings.Contains(got, ids[0]), "%s: %q", args, stderr)
			continue
		}
		assert.Check(t, status == exitOK && got == want && got != "", "%s: %d, %q\n%s\nwant\n%s", args, status, stderr, got, want)
	}
	for _, bad := range []string{"", "no pack", packed[:len(packed)/2], "\x28\xb5\x2f\xfd"} {
		status, _, stderr = from(t.Context(), strings.NewReader(bad), "explain", "-")
		assert.Check(t, status == exitError && strings.HasPrefix(stderr, "tailcam: <stdin>: "), "%d bytes: %d, %q", len(bad), status, stderr)
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, interrupt)
	status, _, stderr = from(interrupted, neverEnds{}, "explain", "-")
	assert.Check(t, status != exitOK, "%q", stderr)
	left, err := os.ReadDir(tmp)
	assert.Check(t, err == nil && len(left) == 0, "left in TMPDIR: %v", left)
}

// neverEnds is a pipe whose writer says nothing.
type neverEnds struct{}

func (neverEnds) Read([]byte) (int, error) { select {} }

// TestPackedRedacted: what is packed with --redact says so, and has no name; the kinds can
// be chosen.
func TestPackedRedacted(t *testing.T) {
	dir, ids := slowSnapshots(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	file := filepath.Join(t.TempDir(), "slow.tailcam")
	status, stdout, stderr := invoke(t, "snapshots", "pack", ids[0], "--dir", dir, "-O", file, "--redact")
	assert.Assert(t, status == exitOK && stdout == file+"\n" && strings.Contains(stderr, "commands        1 replaced, "), "%d, %q, %q", status, stdout, stderr)
	assert.Check(t, strings.HasSuffix(stderr, "functions    kept\n"), "%q", stderr)
	for _, args := range [][]string{{"explain", file}, {"snapshots", "show", file}, {"export", file, "--format", "text"}, {"explain", file, "--format", "html"}} {
		status, stdout, stderr = invoke(t, args...)
		assert.Check(t, status == exitOK && !strings.Contains(stdout, "victim") && strings.Contains(stdout, "command-1"), "%s: %d, %q\n%s", args, status, stderr, stdout)
	}
	status, stdout, _ = invoke(t, "snapshots", "pack", ids[0], "--dir", dir, "-O", file, "--force", "--redact=hosts", "-o", "json")
	assert.Check(t, status == exitOK && isJSONLines(t, stdout) == 1 && strings.Contains(stdout, `"kinds":["hosts"]`), "%s", stdout)
	_, stdout, _ = invoke(t, "explain", file)
	assert.Check(t, is.Contains(stdout, "victim"))
	status, _, stderr = invoke(t, "snapshots", "pack", ids[0], "--dir", dir, "--redact=names")
	assert.Check(t, status == exitUsage && strings.Contains(stderr, `invalid --redact: unknown kind "names": must be usual, all, or some of users, `), "%d, %q", status, stderr)
	left, err := os.ReadDir(tmp)
	assert.Check(t, err == nil && len(left) == 0, "left in TMPDIR: %v", left)
}
