package snapshot

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// fillFromKernel asks the kernel for what is empty.
func (h *HostInfo) fillFromKernel() {
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		for _, f := range []struct {
			to   *string
			from []byte
		}{
			{&h.Name, u.Nodename[:]},
			{&h.Kernel, u.Release[:]},
			{&h.KernelVersion, u.Version[:]},
			{&h.Arch, u.Machine[:]},
		} {
			if *f.to == "" {
				*f.to = unix.ByteSliceToString(f.from)
			}
		}
	}
	if h.BootID == "" {
		// Without it a trace merely lacks the entry.
		b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
		h.BootID = strings.TrimSpace(string(b))
	}
}
