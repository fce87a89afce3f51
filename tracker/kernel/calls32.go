package kernel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// narrowProgram looks for 32-bit programs among those that run (bpf/tailcam.bpf.c).
const narrowProgram = "find_narrow"

// FindNarrow looks for 32-bit programs among those that run. The hook that looks
// at each execve stands already, if functions of system calls are attached to.
func (o *Objects) FindNarrow() error { return o.eachTask(narrowProgram) }

// NarrowSeen reports whether any 32-bit program was seen since the hooks are attached.
func (o *Objects) NarrowSeen() (bool, error) {
	var seen bool
	if err := o.Vars.NarrowPrograms.Get(&seen); err != nil {
		return false, fmt.Errorf("ask whether there are 32-bit programs: %w", err)
	}
	return seen, nil
}

// renamed32 are functions that are called otherwise than the calls of 32-bit
// programs, and not by a rule of callNames32.
var renamed32 = map[string]string{
	"umount": "oldumount", "umount2": "umount", "uname": "newuname", "olduname": "uname", "oldolduname": "olduname",
	"stat": "newstat", "lstat": "newlstat", "fstat": "newfstat", "oldstat": "stat", "oldlstat": "lstat", "oldfstat": "fstat",
	"getrlimit": "old_getrlimit", "ugetrlimit": "getrlimit", "select": "old_select", "_newselect": "select",
	"readdir": "old_readdir", "mmap2": "mmap_pgoff", "_llseek": "llseek",
}

// renamedARM are the same of arm alone, and renamedI386 of i386.
var (
	renamedARM = map[string]string{
		"mmap2": "mmap2", "arm_fadvise64_64": "fadvise64_64", "arm_sync_file_range": "sync_file_range2",
		"semctl": "old_semctl", "msgctl": "old_msgctl", "shmctl": "old_shmctl",
	}
	renamedI386 = map[string]string{"fcntl": "fcntl64"}
)

// notCompat are calls that have compat functions, or stubs of such (kernel/sys_ni.c),
// which are in no table of ours. On i386, epoll_pwait is another.
var notCompat = []string{"sendfile64", "process_vm_readv", "process_vm_writev", "getsockopt", "setsockopt"}

// callNames32 are what the function of a 32-bit program's call may be called: the
// first that the kernel has is in its table (arch/x86/entry/syscalls/syscall_32.tbl,
// arch/arm64/tools/syscall_32.tbl). Calls with a width in their names came later: if
// they have no function of their own, it is that of 64-bit programs. The others may
// have one for narrow times or ids, beside that of 64-bit programs.
func callNames32(arch, call string) []string {
	special, compat, plain := []string{"__ia32_compat_sys_ia32_", "__ia32_sys_ia32_"}, "__ia32_compat_sys_", "__ia32_sys_"
	renamed := renamedI386
	if arch == "arm64" {
		special, compat, plain = []string{"__arm64_compat_sys_aarch32_"}, "__arm64_compat_sys_", "__arm64_sys_"
		renamed = renamedARM
	}
	base := cmp.Or(renamed[call], renamed32[call], call)
	own, all := []string{base + "_time32", base + "32", base + "16", base}, []string(nil)
	for _, suffix := range []string{"_time64", "64", "32"} {
		if short, ok := strings.CutSuffix(base, suffix); ok {
			own, all = []string{base}, []string{short}
			break
		}
	}
	var names []string
	for _, b := range own {
		for _, prefix := range special {
			names = append(names, prefix+b)
		}
	}
	if !slices.Contains(notCompat, call) && (call != "epoll_pwait" || arch == "arm64") {
		for _, b := range own {
			names = append(names, compat+b)
		}
	}
	for _, b := range slices.Concat(own, all) {
		names = append(names, plain+b, "__do_sys_"+b)
	}
	return names
}
