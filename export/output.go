package export

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// existsError says how to go on.
func existsError(path string) error {
	return fmt.Errorf("%s exists: specify another, or replace it with --force", path)
}

// temporary is a name beside path that nothing has.
func temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()[:8]+".tmp")
}

// writeOut has fill write to path, or to stdout. A file appears whole or not at
// all; what is no file, such as a pipe, is written to as it is.
func writeOut(path string, force bool, stdout io.Writer, fill func(io.Writer) error) error {
	if path == Stdout {
		return fill(stdout)
	}
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		return fmt.Errorf("%s is a directory: specify a file", path)
	case err == nil && !st.Mode().IsRegular():
		return writeFile(path, os.O_WRONLY, fill)
	case err == nil && !force:
		return existsError(path)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("write output: %w", err)
	}
	temp := temporary(path)
	err = writeFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fill)
	if err == nil && force {
		err = os.Rename(temp, path)
	} else if err == nil {
		err = renameNew(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // it may not be there
	}
	return err
}

func writeFile(path string, flags int, fill func(io.Writer) error) error {
	f, err := os.OpenFile(path, flags, 0o640) //nolint:gosec // what one exports is for others to read
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return errors.Join(fill(f), f.Close())
}

// renameNew renames where nothing may be replaced.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case errors.Is(err, unix.EEXIST):
		return existsError(to)
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS): // a file system that cannot say so
		if _, err := os.Lstat(to); err == nil {
			return existsError(to)
		}
		return os.Rename(from, to)
	case err != nil:
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
