package rules

import (
	"runtime"
	"slices"
	"strconv"
)

// syscallNames is the table of this machine.
func syscallNames() []string {
	if runtime.GOARCH == "arm64" {
		return callsARM[:]
	}
	return callsX86[:]
}

// elsewhere is the table of the other supported architecture.
func elsewhere() []string {
	if runtime.GOARCH == "arm64" {
		return callsX86[:]
	}
	return callsARM[:]
}

// SyscallName returns the name of this machine's system call nr, or
// "syscall_NR" if the number has none.
func SyscallName(nr int) string {
	if names := syscallNames(); nr >= 0 && nr < len(names) && names[nr] != "" {
		return names[nr]
	}
	return "syscall_" + strconv.Itoa(nr)
}

// SyscallNumber returns the number that a system call has on this machine.
func SyscallNumber(name string) (nr int, ok bool) {
	if name == "" {
		return 0, false
	}
	nr = slices.Index(syscallNames(), name)
	return nr, nr >= 0
}

// syscallMatches lists the numbers on this machine of the calls that match a glob.
// known is also true if only the other architecture has such calls, so that one
// rule file works on both.
func syscallMatches(glob string) (nrs []int, known bool) {
	for nr, name := range syscallNames() {
		if name != "" && GlobMatch(glob, name) {
			nrs = append(nrs, nr)
		}
	}
	known = len(nrs) > 0 || slices.ContainsFunc(elsewhere(), func(name string) bool {
		return name != "" && GlobMatch(glob, name)
	})
	return nrs, known
}

// neverReturns reports whether a call has an entry but no exit.
func neverReturns(nr int) bool {
	name := SyscallName(nr)
	return name == "exit" || name == "exit_group"
}

// knownCalls lists every name of either architecture.
func knownCalls() []string {
	return slices.DeleteFunc(slices.Concat(syscallNames(), elsewhere()), func(name string) bool { return name == "" })
}
