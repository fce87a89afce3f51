package linux

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FreeBytes is how many bytes of a directory's file system are free for users other than root.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}
