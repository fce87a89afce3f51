package kernel

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
)

func TestCallNames(t *testing.T) {
	for _, c := range []struct{ arch, call, want string }{
		{"amd64", "openat", "__x64_sys_openat"}, {"amd64", "fstat", "__x64_sys_newfstat"}, {"amd64", "newfstatat", "__x64_sys_newfstatat"},
		{"amd64", "umount2", "__x64_sys_umount"}, {"amd64", "fadvise64", "__x64_sys_fadvise64"},
		{"arm64", "openat", "__arm64_sys_openat"}, {"arm64", "fadvise64", "__arm64_sys_fadvise64_64"}, {"arm64", "uname", "__arm64_sys_newuname"},
	} {
		assert.Check(t, is.Equal(callNames(c.arch, c.call)[0], c.want))
	}
}

// TestCallNames32: of what is there, the first is in the kernel's table.
func TestCallNames32(t *testing.T) {
	// All that kernels may have for these calls.
	const kernel = "ia32_sys_read ia32_compat_sys_openat ia32_sys_openat ia32_sys_nanosleep ia32_sys_nanosleep_time32 " +
		"ia32_sys_futex ia32_sys_futex_time32 ia32_sys_clock_gettime ia32_sys_clock_gettime32 " +
		"ia32_compat_sys_ppoll_time32 ia32_compat_sys_ppoll_time64 ia32_sys_ppoll ia32_sys_io_pgetevents_time32 ia32_compat_sys_io_pgetevents " +
		"ia32_sys_chown ia32_sys_chown16 ia32_compat_sys_fcntl ia32_compat_sys_fcntl64 ia32_sys_sendfile64 ia32_compat_sys_sendfile64 " +
		"ia32_compat_sys_getdents ia32_sys_getdents64 ia32_compat_sys_truncate ia32_sys_ia32_truncate64 ia32_compat_sys_ia32_clone ia32_sys_clone " +
		"ia32_sys_getsockopt ia32_compat_sys_getsockopt ia32_sys_epoll_pwait ia32_compat_sys_epoll_pwait do_sys_pause " +
		"arm64_compat_sys_epoll_pwait arm64_sys_epoll_pwait arm64_compat_sys_statfs64 arm64_compat_sys_aarch32_statfs64 " +
		"arm64_sys_read arm64_sys_clone arm64_sys_nanosleep_time32 arm64_sys_nanosleep arm64_compat_sys_fcntl arm64_compat_sys_fcntl64"
	for _, c := range []struct{ arch, call, want string }{
		{"amd64", "read", "ia32_sys_read"}, {"amd64", "openat", "ia32_compat_sys_openat"},
		{"amd64", "nanosleep", "ia32_sys_nanosleep_time32"}, {"amd64", "futex", "ia32_sys_futex_time32"}, {"amd64", "futex_time64", "ia32_sys_futex"},
		{"amd64", "clock_gettime", "ia32_sys_clock_gettime32"}, {"amd64", "clock_gettime64", "ia32_sys_clock_gettime"},
		{"amd64", "ppoll", "ia32_compat_sys_ppoll_time32"}, {"amd64", "ppoll_time64", "ia32_compat_sys_ppoll_time64"},
		{"amd64", "io_pgetevents", "ia32_compat_sys_io_pgetevents"}, {"amd64", "chown", "ia32_sys_chown16"}, {"amd64", "chown32", "ia32_sys_chown"},
		{"amd64", "fcntl", "ia32_compat_sys_fcntl64"}, {"amd64", "fcntl64", "ia32_compat_sys_fcntl64"}, {"amd64", "sendfile64", "ia32_sys_sendfile64"},
		{"amd64", "getdents64", "ia32_sys_getdents64"}, {"amd64", "truncate64", "ia32_sys_ia32_truncate64"}, {"amd64", "clone", "ia32_compat_sys_ia32_clone"},
		{"amd64", "getsockopt", "ia32_sys_getsockopt"}, {"amd64", "epoll_pwait", "ia32_sys_epoll_pwait"}, {"amd64", "pause", "do_sys_pause"},
		{"arm64", "epoll_pwait", "arm64_compat_sys_epoll_pwait"}, {"arm64", "statfs64", "arm64_compat_sys_aarch32_statfs64"},
		{"arm64", "read", "arm64_sys_read"}, {"arm64", "clone", "arm64_sys_clone"}, {"arm64", "nanosleep", "arm64_sys_nanosleep_time32"},
		{"arm64", "fcntl", "arm64_compat_sys_fcntl"}, {"arm64", "fcntl64", "arm64_compat_sys_fcntl64"},
	} {
		names := callNames32(c.arch, c.call)
		i := slices.IndexFunc(names, func(name string) bool { return slices.Contains(strings.Fields(kernel), name[2:]) })
		assert.Check(t, i >= 0 && names[i] == "__"+c.want, "%s: %s: %v, want %s", c.arch, c.call, names, c.want)
	}
}

// TestFindCall: of a function that stands twice in the kernel's types, it is the
// one of the call.
func TestFindCall(t *testing.T) {
	regs := &btf.Pointer{Target: &btf.Const{Type: &btf.Struct{Name: "pt_regs"}}}
	long := &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed}
	function := func(name, parameter string, argument btf.Type) btf.Type {
		return &btf.Func{Name: name, Linkage: btf.GlobalFunc, Type: &btf.FuncProto{
			Return: long, Params: []btf.FuncParam{{Name: parameter, Type: argument}},
		}}
	}
	twice := callNames(runtime.GOARCH, "mprotect")[0]
	b, err := btf.NewBuilder([]btf.Type{
		function(twice, "regs", regs), function(twice, "__unused", regs),
		function("__do_sys_getppid", "__unused", regs), function("__do_sys_close", "fd", long),
	}, nil)
	assert.NilError(t, err)
	kernel, err := b.Spec()
	assert.NilError(t, err)
	f, err := FindCall("mprotect", kernel)
	assert.Check(t, err == nil && f.Name == twice && f.Proto == "regs" && f.ID > 0, "%+v, %v", f, err)
	f, err = FindCall("getppid", kernel)
	assert.Check(t, err == nil && f.Name == "__do_sys_getppid" && f.Proto == "__unused", "%+v, %v", f, err)
	_, err = FindCall("close", kernel)
	assert.ErrorContains(t, err, "no function of system call close")
}

// TestInactiveCalls: the message says what the operator may do, and what it costs.
func TestInactiveCalls(t *testing.T) {
	err := &InactiveCalls{Attach: rules.AttachAuto, Reason: errors.New("no functions"), Price: 152 * time.Nanosecond}
	assert.Error(t, err, "no functions; with attach: all it works, but every system call of the machine pays for it (152 ns here); "+
		"uninterruptible sleeps in its calls are reported by rules with track: offcpu anyway")
}

// TestPlanCalls: one rule that wants every call pays for the others.
func TestPlanCalls(t *testing.T) {
	list := []rules.Rule{
		{Name: "auto", Track: rules.Syscall}, {Name: "all", Track: rules.Syscall, Attach: rules.AttachAll}, {Name: "block", Track: rules.Block},
	}
	var p Plan
	assert.Check(t, is.Len(p.planCalls(list, nil), 0))
	assert.Check(t, p.allCalls && len(p.Calls) == 0)
	p = Plan{}
	assert.Check(t, is.Len(p.planCalls(list[2:], nil), 0))
	assert.Check(t, !p.allCalls)
	if CanTrace() != nil {
		assert.ErrorContains(t, p.planCalls(list[:1], nil)["auto"], "functions of the kernel cannot be attached to here")
	}
}
