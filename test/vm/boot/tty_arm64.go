package boot

// Serial ports as the guest sees them. QEMU writes each into a file.
const (
	KernelTTY = "/dev/ttyAMA0"
	TestTTY   = "/dev/ttyS0"
)
