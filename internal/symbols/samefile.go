package symbols

import (
	"os"

	"golang.org/x/sys/unix"
)

// Magic numbers of file systems on which /proc/PID/maps shows another device than
// stat(2): those with subvolumes or layers.
const (
	magicBtrfs    = 0x9123683e
	magicBcachefs = 0xca451a4e
	magicOverlay  = 0x794c7630
)

// sameFile returns an error if an open file is not the mapped one. The mapping or the
// path may have changed since maps was read, and names of another file are worse than
// none.
func sameFile(f *os.File, id fileID, dev, inode uint64) error {
	if id.ino == inode && id.dev == dev {
		return nil
	}
	if id.ino != inode {
		return errOtherFile
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	switch uint32(st.Type) {
	case magicBtrfs, magicBcachefs, magicOverlay:
		return nil
	}
	return errOtherFile
}
