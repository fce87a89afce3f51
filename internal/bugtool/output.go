package bugtool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// output is the file of the archive, and the directory that it is in.
type output struct {
	file *os.File
	dir  int
	name string
}

// create makes a file that only its owner may read. It follows no symbolic link, so that
// nobody who may write to a directory above decides where root writes.
func create(path string) (*output, error) {
	dir, name := filepath.Split(filepath.Clean(path))
	if name == "-" || name == "." || name == ".." || name == "/" {
		return nil, fmt.Errorf("invalid -O %q: must be a file", path)
	}
	if dir == "" {
		dir = "."
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%s contains a symbolic link: give the real path of the directory (realpath %s)", dir, dir)
	case err != nil:
		return nil, fmt.Errorf("open directory %s: %w", dir, err)
	}
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	out, err := unix.Openat(fd, name, flags, 0o600)
	if err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("%s exists: remove it, or choose another file with -O", path)
		}
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	return &output{file: os.NewFile(uintptr(out), path), dir: fd, name: name}, nil
}

func (o *output) close() {
	o.file.Close()
	if o.dir >= 0 {
		defer unix.Close(o.dir)
	}
}

// remove removes the file.
func (o *output) remove() { _ = unix.Unlinkat(o.dir, o.name, 0) } // there is nobody left to tell
