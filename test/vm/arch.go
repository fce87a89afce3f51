package main

import (
	"fmt"

	"github.com/tailcam/tailcam/test/vm/boot"
)

// arch is how guests of one architecture are built and run.
type arch struct {
	name    string // as Debian and Go call it
	narrow  string // GOARCH of its 32-bit programs
	cc      tool   // compiles the injectors
	qemu    tool
	machine []string // arguments of QEMU: the machine, and a device through which init ends it
	cpu     string
	console string            // of the kernel's command line, and what this architecture needs there
	libc    map[string]string // files of the C library: guest path to host path
}

// tool is a program and the Debian package that has it.
type tool struct{ name, pkg string }

// x86 guests have two serial lines and an exit device. Not a thread a CPU:
// attaching to a tracepoint patches kernel text, which QEMU 7.2 then gets wrong
// on x86. Without mitigations emulation is faster.
var x86 = &arch{
	name: "amd64", narrow: "386",
	cc: tool{"gcc", "gcc libc6-dev"}, qemu: tool{"qemu-system-x86_64", "qemu-system-x86"},
	machine: []string{"-machine", "pc", "-device", fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=4", boot.ExitPort)},
	cpu:     "max",
	console: "console=ttyS0 no_timer_check random.trust_cpu=on",
	libc: map[string]string{
		"/lib64/ld-linux-x86-64.so.2": "/lib64/ld-linux-x86-64.so.2", "/lib/libc.so.6": "/lib/x86_64-linux-gnu/libc.so.6",
	},
}

// arm guests have one serial line; tests print to another one on PCI. Programs
// may call QEMU by semihosting, which is how init ends it.
var arm = &arch{
	name: "arm64", narrow: "arm",
	cc:      tool{"aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"},
	qemu:    tool{"qemu-system-aarch64", "qemu-system-arm"},
	machine: []string{"-machine", "virt,gic-version=3", "-semihosting-config", "enable=on,userspace=on,target=native"},
	cpu:     "cortex-a57",
	console: "console=ttyAMA0",
	libc: map[string]string{
		"/lib/ld-linux-aarch64.so.1": "/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1", "/lib/libc.so.6": "/usr/aarch64-linux-gnu/lib/libc.so.6",
	},
}

// serial returns the arguments of QEMU for the ports boot.KernelTTY and boot.TestTTY.
func (a *arch) serial(kernelLog, testLog string) []string {
	if a == x86 {
		return []string{"-serial", "file:" + kernelLog, "-serial", "file:" + testLog}
	}
	return []string{"-serial", "file:" + kernelLog, "-chardev", "file,id=tests,path=" + testLog, "-device", "pci-serial,chardev=tests"}
}
