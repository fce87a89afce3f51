package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// CallFunction is the kernel's function of a system call.
type CallFunction struct {
	Call string // such as openat
	Name string // such as __x64_sys_openat
	ID   btf.TypeID
	// Proto tells apart functions with different types: a program cannot jump into
	// one of another type.
	Proto string
}

// maxFunctions is how many functions are attached to: with more, being on every
// system call is the cheaper way.
const maxFunctions = 128

// InactiveCalls says why a syscall rule is not attached.
type InactiveCalls struct {
	Attach rules.Attach // as the rule has it
	Reason error
	Price  time.Duration // that attach: all would cost each system call; 0: not known
}

// Error implements error.
func (e *InactiveCalls) Error() string {
	price := ""
	if e.Price > 0 {
		price = fmt.Sprintf(" (%d ns here)", e.Price.Nanoseconds())
	}
	return fmt.Sprintf("%v; with attach: all it works, but every system call of the machine pays for it%s; "+
		"uninterruptible sleeps in its calls are reported by rules with track: offcpu anyway", e.Reason, price)
}

// Unwrap returns the reason.
func (e *InactiveCalls) Unwrap() error { return e.Reason }

// planCalls decides what syscall rules are attached to, and returns those that
// are inactive. One rule that wants every system call pays for the others.
func (p *Plan) planCalls(list []rules.Rule, kernel *btf.Spec) map[string]error {
	inactive := map[string]error{}
	list = slices.DeleteFunc(slices.Clone(list), func(r rules.Rule) bool { return r.Track != rules.Syscall })
	p.Calls, p.Calls32 = CallFunctions{}, CallFunctions{}
	if p.allCalls || slices.ContainsFunc(list, func(r rules.Rule) bool { return r.Attach == rules.AttachAll }) {
		p.allCalls = true
		return inactive
	}
	for i := range list {
		r := &list[i]
		native, narrow, err := callFunctions(r, kernel)
		if err != nil {
			inactive[r.Name] = &InactiveCalls{Attach: r.Attach, Reason: err, Price: PriceOfAllCalls()}
			continue
		}
		maps.Copy(p.Calls, native)
		maps.Copy(p.Calls32, narrow)
	}
	return inactive
}

// CallFunctions are functions of system calls by their names.
type CallFunctions map[string]CallFunction

// callFunctions finds the functions of the calls that a rule names, of 64-bit
// programs and of 32-bit programs: some are of both. Calls that this kernel was
// built without have none.
func callFunctions(r *rules.Rule, kernel *btf.Spec) (native, narrow CallFunctions, err error) {
	if err := CanTrace(); err != nil {
		return nil, nil, fmt.Errorf("functions of the kernel cannot be attached to here: fentry: %w", err)
	}
	native, narrow = CallFunctions{}, CallFunctions{}
	for _, nr := range kinds.Calls(&r.When) {
		find, found := FindCall, native
		if rules.SyscallABI(nr) != "" {
			find, found = FindCall32, narrow
		}
		if f, err := find(rules.SyscallName(nr), kernel); err == nil {
			found[f.Name] = f
		}
	}
	switch n := max(len(native), len(narrow)); {
	case n == 0:
		return nil, nil, errors.New("this kernel has no function for any of its calls")
	case n > maxFunctions:
		return nil, nil, fmt.Errorf("it is for %d system calls, and at most %d functions are attached to: list fewer in when.syscall", n, maxFunctions)
	}
	return native, narrow, nil
}

// FindCall finds the function of a system call in the kernel's types. What a
// kernel was built without has none.
func FindCall(call string, kernel *btf.Spec) (CallFunction, error) {
	return findCall(call, callNames(runtime.GOARCH, call), kernel)
}

// FindCall32 is FindCall for the calls of 32-bit programs.
func FindCall32(call string, kernel *btf.Spec) (CallFunction, error) {
	return findCall(call, callNames32(runtime.GOARCH, call), kernel)
}

func findCall(call string, names []string, kernel *btf.Spec) (CallFunction, error) {
	for _, name := range names {
		types, err := kernel.AnyTypesByName(name)
		if err != nil {
			continue
		}
		var found []CallFunction
		for _, t := range types {
			proto := callProto(t)
			if proto == nil {
				continue
			}
			id, err := kernel.TypeID(t)
			if err != nil {
				return CallFunction{}, err
			}
			found = append(found, CallFunction{Call: call, Name: name, ID: id, Proto: proto.Params[0].Name})
		}
		if len(found) > 0 {
			// Up to 6.1, that of kernels without the call stands beside it (kernel/sys_ni.c).
			slices.SortStableFunc(found, func(a, b CallFunction) int { return cmp.Compare(len(b.Proto), len(a.Proto)) })
			return found[len(found)-1], nil
		}
	}
	return CallFunction{}, fmt.Errorf("this kernel has no function of system call %s that can be attached to", call)
}

// callProto is the type of a function that has the registers of user space for
// its argument; nil: t is another one.
func callProto(t btf.Type) *btf.FuncProto {
	f, ok := t.(*btf.Func)
	if !ok {
		return nil
	}
	proto, ok := f.Type.(*btf.FuncProto)
	if !ok || len(proto.Params) != 1 {
		return nil
	}
	pointer, ok := proto.Params[0].Type.(*btf.Pointer)
	if !ok {
		return nil
	}
	if regs, ok := btf.UnderlyingType(pointer.Target).(*btf.Struct); !ok || regs.Name != "pt_regs" {
		return nil
	}
	return proto
}

// callNames are what the function of a system call may be called. Most have the
// name of the call (SYSCALL_DEFINE); on x86, those without arguments are described
// by another name of theirs.
func callNames(arch, call string) []string {
	renamed := map[string]string{
		"stat": "newstat", "lstat": "newlstat", "fstat": "newfstat", "uname": "newuname", "umount2": "umount", "sendfile": "sendfile64",
	}
	prefix := "__x64_sys_"
	if arch == "arm64" {
		prefix = "__arm64_sys_"
		renamed["fadvise64"], renamed["personality"] = "fadvise64_64", "arm64_personality"
	}
	if other := renamed[call]; other != "" {
		call = other
	}
	return []string{prefix + call, "__do_sys_" + call}
}

// PriceOfAllCalls is what programs at the entry and the exit of every system
// call add to each, measured with empty ones for some milliseconds; 0: it could
// not be measured.
var PriceOfAllCalls = sync.OnceValue(func() time.Duration {
	// A host that slows this machine down does so for longer than a measurement
	// takes: the quickest call without and with them need not be of one round.
	const rounds = 5
	without, with := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for range rounds {
		without = min(without, timeCall())
		t, err := timeTracedCall()
		if err != nil {
			return 0
		}
		if with = min(with, t); with > without {
			break
		}
	}
	return max(with-without, 0)
})

// timeTracedCall is timeCall with an empty program at the entry and at the exit
// of every system call.
func timeTracedCall() (time.Duration, error) {
	for _, name := range []string{"sys_enter", "sys_exit"} {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "tailcam_price", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: name, License: "Dual BSD/GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		})
		if err != nil {
			return 0, err
		}
		defer p.Close() //nolint:errcheck // it did what it was for
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return 0, err
		}
		defer l.Close() //nolint:errcheck // it did what it was for
	}
	return timeCall(), nil
}

// timeCall measures the shortest system call. The best of several attempts was
// not disturbed.
func timeCall() time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const attempts, calls = 20, 1000
	best := time.Duration(math.MaxInt64)
	for range attempts {
		begin := time.Now()
		for range calls {
			_, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
		}
		best = min(best, time.Since(begin)/calls)
	}
	return best
}
