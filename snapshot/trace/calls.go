package trace

import (
	"strings"

	"github.com/tailcam/tailcam/bpf/abi"
)

// callArguments has the arguments of the common system calls: the names that
// the kernel and so LTTng give them, each with its type in front: i and u an
// int and an unsigned int, x the same in base 16, l and z a long and an
// unsigned long, p an address, s the address of a string. At most five: the
// record has no more. Other calls have their arguments without names.
var callArguments = map[string]string{ //nolint:gosec // names of system calls and their arguments
	"accept": "i fd,p upeer_sockaddr,p upeer_addrlen", "accept4": "i fd,p upeer_sockaddr,p upeer_addrlen,i flags",
	"access": "s filename,i mode", "alarm": "u seconds", "bind": "i fd,p umyaddr,i addrlen", "brk": "p brk",
	"chdir": "s filename", "chmod": "s filename,u mode", "chown": "s filename,u user,u group",
	"clock_gettime": "i which_clock,p tp", "clock_nanosleep": "i which_clock,i flags,p rqtp,p rmtp",
	"clone": "z clone_flags,p newsp,p parent_tid,p child_tid", "clone3": "p uargs,z size",
	"close": "u fd", "close_range": "u fd,u max_fd,u flags", "connect": "i fd,p uservaddr,i addrlen",
	"copy_file_range": "i fd_in,p off_in,i fd_out,p off_out,z len", "creat": "s pathname,u mode",
	"dup": "u fildes", "dup2": "u oldfd,u newfd", "dup3": "u oldfd,u newfd,i flags",
	"epoll_create1": "i flags", "epoll_ctl": "i epfd,i op,i fd,p event", "epoll_pwait": "i epfd,p events,i maxevents,i timeout,p sigmask",
	"epoll_pwait2": "i epfd,p events,i maxevents,p timeout,p sigmask", "epoll_wait": "i epfd,p events,i maxevents,i timeout",
	"eventfd2": "u count,i flags", "execve": "s filename,p argv,p envp", "execveat": "i fd,s filename,p argv,p envp,i flags",
	"exit": "i error_code", "exit_group": "i error_code", "faccessat": "i dfd,s filename,i mode",
	"faccessat2": "i dfd,s filename,i mode,i flags", "fadvise64": "i fd,l offset,z len,i advice",
	"fallocate": "i fd,i mode,l offset,l len", "fchdir": "u fd", "fchmod": "u fd,u mode", "fchmodat": "i dfd,s filename,u mode",
	"fchown": "u fd,u user,u group", "fchownat": "i dfd,s filename,u user,u group,i flag", "fcntl": "u fd,u cmd,z arg",
	"fdatasync": "u fd", "flock": "u fd,u cmd", "fork": "", "fstat": "u fd,p statbuf", "fstatfs": "u fd,p buf", "fsync": "u fd",
	"ftruncate": "u fd,z length", "futex": "p uaddr,i op,u val,p utime,p uaddr2", "getcwd": "p buf,z size",
	"getdents64": "u fd,p dirent,u count", "getpeername": "i fd,p usockaddr,p usockaddr_len", "getpid": "", "getppid": "",
	"getrandom": "p buf,z count,u flags", "getrusage": "i who,p ru", "getsockname": "i fd,p usockaddr,p usockaddr_len",
	"getsockopt": "i fd,i level,i optname,p optval,p optlen", "gettid": "", "gettimeofday": "p tv,p tz", "getuid": "",
	"inotify_add_watch": "i fd,s pathname,x mask", "io_getevents": "z ctx_id,l min_nr,l nr,p events,p timeout",
	"io_pgetevents": "z ctx_id,l min_nr,l nr,p events,p timeout", "io_submit": "z ctx_id,l nr,p iocbpp",
	"io_uring_enter": "u fd,u to_submit,u min_complete,x flags,p argp", "ioctl": "u fd,x cmd,z arg", "kill": "i pid,i sig",
	"link": "s oldname,s newname", "linkat": "i olddfd,s oldname,i newdfd,s newname,i flags", "listen": "i fd,i backlog",
	"lseek": "u fd,l offset,u whence", "lstat": "s filename,p statbuf", "madvise": "p start,z len_in,i behavior",
	"membarrier": "i cmd,u flags,i cpu_id", "mkdir": "s pathname,u mode", "mkdirat": "i dfd,s pathname,u mode",
	"mlock": "p start,z len", "mmap": "p addr,z len,z prot,z flags,z fd", "mprotect": "p start,z len,z prot",
	"mremap": "p addr,z old_len,z new_len,z flags,p new_addr", "msync": "p start,z len,i flags", "munmap": "p addr,z len",
	"nanosleep": "p rqtp,p rmtp", "newfstatat": "i dfd,s filename,p statbuf,i flag", "open": "s filename,i flags,u mode",
	"openat": "i dfd,s filename,i flags,u mode", "openat2": "i dfd,s filename,p how,z usize", "pause": "",
	"pipe2": "p fildes,i flags", "poll": "p ufds,u nfds,i timeout_msecs", "ppoll": "p ufds,u nfds,p tsp,p sigmask,z sigsetsize",
	"prctl": "i option,z arg2,z arg3,z arg4,z arg5", "pread64": "u fd,p buf,z count,l pos", "preadv": "z fd,p vec,z vlen,z pos_l,z pos_h",
	"preadv2": "z fd,p vec,z vlen,z pos_l,z pos_h", "prlimit64": "i pid,u resource,p new_rlim,p old_rlim",
	"pselect6": "i n,p inp,p outp,p exp,p tsp", "pwrite64": "u fd,p buf,z count,l pos", "pwritev": "z fd,p vec,z vlen,z pos_l,z pos_h",
	"pwritev2": "z fd,p vec,z vlen,z pos_l,z pos_h", "read": "u fd,p buf,z count", "readahead": "i fd,l offset,z count",
	"readlink": "s path,p buf,i bufsiz", "readlinkat": "i dfd,s pathname,p buf,i bufsiz", "readv": "z fd,p vec,z vlen",
	"recvfrom": "i fd,p ubuf,z size,x flags,p addr", "recvmmsg": "i fd,p mmsg,u vlen,x flags,p timeout", "recvmsg": "i fd,p msg,x flags",
	"rename": "s oldname,s newname", "renameat": "i olddfd,s oldname,i newdfd,s newname",
	"renameat2": "i olddfd,s oldname,i newdfd,s newname,x flags", "restart_syscall": "", "rmdir": "s pathname",
	"rt_sigaction": "i sig,p act,p oact,z sigsetsize", "rt_sigprocmask": "i how,p nset,p oset,z sigsetsize", "rt_sigreturn": "",
	"rt_sigsuspend": "p unewset,z sigsetsize", "rt_sigtimedwait": "p uthese,p uinfo,p uts,z sigsetsize",
	"sched_getaffinity": "i pid,u len,p user_mask_ptr", "sched_setaffinity": "i pid,u len,p user_mask_ptr",
	"sched_setscheduler": "i pid,i policy,p param", "sched_yield": "", "select": "i n,p inp,p outp,p exp,p tvp",
	"semop": "i semid,p tsops,u nsops", "semtimedop": "i semid,p tsops,u nsops,p timeout",
	"sendfile": "i out_fd,i in_fd,p offset,z count", "sendmmsg": "i fd,p mmsg,u vlen,x flags", "sendmsg": "i fd,p msg,x flags",
	"sendto": "i fd,p buff,z len,x flags,p addr", "set_robust_list": "p head,z len", "setsockopt": "i fd,i level,i optname,p optval,i optlen",
	"shutdown": "i fd,i how", "socket": "i family,i type,i protocol", "socketpair": "i family,i type,i protocol,p usockvec",
	"splice": "i fd_in,p off_in,i fd_out,p off_out,z len", "stat": "s filename,p statbuf", "statfs": "s pathname,p buf",
	"statx": "i dfd,s filename,x flags,x mask,p buffer", "symlink": "s oldname,s newname", "symlinkat": "s oldname,i newdfd,s newname",
	"sync": "", "sync_file_range": "i fd,l offset,l nbytes,x flags", "syncfs": "i fd", "tee": "i fdin,i fdout,z len,x flags",
	"tgkill": "i tgid,i pid,i sig", "timerfd_settime": "i ufd,i flags,p utmr,p otmr", "tkill": "i pid,i sig", "truncate": "s path,l length",
	"umount2": "s name,i flags", "uname": "p name", "unlink": "s pathname", "unlinkat": "i dfd,s pathname,i flag",
	"utimensat": "i dfd,s filename,p utimes,i flags", "vfork": "", "wait4": "i upid,p stat_addr,i options,p ru",
	"waitid": "i which,i upid,p infop,i options,p ru", "write": "u fd,p buf,z count", "writev": "z fd,p vec,z vlen",
}

