package rules

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestGlobMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true},
		{"", "a", false},
		{"a", "a", true},
		{"a", "ab", false},
		{"*", "", true},
		{"*", "a/b", true},
		{"?", "", false},
		{"?", "a", true},
		{"a*", "abc", true},
		{"*c", "abc", true},
		{"*b", "abc", false},
		{"a*c", "abcbc", true},
		{"a**c", "ac", true},
		{"*a*b*", "xxaxxbxx", true},
		{"*a*b*", "xxbxxaxx", false},
		{"kworker/*", "kworker/u8:0", true},
		{"kworker/*", "kworker", false},
		{"nvme?n1", "nvme0n1", true},
		{"nvme?n1", "nvme10n1", false},
		{"a\\*", "a*", false},
		{"*sync*", "fdatasync", true},
	} {
		got := GlobMatch(tt.pattern, tt.s)
		assert.Check(t, got == tt.want, "GlobMatch(%q, %q) = %v", tt.pattern, tt.s, got)
	}
	// What takes a naive matcher longer than the age of the universe.
	assert.Check(t, !GlobMatch(strings.Repeat("*a", 1000)+"b", strings.Repeat("a", 10000)), "matches without a b")
}

func TestCgroupMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, path string
		want          bool
	}{
		{"/", "/", true},
		{"/a", "/a", true},
		{"/a", "/a/b", false},
		{"/*", "/a", true},
		{"/*", "/a/b", false},
		{"/*", "/", true},
		{"/a?c", "/abc", true},
		{"/a?c", "/a/c", false},
		{"/**", "/", true},
		{"/**", "/a/b", true},
		{"/a/**", "/a", true},
		{"/a/**", "/a/b/c", true},
		{"/a/**", "/ab", false},
		{"/a/**/b", "/a/b", true},
		{"/a/**/b", "/a/x/y/b", true},
		{"/a/**/b", "/ab", false},
		{"/a/**/b", "/a/xb", false},
		{"/**/b", "/b", true},
		{"/**/b/**", "/a/b", true},
		{"/**/b/**", "/a/b/c", true},
		{"/**/b/**", "/a/bc", false},
		{"/kube*/**/*.scope", "/kubepods/burstable/pod1/x.scope", true},
		{"/kube*/**/*.scope", "/kubepods/burstable/pod1/x.slice", false},
		{"/system.slice/*.service", "/system.slice/ssh.service", true},
		{"/system.slice/*.service", "/system.slice/a.slice/ssh.service", false},
		{"/a**b", "/ax/yb", true},
		{"/dev-disk\\x2d1", "/dev-disk\\x2d1", true},
		{"/a", "", false},
		{"/**", "", true},
	} {
		got := CgroupMatch(tt.pattern, tt.path)
		assert.Check(t, got == tt.want, "CgroupMatch(%q, %q) = %v", tt.pattern, tt.path, got)
	}
	assert.Check(t, !CgroupMatch(strings.Repeat("**a", 80)+"b", strings.Repeat("a", 4096)), "matches without a b")
}

func TestMatches(t *testing.T) {
	slow := Facts{
		Comm: "postgres", PID: 7, UID: 113, Place: Place{Cgroup: "/system.slice/pg.service"}, Syscall: 3,
		Device: "vda", Op: Write, State: Uninterruptible, Preempted: true,
	}
	idle := Facts{Comm: "kworker/0:1", Kernel: true, Syscall: -1}
	no := false
	for _, tt := range []struct {
		name       string
		m          Match
		slow, idle bool
	}{
		{"nothing", Match{}, true, true},
		{"comm", Match{Comm: []string{"a", "post*"}}, true, false},
		{"not comm", Match{NotComm: []string{"a", "post*"}}, false, true},
		{"comm but not", Match{Comm: []string{"*"}, NotComm: []string{"kworker/*"}}, true, false},
		{"pid", Match{PID: []uint32{1, 7}}, true, false},
		{"not pid", Match{NotPID: []uint32{1, 7}}, false, true},
		{"uid", Match{UID: []uint32{0}}, false, true},
		{"not uid", Match{NotUID: []uint32{0}}, true, false},
		{"cgroup", Match{Cgroup: []string{"/system.slice/**"}}, true, false},
		{"not cgroup", Match{NotCgroup: []string{"/system.slice/**"}}, false, true},
		{"syscall", Match{Syscall: []int{0, 3}}, true, false},
		{"not syscall", Match{NotSyscall: []int{0, 3}}, false, true},
		{"device", Match{Device: []string{"vd?"}}, true, false},
		{"not device", Match{NotDevice: []string{"vd?"}}, false, true},
		{"op", Match{Op: []Op{Read, Write}}, true, false},
		{"state", Match{State: []State{Interruptible}}, false, false},
		{"user", Match{Thread: []Thread{UserThread}}, true, false},
		{"kernel", Match{Thread: []Thread{KernelThread}}, false, true},
		{"preempted", Match{Preempted: yes()}, true, false},
		{"not preempted", Match{Preempted: &no}, false, true},
		{"two, one wrong", Match{PID: []uint32{7}, UID: []uint32{0}}, false, false},
	} {
		got := tt.m.Matches(&slow)
		assert.Check(t, got == tt.slow, "%s: slow: %v", tt.name, got)
		got = tt.m.Matches(&idle)
		assert.Check(t, got == tt.idle, "%s: idle: %v", tt.name, got)
	}
}

