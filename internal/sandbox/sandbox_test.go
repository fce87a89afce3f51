package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// role makes the test program try what it may not.
const role = "tailcam-try"

func TestMain(m *testing.M) {
	if os.Args[0] == role {
		try(os.Args[1])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// attempts are what a parser must not be able to do.
var attempts = map[string]func() error{
	"open":         func() error { _, err := os.Open("/etc/passwd"); return err },
	"open by link": func() error { _, err := os.Open("/proc/self/exe"); return err },
	"openat2": func() error {
		_, err := unix.Openat2(unix.AT_FDCWD, "/etc/passwd", &unix.OpenHow{})
		return err
	},
	"create": func() error { _, err := os.Create("/tmp/tailcam-sandbox-test"); return err },
	"stat":   func() error { _, err := os.Stat("/etc/passwd"); return err },
	"socket": func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
	"exec":   func() error { return unix.Exec("/bin/true", []string{"true"}, nil) },
	"fork": func() error {
		_, _, errno := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
		if errno == 0 {
			return nil // the child ends with the parent's next line, too
		}
		return errno
	},
	"kill":   func() error { return unix.Kill(os.Getppid(), 0) },
	"tgkill": func() error { return unix.Tgkill(os.Getppid(), os.Getppid(), 0) },
	"ptrace": func() error { return unix.PtraceSeize(os.Getppid()) },
	"memory": func() error {
		b := make([]byte, 8)
		_, err := unix.ProcessVMReadv(os.Getppid(), []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 4096, Len: 8}}, 0)
		return err
	},
	"bpf": func() error {
		var attr [64]byte
		_, _, errno := unix.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr[0])), 64)
		return errno
	},
	"code": func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		return err
	},
	"more memory": func() error {
		return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	},
}

func try(what string) {
	if err := LimitMemory(256 << 20); err != nil {
		fmt.Println(err)
		return
	}
	if err := Enter(Parser(64<<20), 0); err != nil {
		fmt.Println(err)
		return
	}
	switch err := attempts[what](); {
	case errors.Is(err, unix.EPERM):
		fmt.Println("refused")
	default:
		fmt.Printf("got %v\n", err)
	}
}

// What a parser may not do, it tries, and is refused by the kernel.
func TestParserIsConfined(t *testing.T) {
	for what := range attempts {
		t.Run(what, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Args = []string{role, what}
			if os.Geteuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			out, err := cmd.CombinedOutput()
			assert.Check(t, err == nil && strings.TrimSpace(string(out)) == "refused", "got %v: %s", err, out)
		})
	}
}
