package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// The capabilities of configs/systemd/tailcam.service that procfs asks for.
var (
	unitCapabilities = []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_DAC_OVERRIDE}
	noCapabilities   = []uintptr{}
)

// A procfs that hides the processes of other users does so from root without
// CAP_SYS_PTRACE, too: that is told, and nobody is taken for somebody else. With
// the capabilities that the unit gives nothing is hidden.
func TestHidepid(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: mounts procfs")
	}
	stranger := exec.Command("sleep", "1000")
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
	assert.NilError(t, stranger.Start())
	t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })
	alive(t, New(&Options{Timeout: time.Minute}), stranger.Process.Pid)
	for _, mode := range []string{"off", "noaccess", "invisible", "noaccess,gid=65532", "invisible,gid=65532", "ptraceable"} {
		for name, caps := range map[string][]uintptr{"the unit": unitCapabilities, "no": noCapabilities} {
			t.Run(fmt.Sprintf("%s with the capabilities of %s", mode, name), func(t *testing.T) {
				got := inside(t, "TestHidepidInside", 0, fmt.Sprintf("TAILCAM_HIDEPID=%s %d %v", mode, stranger.Process.Pid, caps))
				// Root is in the group that may see all, unless another one is named.
				hidden := (mode == "ptraceable" || strings.Contains(mode, "gid=")) && len(caps) == 0
				assert.Check(t, strings.Contains(got, "hindrance hidepid") == hidden,
					"hidden: %v; got\n%s", hidden, got)
				assert.Check(t, strings.Contains(got, "identity sleep 1000") != hidden,
					"hidden: %v; got\n%s", hidden, got)
			})
		}
	}
}

// inside runs a test of this package in a mount namespace of its own, and more
// such, and returns what it writes.
func inside(t *testing.T, test string, flags uintptr, env string) string {
	t.Helper()
	self, err := os.Executable()
	assert.NilError(t, err)
	cmd := exec.Command(self, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | flags, Pdeathsig: syscall.SIGKILL}
	if flags&unix.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text, err := cmd.CombinedOutput()
	assert.Assert(t, err == nil && strings.Contains(string(text), "--- PASS: "+test), "%v\n%s", err, text)
	return string(text)
}

// TestHidepidInside has a mount namespace of its own.
func TestHidepidInside(t *testing.T) {
	var mode string
	var pid int
	var list string
	if n, _ := fmt.Sscanf(strings.ReplaceAll(os.Getenv("TAILCAM_HIDEPID"), "[", " "), "%s %d %s", &mode, &pid, &list); n < 2 {
		t.Skip("for TestHidepid, in a namespace")
	}
	proc := t.TempDir()
	for _, err := range []error{
		unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", proc, "proc", 0, "hidepid="+mode),
	} {
		assert.NilError(t, err)
	}
	defer func() { _ = unix.Unmount(proc, unix.MNT_DETACH) }()
	var keep []uintptr
	if list != "]" {
		keep = unitCapabilities
	}
	// Of this thread alone, which reads everything: Options.Thread is called in the one that does.
	drop := func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		for _, c := range keep {
			data[c/32].Effective |= 1 << (c % 32)
			data[c/32].Permitted |= 1 << (c % 32)
		}
		if err := unix.Capset(&header, &data[0]); err != nil {
			panic(err)
		}
	}
	done := make(chan struct{})
	go func() { // its thread ends with it
		defer close(done)
		drop()
		for _, h := range Hindrances(proc) {
			fmt.Println("hindrance", h.Name, h.Advice)
		}
		table := New(&Options{Proc: proc, Thread: drop})
		for _, task := range table.Tasks([]int{pid}, time.Minute) {
			fmt.Println("identity", task.Cmdline)
		}
	}()
	<-done
}

func TestNamespacesAreTold(t *testing.T) {
	got := Hindrances("/proc")
	assert.Check(t, len(got) == 0, "on the host: got %+v", got)
	if os.Geteuid() != 0 {
		t.Skip("not root: makes namespaces")
	}
	for name, flag := range map[string]uintptr{"pid_namespace": unix.CLONE_NEWPID, "user_namespace": unix.CLONE_NEWUSER} {
		got := strings.Fields(inside(t, "TestNamespacesInside", flag, "TAILCAM_NAMESPACES=1"))
		assert.Check(t, slices.Contains(got, "hindrance="+name), "%s: got %s", name, got)
	}
}

// TestNamespacesInside has namespaces of its own.
func TestNamespacesInside(t *testing.T) {
	if os.Getenv("TAILCAM_NAMESPACES") == "" {
		t.Skip("for TestNamespacesAreTold, in a namespace")
	}
	for _, h := range Hindrances("/proc") {
		fmt.Println("hindrance=" + h.Name)
	}
}
