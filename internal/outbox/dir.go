package outbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// partExt is the extension of a file that is not complete.
const partExt = ".part"

// dirTarget copies into a directory, which must exist: of a file system that is not
// mounted it does not, if it is not the mount point itself. Others may write there, so
// nothing follows a symlink that leads out of it.
type dirTarget struct{ dir string }

func (dirTarget) close() {}

func (t dirTarget) put(ctx context.Context, name string, o *object) (bool, error) {
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return false, err
	}
	defer root.Close() //nolint:errcheck // each file is closed
	if st, err := root.Lstat(name); err == nil {
		if st.Size() != o.bytes {
			err = errConflict
		}
		return true, err
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := root.Mkdir(filepath.Dir(name), 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	part := name + partExt
	if err := root.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return false, err
	}
	_, err = io.Copy(f, o.body(ctx, 0))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return false, errors.Join(err, root.Remove(part))
	}
	if err := root.Rename(part, name); err != nil {
		return false, err
	}
	return false, syncDir(root, filepath.Dir(name))
}

// syncDir makes a rename last.
func syncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
