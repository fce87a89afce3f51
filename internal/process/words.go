package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Image tells the programs apart that run in a process one after the other: an exec
// places code and stack anew, at random.
type Image struct{ StartCode, StartStack uint64 }

// Words reads words of 8 bytes of a process's memory. The memory may be mapped from any
// file, so this may hang. Needs CAP_SYS_PTRACE.
func Words(pid int, addrs ...uint64) (words []uint64, image Image, err error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil, Image{}, err
	}
	if image, err = parseImage(stat); err != nil || len(addrs) == 0 {
		return nil, image, err
	}
	words = make([]uint64, len(addrs))
	for i, at := range addrs {
		if err := Read(pid, at, unsafe.Slice((*byte)(unsafe.Pointer(&words[i])), 8)); err != nil {
			return nil, Image{}, err
		}
	}
	return words, image, nil
}

// Read fills a buffer, which must not be empty, from a process's memory. It may hang, as Words
// may. Needs CAP_SYS_PTRACE.
func Read(pid int, at uint64, to []byte) error {
	n, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &to[0], Len: uint64(len(to))}},
		[]unix.RemoteIovec{{Base: uintptr(at), Len: len(to)}}, 0)
	if err == nil && n != len(to) {
		err = unix.EFAULT
	}
	if err != nil {
		return fmt.Errorf("read its memory: %w", err)
	}
	return nil
}

// parseImage reads /proc/PID/stat, whose addresses are 0 or 1 for those who may not see them.
func parseImage(stat []byte) (m Image, err error) {
	const startCode, startStack = 26 - 3, 28 - 3
	_, fields, err := statFields(stat, startStack)
	if err != nil {
		return Image{}, err
	}
	for field, to := range map[int]*uint64{startCode: &m.StartCode, startStack: &m.StartStack} {
		if *to, err = strconv.ParseUint(fields[field], 10, 64); err != nil {
			return Image{}, fmt.Errorf("parse addresses of stat: %w", err)
		}
	}
	if m.StartStack <= 1 {
		return Image{}, errors.New("its addresses are hidden: it has exited, or CAP_SYS_PTRACE is missing")
	}
	return m, nil
}
