package symbols

import (
	"os"

	"golang.org/x/sys/unix"
)

// Magic numbers of file systems whose files have another device in
// /proc/PID/maps than stat(2) tells: subvolumes, and layers.
const (
	magicBtrfs    = 0x9123683e
	magicBcachefs = 0xca451a4e
	magicOverlay  = 0x794c7630
)

// sameFile tells whether an open file is the one that was mapped: the process
// may have mapped another one since its maps were read, and another file may
// have taken the place of the path. Names of another file are worse than none.
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