// lttngCalls has the names of calls that LTTng, like the kernel inside, names
// otherwise than people do.
var lttngCalls = map[string]string{
	"fstat": "newfstat", "lstat": "newlstat", "sendfile": "sendfile64", "stat": "newstat", "umount2": "umount", "uname": "newuname",
}

func toLTTng(call string) string {
	if name, ok := lttngCalls[call]; ok {
		return name
	}
	return call
}

func fromLTTng(name string) string {
	for call, other := range lttngCalls {
		if other == name {
			return call
		}
	}
	return name
}

// narrowPrefix is what LTTng puts before the events of 32-bit programs' calls.
const narrowPrefix = "compat_"

// isNarrow reports whether nr is of the table for 32-bit programs.
func isNarrow(nr uint32) bool { return nr >= abi.Syscalls32 && nr < abi.Syscalls }

// callFields returns the fields of a named system call's events.
func callFields(t Type, call string) []field {
	pid := field{"caller_pid", kS32, abi.OffSyscallPid}
	if t == SyscallExit {
		return []field{{"ret", kS64, abi.OffSyscallRet}, pid}
	}
	spec, ok := callArguments[call]
	switch {
	case !ok:
		return []field{{"args", kArgs, abi.OffSyscallArgs}, pid}
	case spec == "":
		return []field{pid}
	}
	kinds := map[string]kind{"i": kS32, "u": kU32, "x": kX32, "l": kS64, "z": kU64, "p": kX64, "s": kAddress}
	var fields []field
	for i, arg := range strings.Split(spec, ",") {
		letter, name, _ := strings.Cut(arg, " ")
		fields = append(fields, field{name, kinds[letter], abi.OffSyscallArgs + 8*i})
	}
	return append(fields, pid)
}

