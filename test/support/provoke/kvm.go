package provoke

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Requests of linux/kvm.h on x86.
const (
	kvmCreateVM      = 0xae01
	kvmVCPUMapSize   = 0xae04
	kvmCreateVCPU    = 0xae41
	kvmSetMemory     = 0x4020ae46
	kvmRun           = 0xae80
	kvmSetRegisters  = 0x4090ae82
	kvmGetSRegisters = 0x8138ae83
	kvmSetSRegisters = 0x4138ae84
	kvmExitHLT       = 5
)

// Guests proves the group kvm: a guest of two instructions, hlt and a jump
// back to it, is entered again and again. x86 only.
func Guests(t *testing.T, history *History) {
	history = history.with(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const at, vcpu = 0x1000, 7
	run := startGuest(t, at, vcpu, []byte{0xf4, 0xeb, 0xfd})
	mine := func(ev trace.Event, k trace.KVM) bool { return ev.TID == unix.Gettid() && k.VCPU == vcpu }
	history.Until(run, map[string]func(trace.Event) bool{
		"a guest that is entered": body(trace.KVMEntry, mine),
		"and left": body(trace.KVMExit, func(ev trace.Event, k trace.KVM) bool {
			return mine(ev, k) && k.IP >= at && k.IP < at+8
		}),
	})
}

// startGuest makes a guest in real mode with one page of code, and returns
// what runs it until it halts.
func startGuest(t *testing.T, at uint64, number uintptr, code []byte) func() {
	t.Helper()
	ioctl := func(fd int, request uintptr, arg uintptr) int {
		r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, arg)
		assert.Assert(t, errno == 0, "ioctl %#x of KVM: %v", request, errno)
		return int(r)
	}
	mapped := func(fd, size int) []byte {
		flags := unix.MAP_SHARED
		if fd < 0 {
			flags |= unix.MAP_ANON
		}
		m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
		assert.NilError(t, err)
		t.Cleanup(func() { _ = unix.Munmap(m) })
		return m
	}
	kvm, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		t.Skip("needs KVM: there is no /dev/kvm")
	}
	assert.NilError(t, err)
	vm := ioctl(kvm, kvmCreateVM, 0)
	page := mapped(-1, block)
	copy(page, code)
	region := [4]uint64{0, at, block, address(page)} // slot and flags, place, size, where here
	ioctl(vm, kvmSetMemory, uintptr(unsafe.Pointer(&region)))
	cpu := ioctl(vm, kvmCreateVCPU, number)
	t.Cleanup(func() {
		for _, fd := range []int{cpu, vm, kvm} {
			_ = unix.Close(fd)
		}
	})
	state := mapped(cpu, ioctl(kvm, kvmVCPUMapSize, 0))

	var special [312]byte // begins with the base, limit and selector of the code segment
	ioctl(cpu, kvmGetSRegisters, uintptr(unsafe.Pointer(&special)))
	binary.LittleEndian.PutUint64(special[0:], 0)
	binary.LittleEndian.PutUint16(special[12:], 0)
	ioctl(cpu, kvmSetSRegisters, uintptr(unsafe.Pointer(&special)))
	registers := [18]uint64{16: at, 17: 2} // instruction pointer, flags
	ioctl(cpu, kvmSetRegisters, uintptr(unsafe.Pointer(&registers)))
	return func() {
		ioctl(cpu, kvmRun, 0)
		reason := binary.LittleEndian.Uint32(state[8:])
		assert.Assert(t, reason == kvmExitHLT, "the guest left for reason %d, want that it halts", reason)
	}
}
