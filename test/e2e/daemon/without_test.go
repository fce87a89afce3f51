package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	program "github.com/tailcam/tailcam/internal/inject"
)

// TestBudgetKeepsRules: before a rule for waits is shed, tailcam does without who wakes whom, and the
// rule fires as before.
func TestBudgetKeepsRules(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(entry("slow", "wakeup", "20ms", "{comm: inj-wakeup, preempted: false}")),
		"--budget-cpu", "0.5%", "--recorder-events", "sched")
	begun, stop := time.Now(), load(t)
	for end := begun.Add(2 * time.Minute); d.shed("wakers") == nil; time.Sleep(500 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(end), "wakers are not shed: %+v", d.status().Cost)
		if time.Since(begun) > 45*time.Second { // it ends by itself after a minute
			stop()
			begun, stop = time.Now(), load(t)
		}
	}
	assert.Check(t, d.shed("group sched") != nil && d.shed("rule slow") == nil, "%+v", d.status().Cost.Shed)
	const delay = 60 * time.Millisecond
	provoke(t, 0, "wakeup", "10", strconv.FormatInt(delay.Microseconds(), 10), "0", "1", "4")
	assert.Assert(t, d.shed("rule slow") == nil, "the load costs too much even without wakers")
	told := 0
	for end := time.Now().Add(10 * time.Second); told == 0 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, o := range d.events("slow") {
			told++
			assert.Check(t, o.Waker == nil && o.OnCPU == nil, "woken by %+v, while %+v ran", o.Waker, o.OnCPU)
			assert.Check(t, o.DelayNS >= 20*time.Millisecond.Nanoseconds())
		}
	}
	assert.Check(t, told > 0, "no wait of %s was told of", delay)
}

// TestBudgetKeepsDisks: before the rule for disks is shed, tailcam does without who asks for requests,
// and the rule fires as before.
func TestBudgetKeepsDisks(t *testing.T) {
	needRoot(t)
	slow, err := program.Slow(t.Context())
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, slow.Close()) })
	d := start(t, rulesFile(entry("slow", "block", "20ms", "{op: [read]}")), "--budget-cpu", "0.5%", "--recorder-events", "block")
	readAlways(t)
	for end := time.Now().Add(2 * time.Minute); d.shed("askers") == nil; time.Sleep(500 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(end), "askers are not shed: %+v", d.status().Cost)
	}
	assert.Check(t, d.shed("group block") != nil && d.shed("rule slow") == nil, "%+v", d.status().Cost.Shed)
	truth, err := slow.Read(t.Context(), 60*time.Millisecond)
	assert.NilError(t, err)
	assert.Assert(t, d.shed("rule slow") == nil, "the load costs too much even without askers")
	told := 0
	for end := time.Now().Add(10 * time.Second); told == 0 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, o := range d.events("slow") {
			if o.Block.Device != truth.Device {
				continue // a disk of this machine
			}
			told++
			assert.Check(t, o.Task.TID == 0 && o.Task.Comm == "", "asked for by %+v", o.Task)
			assert.Check(t, o.Block.Sector == truth.Sector && o.DelayNS >= 50*time.Millisecond.Nanoseconds(), "%+v of %+v", o, truth)
		}
	}
	assert.Check(t, told > 0, "%+v was not told of", truth)
	text := d.ok("events", "--rule", "slow")
	assert.Check(t, is.Contains(text, "a request by an unknown task took"))
	assert.Check(t, !strings.Contains(text, "idle task"), text)
}

// readAlways reads a disk in memory, many times a second, until the test ends.
func readAlways(t *testing.T) {
	t.Helper()
	file := filepath.Join("/dev/shm", fmt.Sprintf("tailcam-test-%d", os.Getpid()))
	assert.NilError(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	t.Cleanup(func() { assert.Check(t, os.Remove(file)) })
	disk, err := program.AttachLoop(file, os.O_RDWR)
	assert.NilError(t, err)
	direct, err := os.OpenFile(disk.Name(), os.O_RDONLY|unix.O_DIRECT, 0)
	assert.NilError(t, err)
	var readers sync.WaitGroup
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		readers.Wait()
		assert.Check(t, direct.Close())
		assert.Check(t, disk.Close())
	})
	for range 2 * runtime.NumCPU() {
		readers.Go(func() {
			block, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if !assert.Check(t, err) {
				return
			}
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := unix.Pread(int(direct.Fd()), block, 0); !assert.Check(t, err) {
						return
					}
				}
			}
		})
	}
}
