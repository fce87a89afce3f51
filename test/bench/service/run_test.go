package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestInterrupted leaves nothing behind when it is stopped, and writes nothing.
func TestInterrupted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches to the kernel")
	}
	o := &options{rounds: 1, seconds: 1, only: []string{"getppid"}, variants: []string{vFtrace}, output: filepath.Join(t.TempDir(), "service.json")}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3600*time.Millisecond, errors.New("interrupted by the test"))
	defer cancel()
	assert.Assert(t, run(ctx, o) != nil, "an interrupted run reported success")
	_, err := os.Stat(o.output)
	assert.Check(t, err != nil, "an interrupted run wrote results")
	left, err := os.ReadDir(tmp)
	assert.Check(t, err == nil && len(left) == 0, "left in the temporary directory: %v, %v", left, err)
}
