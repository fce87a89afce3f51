package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// File is an open file descriptor of a process.
type File struct {
	FD    int
	Flags uint32 // O_… of open(2)
	Name  string // path in the process's root, or the kernel's name, such as socket:[123]
}

// maxFDInfo bounds how much of /proc/PID/fdinfo/N is read; the flags come first.
const maxFDInfo = 256

// Files returns the open descriptors among fds. If the process has exited, the error
// wraps fs.ErrNotExist.
func (t *Table) Files(pid int, fds []int) ([]File, error) {
	dir, err := os.Open(filepath.Join(t.opts.Proc, strconv.Itoa(pid)))
	if err != nil {
		return nil, fmt.Errorf("look up files of process %d: %w", pid, err)
	}
	files, err := bounded(t, pid, "fd", func() ([]File, error) {
		defer dir.Close()
		return readFiles(dir, fds)
	})
	if err != nil {
		return nil, fmt.Errorf("look up files of process %d: %w", pid, err)
	}
	return files, nil
}

func readFiles(dir *os.File, fds []int) ([]File, error) {
	at, err := unix.Openat(int(dir.Fd()), "fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, gone(err)
	}
	defer unix.Close(at)
	var files []File
	target := make([]byte, unix.PathMax)
	for _, fd := range fds {
		name := strconv.Itoa(fd)
		n, err := unix.Readlinkat(at, name, target)
		if err != nil {
			continue // closed
		}
		f := File{FD: fd, Name: clean(string(target[:n]), maxCmdline)}
		if text, err := readIn(dir, "fdinfo/"+name, maxFDInfo); err == nil {
			f.Flags = fileFlags(string(text))
		}
		files = append(files, f)
	}
	return files, nil
}

func fileFlags(text string) uint32 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "flags:\t"); ok {
			flags, _ := strconv.ParseUint(value, 8, 32)
			return uint32(flags)
		}
	}
	return 0
}
