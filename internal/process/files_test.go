package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestFilesOfThisProcess(t *testing.T) {
	table := New(nil)
	defer table.Close()
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	assert.NilError(t, err)
	defer f.Close()
	files, err := table.Files(os.Getpid(), []int{int(f.Fd()), 1 << 20})
	assert.NilError(t, err)
	assert.Assert(t, len(files) == 1, "%d files, want 1: %+v", len(files), files)
	if one := files[0]; one.FD != int(f.Fd()) || one.Name != path || one.Flags&unix.O_ACCMODE != unix.O_RDWR ||
		one.Flags&unix.O_APPEND == 0 || one.Flags&unix.O_CLOEXEC == 0 {
		t.Errorf("%s is %+v", path, one)
	}
	_, err = table.Files(1<<30, []int{1})
	assert.Check(t, is.ErrorIs(err, fs.ErrNotExist), "no process")
}
