package kinds

import (
	"runtime"
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// unpaired never return, or return as another call.
var unpaired = []string{"exit", "exit_group", "rt_sigreturn", "sigreturn"}

// inSyscall: classes are by number of the call.
func inSyscall(nr int, m *rules.Match) bool {
	return Admits(m.Syscall, m.NotSyscall, nr) && !slices.Contains(unpaired, rules.SyscallName(nr))
}

// Calls are the numbers of the calls that conditions let pass.
func Calls(m *rules.Match) []int {
	var list []int
	for nr := range int(abi.Syscalls) {
		if inSyscall(nr, m) {
			list = append(list, nr)
		}
	}
	return list
}

// CallsWanted is what the kernel side looks at of each number, in either table
// (enum call_wanted), for floors by class.
func CallsWanted(floors []uint64) (wanted [abi.Syscalls32]uint8) {
	for nr := range wanted {
		if floors[nr] != abi.Never {
			wanted[nr] |= abi.CallEntry | abi.CallExit
		}
		if floors[abi.Syscalls32+nr] != abi.Never {
			wanted[nr] |= abi.CallEntry32 | abi.CallExit32
		}
	}
	if execs := execNumbers(); slices.ContainsFunc(execs, func(nr int) bool { return floors[nr] != abi.Never }) {
		for _, nr := range execs {
			wanted[rules.SyscallNR(nr)] |= execWanted(nr)
		}
	}
	return wanted
}

// execNumbers are those of the calls that may end as another one of them.
func execNumbers() []int {
	var list []int
	for _, name := range []string{"execve", "execveat"} {
		for _, number := range []func(string) (int, bool){rules.SyscallNumber, rules.SyscallNumber32} {
			if nr, ok := number(name); ok {
				list = append(list, nr)
			}
		}
	}
	return list
}

func execWanted(nr int) uint8 {
	switch {
	case runtime.GOARCH == "arm64": // the number stays as it was, for the other table
		return abi.CallExec | abi.CallExec32 | abi.CallExit | abi.CallExit32
	case rules.SyscallABI(nr) != "":
		return abi.CallExec32 | abi.CallExit32
	}
	return abi.CallExec | abi.CallExit
}

func decodeSyscall(o *events.Outlier, m *Message) {
	o.Syscall = SyscallInfo(int(m.Syscall))
	if ret := m.Ret; o.Cause != events.CauseTimeout {
		o.Syscall.Ret = &ret
	}
}

// addSyscall tells in which call a task slept, if in any.
func addSyscall(o *events.Outlier, m *Message) {
	if m.Syscall >= 0 {
		o.Syscall = SyscallInfo(int(m.Syscall))
	}
}

// SyscallInfo describes a call by its number in rules.
func SyscallInfo(nr int) *events.SyscallInfo {
	return &events.SyscallInfo{NR: rules.SyscallNR(nr), Name: rules.SyscallName(nr), ABI: rules.SyscallABI(nr)}
}
