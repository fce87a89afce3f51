// Package dirs makes the directories that tailcam keeps: its snapshots', its
// socket's, the demonstration's.
package dirs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// parentMode is that of /run and /var/lib: what is private lies below.
const parentMode = 0o755

// Make makes a directory with this mode, whatever the umask says, and the
// directories above it that are missing. One that exists stays as it is, as it
// may not be ours alone; created is false then. It may be a file.
func Make(dir string, mode fs.FileMode) (created bool, err error) {
	if err := os.MkdirAll(filepath.Dir(dir), parentMode); err != nil {
		return false, err
	}
	err = os.Mkdir(dir, mode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, os.Chmod(dir, mode)
}
