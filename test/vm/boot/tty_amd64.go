package boot

// Serial ports as the guest sees them. QEMU writes each into a file.
const (
	KernelTTY = "/dev/ttyS0"
	TestTTY   = "/dev/ttyS1"
)
