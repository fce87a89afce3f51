package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archCalls are system calls specific to this architecture.
var archCalls = []uintptr{unix.SYS_ARCH_PRCTL, unix.SYS_EPOLL_WAIT}