func TestLimitsFor(t *testing.T) {
	r := Rule{Threshold: 3, Overrides: []Override{
		{When: Match{Comm: []string{"a*"}}, Threshold: 1},
		{When: Match{Comm: []string{"ab"}}, Threshold: 2},
	}}
	for comm, want := range map[string]time.Duration{"ab": 1, "b": 3} {
		assert.Check(t, is.Equal(r.LimitsFor(&Facts{Comm: comm}).Threshold, want), "%s", comm)
	}
}

func TestSyscalls(t *testing.T) {
	for name, want := range map[string]int{
		"read": unix.SYS_READ, "openat": unix.SYS_OPENAT, "newfstatat": unix.SYS_NEWFSTATAT,
		"exit_group": unix.SYS_EXIT_GROUP, "io_uring_enter": unix.SYS_IO_URING_ENTER,
		"clone3": unix.SYS_CLONE3, "file_setattr": unix.SYS_FILE_SETATTR,
	} {
		nr, ok := SyscallNumber(name)
		if !ok || nr != want || SyscallName(want) != name {
			t.Errorf("%s is %d (%v), want %d; that is %s", name, nr, ok, want, SyscallName(want))
		}
	}
	for _, nr := range []int{-1, 400, 100000} {
		got := SyscallName(nr)
		assert.Check(t, strings.HasPrefix(got, "syscall_"), "%d is %s", nr, got)
	}
	for _, name := range []string{"", "nothing"} {
		nr, ok := SyscallNumber(name)
		assert.Check(t, !ok, "%q is %d", name, nr)
	}
	for arch, names := range map[string][]string{
		"x86-64": callsX86[:], "arm64": callsARM[:], "i386": callsI386[:], "arm": callsARM32[:],
	} {
		seen := make(map[string]int)
		for nr, name := range names {
			first, twice := seen[name]
			assert.Check(t, !twice || name == "", "%s: %s is %d and %d", arch, name, first, nr)
			seen[name] = nr
		}
		assert.Check(t, len(names) <= Syscalls32, "%s: the kernel side tracks numbers below %d only", arch, Syscalls32)
	}
	if runtime.GOARCH == "amd64" {
		_, ok := SyscallNumber("open")
		assert.Check(t, ok, "open is missing")
	}
}

// TestNarrowSyscalls: a name stands for the calls of 64-bit and of 32-bit programs
// that have it, and for those that do the same with wider arguments.
func TestNarrowSyscalls(t *testing.T) {
	x86, arm := callTablesOf("amd64"), callTablesOf("arm64")
	const narrow = Syscalls32
	for _, c := range []struct {
		of   callTables
		glob string
		want []int
	}{
		{x86, "read", []int{0, narrow + 3}},
		{x86, "futex", []int{202, narrow + 240, narrow + 422}},
		{x86, "futex_time64", []int{narrow + 422}},
		{x86, "clock_nanosleep", []int{230, narrow + 267, narrow + 407}},
		{x86, "lseek", []int{8, narrow + 19, narrow + 140}},
		{x86, "_llseek", []int{narrow + 140}},
		{x86, "select", []int{23, narrow + 82, narrow + 142}},
		{x86, "waitpid", []int{narrow + 7}},
		{x86, "socketcall", []int{narrow + 102}},
		{x86, "ipc", []int{narrow + 117}},
		{x86, "pread64", []int{17, narrow + 180}},
		{x86, "getdents", []int{78, narrow + 141}}, // 64-bit programs have both
		{x86, "*sendfile", []int{40, narrow + 187, narrow + 239}},
		{x86, "none*", nil},
		{arm, "read", []int{63, narrow + 3}},
		{arm, "stat", []int{narrow + 106, narrow + 195}},
		{arm, "waitpid", nil},
		{arm, "send", []int{narrow + 289}},
	} {
		assert.Check(t, is.DeepEqual(c.of.matches(c.glob), c.want), "%s: %s", c.of.abi, c.glob)
	}
	read, ok := SyscallNumber32("read")
	assert.Check(t, ok && SyscallNR(read) == 3 && SyscallName(read) == "read" && SyscallABI(read) == here().abi, "%d", read)
	_, ok = SyscallNumber32("")
	assert.Check(t, !ok)
	for nr, want := range map[int]string{500: "syscall_500", narrow + 222: "syscall_222", 1 << 30: "syscall_1073741824", -1: "syscall_-1"} {
		assert.Check(t, is.Equal(SyscallName(nr), want))
		assert.Check(t, is.Equal(SyscallABI(nr) != "", nr == narrow+222))
	}
}

func TestWorkMatch(t *testing.T) {
	work := Facts{Name: "events", Function: "refresh_vm_stats", Phase: Run, Syscall: -1}
	for _, tt := range []struct {
		when Match
		want bool
	}{
		{Match{}, true},
		{Match{Queue: []string{"mm_*", "event?"}, Function: []string{"refresh_*"}, Phase: []Phase{Run}}, true},
		{Match{Queue: []string{"event"}}, false},
		{Match{NotQueue: []string{"*"}}, false},
		{Match{NotQueue: []string{"mm_*"}, NotFunction: []string{"wb_*"}}, true},
		{Match{Function: []string{"vm_stats"}}, false},
		{Match{Function: []string{"*_stats"}, NotFunction: []string{"refresh_*"}}, false},
		{Match{Phase: []Phase{Wait}}, false},
		{Match{Phase: []Phase{Wait, Run}}, true},
	} {
		got := tt.when.Matches(&work)
		assert.Check(t, got == tt.want, "%+v: %t", tt.when, got)
	}
	unseen := Facts{Function: "refresh_vm_stats", Phase: Run} // it was queued before tailcam was there
	m := (Match{Queue: []string{"events"}})
	assert.Check(t, !m.Matches(&unseen), "a queue that is not known is taken for another")
}
