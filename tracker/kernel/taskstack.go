package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// stackProgram tells where a task is (bpf/tailcam.bpf.c).
const stackProgram = "stack_of_task"

// TaskStack reads the kernel stack of one task that is still pending, for kernels
// whose tick cannot (before 6.2): it costs some 14 us. Needs kernel 6.1+.
func (o *Objects) TaskStack(tid int) ([]uint64, error) {
	p := o.loaded.Load().programs[stackProgram]
	if p == nil {
		return nil, errors.New("read a task's stack: its program is not loaded")
	}
	f, err := taskIterator(p, tid)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var raw abi.TaskStack
	b := make([]byte, binary.Size(raw))
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read the stack of task %d: %w", tid, err)
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &raw); err != nil {
		return nil, fmt.Errorf("decode the stack of task %d: %w", tid, err)
	}
	return kinds.Frames(raw.Kernel[:], raw.Frames), nil
}

// taskIterator opens what an iterator over tasks has to say of one of them: cilium/ebpf cannot
// make one with such a filter. Needs kernel 6.1+.
func taskIterator(p *ebpf.Program, tid int) (*os.File, error) {
	filter := struct{ tid, pid, pidFD uint32 }{tid: uint32(tid)} // union bpf_iter_link_info, member task
	link, err := bpfCall(unix.BPF_LINK_CREATE, &struct {
		prog, target, kind, flags uint32
		info                      uint64
		infoLen, _                uint32
	}{
		prog: uint32(p.FD()), kind: unix.BPF_TRACE_ITER,
		info: uint64(uintptr(unsafe.Pointer(&filter))), infoLen: uint32(unsafe.Sizeof(filter)),
	})
	runtime.KeepAlive(&filter)
	if err != nil {
		return nil, fmt.Errorf("attach to task %d: %w", tid, err)
	}
	defer unix.Close(link)
	iter, err := bpfCall(unix.BPF_ITER_CREATE, &struct{ link, flags uint32 }{link: uint32(link)})
	if err != nil {
		return nil, fmt.Errorf("iterate over task %d: %w", tid, err)
	}
	return os.NewFile(uintptr(iter), "task iterator"), nil
}

// bpfCall is bpf(2) with an attribute of its own; returns a file descriptor.
func bpfCall[T any](command int, attr *T) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
