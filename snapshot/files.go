package snapshot

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// ReadFile reads a file of a snapshot, of at most most bytes. Snapshots may come from
// anywhere and actions may write into them, so it follows no symlinks and does not wait
// on pipes.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return data, nil
}

// TracePath returns the path of a snapshot's trace directory, which must not be a
// symlink.
func TracePath(dir string) (string, error) {
	path := filepath.Join(dir, TraceDir)
	st, err := os.Lstat(path)
	if err != nil {
		return "", fmt.Errorf("read trace: %w", err)
	}
	if !st.IsDir() {
		return "", fmt.Errorf("read trace: %s is not a directory", path)
	}
	return path, nil
}

// File is an entry of a snapshot: a file, or a directory with the total size of its
// files.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// maxFiles bounds the entries that Files returns.
const maxFiles = 1000

// Files lists the entries of a snapshot by name; more means that the list is truncated.
// It follows no symlinks.
func Files(dir string) (files []File, more bool) {
	left := maxCounted
	_ = dirEntries(dir, 0, func(e os.DirEntry) bool { // errors only shorten the list
		if more = len(files) == maxFiles; more {
			return false
		}
		f := File{Name: e.Name()}
		if e.IsDir() {
			visitBelow(filepath.Join(dir, e.Name()), maxDepth, &left, func(info os.FileInfo) {
				if info.Mode().IsRegular() {
					f.Bytes += info.Size()
				}
			})
		} else if info, err := e.Info(); err == nil {
			f.Bytes = info.Size()
		}
		files = append(files, f)
		return true
	})
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return files, more
}
