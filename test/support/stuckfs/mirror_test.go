package stuckfs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestMirror(t *testing.T) {
	dir := t.TempDir()
	m := MountMirror(t, dir)
	path := filepath.Join(m.Path(), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "hello" {
		t.Errorf("behind the mirror: %q, %v", text, err)
	}
	for op, do := range map[Op]func() error{
		Create: func() error { return os.Mkdir(filepath.Join(m.Path(), "dir"), 0o755) },
		Write:  func() error { _, err := f.WriteString("again"); return err },
		Sync:   f.Sync,
		Rename: func() error { return os.Rename(path, path+"2") },
		Remove: func() error { return os.Remove(path) },
	} {
		m.Fail(op)
		if err := do(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: got %v", op, err)
		}
	}
	m.Slow(50*time.Millisecond, Sync)
	begin := time.Now()
	if err := f.Sync(); err != nil || time.Since(begin) < 50*time.Millisecond {
		t.Errorf("slow sync: %v after %s", err, time.Since(begin))
	}
}
