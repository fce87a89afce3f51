package process

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Limits of unwinding; frames further apart are not valid.
const (
	maxFrames    = 64
	maxFrameSize = 1 << 20
)

// UserStack unwinds the frame pointers of a blocked thread, starting with the
// instruction at which it resumes, innermost frame first. If the thread runs meanwhile
// the stack may be short or wrong. Programs without frame pointers yield little more
// than ip. Needs CAP_SYS_PTRACE. On error it returns the frames found so far.
func UserStack(pid int, ip, sp, fp uint64) ([]uint64, error) {
	frames := []uint64{ip}
	for len(frames) < maxFrames && fp >= sp && fp-sp < maxFrameSize && fp%8 == 0 {
		var pair [16]byte // saved frame pointer and return address
		local := []unix.Iovec{{Base: &pair[0], Len: uint64(len(pair))}}
		remote := []unix.RemoteIovec{{Base: uintptr(fp), Len: len(pair)}}
		n, err := unix.ProcessVMReadv(pid, local, remote, 0)
		if err != nil {
			return frames, fmt.Errorf("read the stack of process %d: %w", pid, err)
		}
		next, back := binary.NativeEndian.Uint64(pair[:]), binary.NativeEndian.Uint64(pair[8:])
		if n < len(pair) || back == 0 {
			break
		}
		frames = append(frames, back)
		if next <= fp {
			break
		}
		sp, fp = fp, next
	}
	return frames, nil
}
