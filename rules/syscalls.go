package rules

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Syscalls32 is what the calls of 32-bit programs have added to their numbers
// (SYSCALLS_32 of the kernel side), as they have a table of their own. Both tables
// are shorter than that.
const Syscalls32 = 512

// isNarrow reports whether a number is one of 32-bit programs.
func isNarrow(nr int) bool { return nr >= Syscalls32 && nr < 2*Syscalls32 }

// callTables are the tables of an architecture.
type callTables struct {
	native, narrow []string // narrow: of 32-bit programs
	abi            string   // of narrow
}

func callTablesOf(arch string) callTables {
	if arch == "arm64" {
		return callTables{callsARM[:], callsARM32[:], "arm"}
	}
	return callTables{callsX86[:], callsI386[:], "i386"}
}

// here and elsewhere are the tables of this machine, and of the other supported architecture.
func here() callTables { return callTablesOf(runtime.GOARCH) }

func elsewhere() callTables {
	if runtime.GOARCH == "arm64" {
		return callTablesOf("amd64")
	}
	return callTablesOf("arm64")
}

// name returns "" for numbers without a name.
func (t callTables) name(nr int) string {
	names := t.native
	if isNarrow(nr) {
		names, nr = t.narrow, nr-Syscalls32
	}
	if nr < 0 || nr >= len(names) {
		return ""
	}
	return names[nr]
}

// matches lists the numbers of the calls that a glob matches: by their name or,
// those of 32-bit programs, by that of their family.
func (t callTables) matches(glob string) []int {
	var nrs []int
	for nr, name := range t.native {
		if name != "" && GlobMatch(glob, name) {
			nrs = append(nrs, nr)
		}
	}
	for nr, name := range t.narrow {
		if name != "" && (GlobMatch(glob, name) || GlobMatch(glob, t.family(name))) {
			nrs = append(nrs, nr+Syscalls32)
		}
	}
	return nrs
}

// families are calls of 32-bit programs that 64-bit programs know by a name
// which is not the same without a suffix.
var families = map[string]string{
	"_llseek": "lseek", "_newselect": "select", "mmap2": "mmap", "ugetrlimit": "getrlimit", "fstatat64": "newfstatat",
	"fadvise64_64": "fadvise64", "arm_fadvise64_64": "fadvise64", "arm_sync_file_range": "sync_file_range",
}

// family is what 64-bit programs call a call of 32-bit programs that does the
// same with wider times, sizes or ids: futex for futex_time64. Other calls are
// families of their own.
func (t callTables) family(name string) string {
	if f, ok := families[name]; ok {
		return f
	}
	if slices.Contains(t.native, name) {
		return name
	}
	for _, suffix := range []string{"_time64", "64", "32"} {
		short, ok := strings.CutSuffix(name, suffix)
		if ok && (slices.Contains(t.native, short) || slices.Contains(t.narrow, short)) {
			return short
		}
	}
	return name
}

// SyscallName returns the name of this machine's system call nr, or
// "syscall_NR" if the number has none. From Syscalls32 on, numbers are those of
// 32-bit programs: see SyscallABI.
func SyscallName(nr int) string {
	if name := here().name(nr); name != "" {
		return name
	}
	return "syscall_" + strconv.Itoa(SyscallNR(nr))
}

// SyscallNR returns the number that the program used.
func SyscallNR(nr int) int {
	if isNarrow(nr) {
		return nr - Syscalls32
	}
	return nr
}

// SyscallABI returns whose table a number is of: "i386" or "arm" for those of
// 32-bit programs, "" for those of 64-bit programs.
func SyscallABI(nr int) string {
	if !isNarrow(nr) {
		return ""
	}
	return here().abi
}

// SyscallNumber returns the number that a system call of 64-bit programs has on
// this machine.
func SyscallNumber(name string) (nr int, ok bool) {
	if name == "" {
		return 0, false
	}
	nr = slices.Index(here().native, name)
	return nr, nr >= 0
}

// SyscallNumber32 is SyscallNumber for 32-bit programs; Syscalls32 is added.
func SyscallNumber32(name string) (nr int, ok bool) {
	if name == "" {
		return 0, false
	}
	nr = slices.Index(here().narrow, name)
	return nr + Syscalls32, nr >= 0
}

// syscallMatches lists the numbers on this machine of the calls that match a glob.
// known is also true if only the other architecture has such calls, so that one
// rule file works on both.
func syscallMatches(glob string) (nrs []int, known bool) {
	nrs = here().matches(glob)
	return nrs, len(nrs) > 0 || len(elsewhere().matches(glob)) > 0
}

// neverReturns reports whether a call has an entry but no exit.
func neverReturns(nr int) bool {
	name := SyscallName(nr)
	return name == "exit" || name == "exit_group"
}

// knownCalls lists every name of either architecture.
func knownCalls() []string {
	a, b := here(), elsewhere()
	return slices.DeleteFunc(slices.Concat(a.native, a.narrow, b.native, b.narrow), func(name string) bool { return name == "" })
}
