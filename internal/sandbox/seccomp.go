package sandbox

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Profile is the set of allowed system calls; others fail with EPERM.
type Profile struct {
	calls   []uintptr
	largest uint64 // maximum bytes of one anonymous mapping
}

// Parser is for processes that parse untrusted data: they cannot open, connect or start
// anything.
//
// One mapping is limited to largest bytes: RLIMIT_DATA does not count memory that
// replaces a reservation, as Go's heap does, until it is used.
func Parser(largest int64) Profile { return Profile{runtimeCalls, uint64(largest)} }

// Opener is for processes that open files and read memory of other processes and parse
// nothing.
func Opener(largest int64) Profile {
	return Profile{append(slices.Clip(runtimeCalls), openCalls...), uint64(largest)}
}

// runtimeCalls are needed by Go's runtime and for reading from descriptors.
var runtimeCalls = append([]uintptr{
	unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_FSTATFS, unix.SYS_LSEEK, unix.SYS_FCNTL, unix.SYS_RECVMSG, unix.SYS_SENDMSG,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_BRK, unix.SYS_MINCORE,
	unix.SYS_FUTEX, unix.SYS_CLONE, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_GETTID, unix.SYS_GETPID, unix.SYS_TGKILL, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_GETRANDOM, unix.SYS_GETRUSAGE, unix.SYS_SETPRIORITY,
	unix.SYS_SETITIMER, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE,
}, archCalls...)

// openCalls are needed for opening files.
var openCalls = []uintptr{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_READLINKAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_PPOLL, unix.SYS_PROCESS_VM_READV,
}

// install installs the filter in all threads.
func (p Profile) install() error {
	program, err := bpf.Assemble(p.filter())
	if err != nil {
		return fmt.Errorf("assemble the system call filter: %w", err)
	}
	code := make([]unix.SockFilter, len(program))
	for i, in := range program {
		code[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("filter system calls: thread %d has another filter", thread)
	}
	return nil
}

// Offsets in struct seccomp_data.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// filter checks the calls one after the other, and the arguments of some. x32 numbers
// match none.
func (p Profile) filter() []bpf.Instruction {
	deny := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	out := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: dataNumber, Size: 4},
	}
	// C libraries then fall back to clone, whose flags can be checked.
	out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)})
	for _, nr := range p.calls {
		next := []bpf.Instruction{allow}
		switch nr {
		case unix.SYS_CLONE: // threads only
			next = bits(0, unix.CLONE_THREAD, allow, deny)
		case unix.SYS_MPROTECT: // not executable
			next = bits(2, unix.PROT_EXEC, deny, allow)
		case unix.SYS_MMAP: // limited size
			full := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOMEM)}
			next = []bpf.Instruction{
				bpf.LoadAbsolute{Off: dataArgs + 8*2, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.PROT_EXEC, SkipFalse: 1}, deny,
				bpf.LoadAbsolute{Off: dataArgs + 8*3, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.MAP_ANONYMOUS, SkipTrue: 1}, allow,
				bpf.LoadAbsolute{Off: dataArgs + 8 + 4, Size: 4}, // the upper half: little-endian
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(p.largest >> 32), SkipTrue: 1}, full,
				bpf.LoadAbsolute{Off: dataArgs + 8, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: uint32(p.largest), SkipFalse: 1}, full, allow,
			}
		case unix.SYS_TGKILL: // own process only
			next = []bpf.Instruction{
				bpf.LoadAbsolute{Off: dataArgs, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(unix.Getpid()), SkipTrue: 1}, deny, allow,
			}
		}
		out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(nr), SkipTrue: uint8(len(next))})
		out = append(out, next...)
	}
	return append(out, deny)
}

// bits branches on whether an argument has some bits set.
func bits(arg, mask uint32, set, clear bpf.Instruction) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArgs + 8*arg, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: mask, SkipFalse: 1}, set, clear,
	}
}
