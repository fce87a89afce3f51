package snapshot

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// fillFromKernel fills in empty fields.
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
		// If unreadable, the trace lacks the boot id.
		b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
		h.BootID = strings.TrimSpace(string(b))
	}
}
