package process

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Bounds of a walk: what lies further apart is no stack frame.
const (
	maxFrames    = 64
	maxFrameSize = 1 << 20
)

// UserStack walks the frame pointers of a thread that does not run, from the
// instruction it will go on with; innermost first. It reads the memory of the
// process: a thread that goes on meanwhile gives a stack that ends early, or a
// wrong one. Programs built without frame pointers give little more than ip.
// Needs CAP_SYS_PTRACE. Errors come with the frames found before.
func UserStack(pid int, ip, sp, fp uint64) ([]uint64, error) {
	frames := []uint64{ip}
	for len(frames) < maxFrames && fp >= sp && fp-sp < maxFrameSize && fp%8 == 0 {
		var pair [16]byte // the caller's frame pointer, and where to return to
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
