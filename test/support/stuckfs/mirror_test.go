package stuckfs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestMirror(t *testing.T) {
	dir := t.TempDir()
	m := MountMirror(t, dir)
	path := filepath.Join(m.Path(), "file")
	f, err := os.Create(path)
	assert.NilError(t, err)
	defer f.Close()
	_, err = f.WriteString("hello")
	assert.NilError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "file"))
	assert.Check(t, err == nil && string(text) == "hello", "behind the mirror: %q, %v", text, err)
	for op, do := range map[Op]func() error{
		Create: func() error { return os.Mkdir(filepath.Join(m.Path(), "dir"), 0o755) },
		Write:  func() error { _, err := f.WriteString("again"); return err },
		Sync:   f.Sync,
		Rename: func() error { return os.Rename(path, path+"2") },
		Remove: func() error { return os.Remove(path) },
	} {
		m.Fail(op)
		assert.Check(t, is.ErrorIs(do(), syscall.EIO), "%s", op)
	}
	m.Slow(50*time.Millisecond, Sync)
	begin := time.Now()
	err = f.Sync()
	assert.Check(t, err == nil && time.Since(begin) >= 50*time.Millisecond,
		"slow sync: %v after %s", err, time.Since(begin))
}
