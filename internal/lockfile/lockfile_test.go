package lockfile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/stuckfs"
)

// role makes the test program hold a lock, and then wait for the read of a file.
const role = "tailcam-holder"

func TestMain(m *testing.M) {
	if os.Args[0] == role {
		hold(os.Args[1], os.Args[2])
	}
	os.Exit(m.Run())
}

func hold(path, read string) {
	if _, err := Take(path, nil); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("locked")
	if read != "" {
		// Past the page cache: the kernel waits for the answer, also after SIGKILL.
		fd, _ := unix.Open(read, unix.O_RDONLY|unix.O_DIRECT, 0)
		buf, _ := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		unix.Read(fd, buf)
	}
	time.Sleep(time.Hour)
}

// holder starts a process that has the lock.
func holding(t *testing.T, path, read string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{role, path, read}
	assert.Equal(t, child.Talk(t, cmd).Line(), "locked")
	return cmd
}

// TestLiveHolder: a lock is never taken from a living process, not even from
// one that is stopped; that of one that was killed is free at once.
func TestLiveHolder(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "lock")
		cmd := holding(t, path, "")
		for _, stopped := range []bool{false, true} {
			if stopped {
				cmd.Process.Signal(syscall.SIGSTOP)
			}
			_, err := Take(path, &Options{ReadOnly: readOnly})
			var held *HeldError
			assert.Check(t, errors.As(err, &held) && held.PID == cmd.Process.Pid,
				"stopped %v: %v, want that process %d has it", stopped, err, cmd.Process.Pid)
			pid, err := Holder(path)
			assert.Check(t, err == nil && pid == cmd.Process.Pid, "stopped %v: held by %d (%v)", stopped, pid, err)
		}
		cmd.Process.Kill()
		f, err := Take(path, &Options{ReadOnly: readOnly, TakenOver: func(pid int) { t.Errorf("taken from %d, which has ended", pid) }})
		assert.NilError(t, err)
		f.Close()
	}
}

// TestDyingHolder: one that was killed while it waits for a file system that
// does not answer loses its lock within two seconds, to one of many who want it.
func TestDyingHolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	big := filepath.Join(dir, "big")
	assert.NilError(t, os.WriteFile(big, make([]byte, 1<<20), 0o644))
	fs := stuckfs.Mount(t, "file", big)
	fs.Hang()
	var cmd *exec.Cmd
	for stuck := false; !stuck; {
		cmd = holding(t, path, fs.Path())
		waits(t, cmd.Process.Pid)
		cmd.Process.Kill()
		stuck = staysDying(cmd.Process.Pid) // until the server has taken its request, it can be killed
	}
	start := time.Now()
	var won, over atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			f, err := Take(path, &Options{TakenOver: func(int) { over.Add(1) }})
			var held *HeldError
			if err == nil {
				won.Add(1)
				t.Cleanup(func() { f.Close() })
			} else if !errors.As(err, &held) || held.PID != os.Getpid() {
				t.Error(err)
			}
		})
	}
	all.Wait()
	assert.Check(t, won.Load() == 1 && over.Load() == 1,
		"%d have the lock, %d took it over", won.Load(), over.Load())
	t.Logf("taken over after %s", time.Since(start))
	fs.Answer() // now it ends; the lock stays where it is
	cmd.Wait()
	_, err := Take(path, nil)
	assert.Check(t, errors.As(err, new(*HeldError)), "the lock is gone with the one that had lost it: %v", err)
	if text, err := os.ReadFile(path); err != nil || string(text) != own() {
		t.Errorf("the file holds %q (%v), not %q", text, err, own())
	}
}

// staysDying tells whether a process that was killed is still there a while later.
func staysDying(pid int) bool {
	time.Sleep(100 * time.Millisecond)
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/wchan")
	for _, path := range tasks {
		if text, _ := os.ReadFile(path); len(text) > 0 && string(text) != "0" {
			return true
		}
	}
	return false
}

// waits returns when a thread of the process waits uninterruptibly.
func waits(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/wchan")
		for _, path := range tasks {
			if text, _ := os.ReadFile(path); string(text) == "request_wait_answer" || string(text) == "folio_wait_bit_common" || string(text) == "fuse_get_req" {
				return
			}
		}
	}
	t.Fatal("the process does not wait for the file system")
}

// TestForeignFiles: what else lies at the path is an error, and not waited for.
func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	assert.NilError(t, os.Symlink("target", link))
	_, err := Take(link, nil)
	assert.Check(t, err != nil, "a symbolic link was followed")
	_, err = Holder(link)
	assert.Check(t, err != nil, "a symbolic link was followed")
	_, err = Take(filepath.Join(dir, "none", "lock"), nil)
	assert.Check(t, is.ErrorIs(err, os.ErrNotExist), "a directory that is missing")
}
