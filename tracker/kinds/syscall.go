package kinds

import (
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// unpaired never return, or return as another call.
var unpaired = []string{"exit", "exit_group", "rt_sigreturn"}

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

func decodeSyscall(o *events.Outlier, m *Message) {
	o.Syscall = &events.SyscallInfo{NR: int(m.Syscall), Name: rules.SyscallName(int(m.Syscall))}
	if ret := m.Ret; o.Cause != events.CauseTimeout {
		o.Syscall.Ret = &ret
	}
}

// addSyscall tells in which call a task slept, if in any.
func addSyscall(o *events.Outlier, m *Message) {
	if m.Syscall >= 0 {
		o.Syscall = &events.SyscallInfo{NR: int(m.Syscall), Name: rules.SyscallName(int(m.Syscall))}
	}
}
