package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/systemd"
)

// TestWatchdog: systemd restarts a daemon that stands still, and one of which only the
// reader of outliers does. In that case the log names it.
func TestWatchdog(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name string
		hang func(t *testing.T, d *running, uid int)
		part string
		told int // outliers that the next one reads
	}{
		{"stopped", func(_ *testing.T, d *running, _ int) { d.pause() }, "", 1},
		{"reader", func(t *testing.T, d *running, uid int) {
			stopThread(t, ringThread(t, d.pid()))
			naps(t, uid, 3, 10*time.Millisecond, 1) // whose outliers nobody reads
		}, "outlier reader", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			uid := newUID()
			h := unitHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 5ms}")))
			dropIn := writeFile(t, filepath.Join(h.dir, "watchdog.conf"), "[Service]\nWatchdogSec=10s\n", 0o644)
			d := h.serveWith(t, systemd.Options{Unit: readText(t, shippedUnit), DropIns: []string{dropIn}, Restart: true})
			s := d.main.(serviceProcess)
			d.watches()
			c.hang(t, d, uid)
			eventually(t, "the daemon is killed", d.ended)
			eventually(t, "it watches again", func() bool { return d.log.count(`"message":"watching"`) == 2 })
			eventually(t, "systemd has restarted it", func() bool { return s.Property("ActiveState") == "active" })
			assert.Equal(t, s.Property("NRestarts"), "1")
			// The signal of systemd's watchdog, and of nobody else.
			first, stacks, killed := strings.Cut(d.log.String(), "SIGABRT: abort")
			assert.Check(t, killed && strings.Contains(stacks, "goroutine "), "the stacks are missing")
			lines := strings.Split(strings.TrimSpace(first), "\n")
			last := lines[len(lines)-1]
			assert.Check(t, c.part == "" && !d.log.has(" hangs") || strings.Contains(last, `"message":"`+c.part+` hangs"`),
				"the last line is %s", last)
			naps(t, uid, 1, 10*time.Millisecond, 1)
			eventually(t, "the new daemon tells systemd of an outlier", func() bool {
				return s.Property("StatusText") == fmt.Sprintf("rules: 1 watching; outliers: %d", c.told)
			})
		})
	}
}

// ringThread finds the thread of a daemon that waits for the outliers' ring buffer.
func ringThread(t *testing.T, pid int) (tid int) {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	link := func(fd string) string {
		target, _ := os.Readlink(filepath.Join(proc, "fd", fd)) // it may be closed by now
		return target
	}
	eventually(t, "a thread waits for the ring buffer", func() bool {
		tasks, err := os.ReadDir(filepath.Join(proc, "task"))
		assert.NilError(t, err)
		for _, task := range tasks {
			call, err := os.ReadFile(filepath.Join(proc, "task", task.Name(), "syscall"))
			f := strings.Fields(string(call)) // number, arguments
			if err != nil || len(f) < 2 {
				continue
			}
			n, err := strconv.ParseUint(f[1], 0, 64)
			fd := strconv.FormatUint(n, 10)
			if err != nil || link(fd) != "anon_inode:[eventpoll]" {
				continue
			}
			info, _ := os.ReadFile(filepath.Join(proc, "fdinfo", fd))
			for line := range strings.Lines(string(info)) {
				if f := strings.Fields(line); len(f) > 1 && f[0] == "tfd:" && link(f[1]) == "anon_inode:bpf-map" {
					tid, err = strconv.Atoi(task.Name())
					return err == nil
				}
			}
		}
		return false
	})
	return tid
}

// stopThread stops one thread of another process until that ends, as a debugger does.
func stopThread(t *testing.T, tid int) {
	t.Helper()
	stopped := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the debugger is this thread; it ends with the goroutine
		wait := func() error {
			var status unix.WaitStatus
			_, err := unix.Wait4(tid, &status, unix.WALL, nil)
			if err == nil && !status.Stopped() {
				err = fmt.Errorf("it ended: %#x", status)
			}
			return err
		}
		err := unix.PtraceSeize(tid)
		if err == nil {
			err = unix.PtraceInterrupt(tid)
		}
		if err == nil {
			err = wait()
		}
		stopped <- err
		for err == nil {
			if err = wait(); errors.Is(err, syscall.EINTR) {
				err = nil
			}
		}
	}()
	assert.NilError(t, <-stopped, "stop thread %d", tid)
}
