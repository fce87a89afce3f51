package snapshot

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits for reading a directory: its owner, or an action in a snapshot, may have
// created any number of files.
const (
	maxListed   = 1 << 20
	maxCounted  = 1 << 16 // files per snapshot
	maxDepth    = 16
	namesAtOnce = 1024
)

// openDir opens a directory; with O_NOFOLLOW not through a symlink.
func openDir(path string, flags int) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
}

// dirEntries calls visit for each entry of a directory until it returns false.
func dirEntries(path string, flags int, visit func(os.DirEntry) bool) error {
	d, err := openDir(path, flags)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(namesAtOnce)
		for _, e := range entries {
			if !visit(e) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// dirNames lists the snapshots and temporary names in a store.
func dirNames(dir string) ([]string, error) {
	var names []string
	err := dirEntries(dir, 0, func(e os.DirEntry) bool {
		if _, err := ParseID(e.Name()); err == nil || isTemporary(e.Name()) {
			names = append(names, e.Name())
		}
		return len(names) < maxListed
	})
	return names, err
}

// listIDs lists the complete snapshots of a directory, oldest first.
func listIDs(dir string) ([]ID, error) {
	var ids []ID
	err := dirEntries(dir, 0, func(e os.DirEntry) bool {
		if id, err := ParseID(e.Name()); err == nil && e.IsDir() && id.String() == e.Name() {
			ids = append(ids, id)
		}
		return len(ids) < maxListed
	})
	slices.SortFunc(ids, compareIDs)
	return ids, err
}

// diskBytes returns the disk usage of a directory. It does not follow symlinks and
// ignores files that vanish; at most maxCounted files are counted.
func diskBytes(dir string) uint64 {
	var sum uint64
	add := func(info os.FileInfo) {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += uint64(st.Blocks) * 512
		}
	}
	if info, err := os.Lstat(dir); err == nil {
		add(info)
	}
	left := maxCounted
	visitBelow(dir, maxDepth, &left, add)
	return sum
}

// visitBelow calls visit for everything below a directory that still exists, at most
// left entries. It does not follow symlinks.
func visitBelow(dir string, depth int, left *int, visit func(os.FileInfo)) {
	if depth == 0 {
		return
	}
	_ = dirEntries(dir, unix.O_NOFOLLOW, func(e os.DirEntry) bool {
		if *left--; *left < 0 {
			return false
		}
		if info, err := e.Info(); err == nil {
			visit(info)
		}
		if e.IsDir() {
			visitBelow(filepath.Join(dir, e.Name()), depth-1, left, visit)
		}
		return true
	})
}