// callFields1 has the fields of a system call's events in layout 1.
func callFields1(t Type) []field {
	fields := []field{{"nr", kU32, abi.OffSyscallNr}, {"pid", kS32, abi.OffSyscallPid}}
	if t == SyscallExit {
		fields = append([]field{{"ret", kS64, abi.OffSyscallRet}}, fields...)
	}
	return fields
}

// Event ids in CTF. Up to firstSyscallID an id is the Type. A system call
// with a name has two of its own, entry (even) and exit (odd); others use the
// ids of SyscallEntry and SyscallExit.
const (
	firstSyscallID  = 64
	namedSyscalls   = 4096 // numbers from here on have no id of their own
	extendedEventID = 65535
)

func syscallID(t Type, nr uint32) uint16 {
	id := firstSyscallID + 2*uint16(nr)
	if t == SyscallExit {
		id++
	}
	return id
}

// syscallNames remembers the names of the calls that the trace has.
type syscallNames struct {
	ask   func(nr int) string
	asked [namedSyscalls]bool
	known map[uint32]*namedCall
}

type namedCall struct {
	name        string
	entry, exit []field
}

// get returns the call if it has a name and so event ids of its own.
func (n *syscallNames) get(nr uint32) *namedCall {
	if n.ask == nil || nr >= namedSyscalls {
		return nil
	}
	if !n.asked[nr] {
		n.asked[nr] = true
		if name := n.ask(int(nr)); identifier(name) && name != "unknown" {
			if n.known == nil {
				n.known = make(map[uint32]*namedCall)
			}
			fields := name
			if isNarrow(nr) {
				fields = "" // some have other arguments than the calls of that name
			}
			n.known[nr] = &namedCall{name: name, entry: callFields(SyscallEntry, fields), exit: callFields(SyscallExit, fields)}
		}
	}
	return n.known[nr]
}
