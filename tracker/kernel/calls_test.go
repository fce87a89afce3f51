package kernel

import (
	"errors"
	"runtime"
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
