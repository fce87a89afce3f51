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
	files, err := table.Files(os.Getpid(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, one := range files {
		if one.FD != int(f.Fd()) {
			continue
		}
		found = true
		if one.Name != path || one.Flags&unix.O_ACCMODE != unix.O_RDWR || one.Flags&unix.O_APPEND == 0 || one.Flags&unix.O_CLOEXEC == 0 {
			t.Errorf("%s is %+v", path, one)
		}
	}
	if !found {
		t.Errorf("%s is not among %d files", path, len(files))
	}
	if files, err := table.Files(os.Getpid(), 1); err != nil || len(files) != 1 {
		t.Errorf("one file: %d, %v", len(files), err)
	}
	if _, err := table.Files(1<<30, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
}
