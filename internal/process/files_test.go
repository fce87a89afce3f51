package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFilesOfThisProcess(t *testing.T) {
	table := New(nil)
	defer table.Close()
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files, err := table.Files(os.Getpid(), []int{int(f.Fd()), 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 {
		t.Fatalf("%d files, want 1: %+v", len(files), files)
	}
	if one := files[0]; one.FD != int(f.Fd()) || one.Name != path || one.Flags&unix.O_ACCMODE != unix.O_RDWR ||
		one.Flags&unix.O_APPEND == 0 || one.Flags&unix.O_CLOEXEC == 0 {
		t.Errorf("%s is %+v", path, one)
	}
	if _, err := table.Files(1<<30, []int{1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
}
