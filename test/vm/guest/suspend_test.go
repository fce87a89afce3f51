package guest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/tracker/events"
)

// suspendFor is how long the guest is suspended, in whole seconds.
const suspendFor = 8 * time.Second

// sleeperComm is the thread that is asleep while the guest is suspended.
const sleeperComm = "tc-suspended"

// suspendRules have the thread in each table, and would fire for anybody whom the time of the
// suspension is added to. early fires for its sleeps.
const suspendRules = `rules:
  - {name: early, track: offcpu, threshold: 500ms, timeout: 500ms, when: {comm: ` + sleeperComm + `}, snapshot: {after: 10ms}}
  - {name: asleep, track: offcpu, threshold: 5s, timeout: 5s, when: {comm: ` + sleeperComm + `}, snapshot: false}
  - {name: call, track: syscall, threshold: 5s, timeout: 5s, when: {comm: ` + sleeperComm + `, syscall: [clock_nanosleep]}, snapshot: false}
  - {name: woken, track: wakeup, threshold: 5s, timeout: 5s, snapshot: false}
  - {name: disk, track: block, threshold: 5s, timeout: 5s, snapshot: false}
  - {name: work, track: workqueue, threshold: 5s, timeout: 5s, snapshot: false}
`

// TestSuspend suspends the guest while a thread sleeps: nothing is late by the time of the
// suspension, and the daemon goes on, with its timeouts and its recorder.
func TestSuspend(t *testing.T) {
	inGuest(t)
	canSuspend(t)
	d := startDaemon(t, suspendRules)

	slept := napping(t, 2*time.Second)
	time.Sleep(time.Second)
	suspended := suspend(t)
	pause := <-slept
	t.Logf("suspended for %v; the sleep took %v by the clock that stood still", suspended, pause.took())
	assert.Check(t, suspended > suspendFor/2, "the guest was suspended for %v", suspended)

	// A sleep after that is told while it lasts.
	after := <-napping(t, 2*time.Second)
	var list []events.Outlier
	d.await(t, "the sleep after the suspension is told", func() bool {
		list = d.events(t)
		return slices.ContainsFunc(list, func(o events.Outlier) bool { return o.StartMono >= after.begin && o.Cause == events.CauseAfterTimeout })
	})
	during := 0
	for _, o := range list {
		assert.Check(t, o.Rule == "early", "it is late by the time of the suspension: %+v", o)
		switch {
		case o.StartMono >= after.begin:
			assert.Check(t, time.Duration(o.DelayNS) <= after.took(), "%v of a sleep of %v", time.Duration(o.DelayNS), after.took())
		case o.StartMono >= pause.begin:
			during++
			assert.Check(t, time.Duration(o.DelayNS) <= pause.took(), "%v of a sleep of %v", time.Duration(o.DelayNS), pause.took())
		}
	}
	assert.Check(t, during >= 1, "the sleep around the suspension is not told: %+v", list)
	assert.Check(t, slices.ContainsFunc(list, func(o events.Outlier) bool { return o.StartMono >= after.begin && o.Cause == events.CauseTimeout }),
		"no timeout after the suspension: %+v", list)
	id := filepath.Base(strings.TrimSpace(d.tailcam(t, "snapshot", "--reason", "after the suspension")))
	assert.Check(t, strings.Contains(d.tailcam(t, "snapshots", "verify", id), "ok"))
}

// canSuspend skips the test where the guest cannot be suspended to RAM. It also has to wake up:
// from s2idle, the emulator's machines do not.
func canSuspend(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("/sys/power/mem_sleep")
	if err != nil || !strings.Contains(string(text), "[deep]") {
		t.Skipf("this machine cannot suspend to RAM: %q, %v", text, err)
	}
}

// suspend suspends the guest until the alarm of its clock, and returns for how long the
// monotonic clock stood still.
func suspend(t *testing.T) time.Duration {
	t.Helper()
	const alarm = "/sys/class/rtc/rtc0/wakealarm"
	assert.NilError(t, os.WriteFile(alarm, []byte("0"), 0))
	assert.NilError(t, os.WriteFile(alarm, fmt.Appendf(nil, "+%d", int(suspendFor.Seconds())), 0))
	before := stoodStill(t)
	assert.NilError(t, os.WriteFile("/sys/power/state", []byte("mem"), 0))
	return stoodStill(t) - before
}

// stoodStill is for how long the guest has been suspended since it has booted.
func stoodStill(t *testing.T) time.Duration {
	t.Helper()
	var boot unix.Timespec
	assert.NilError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot))
	return time.Duration(boot.Nano() - int64(linux.Monotonic()))
}

// nap is when a thread was in a sleep, by the monotonic clock.
type nap struct{ begin, end uint64 }

func (n nap) took() time.Duration { return time.Duration(n.end - n.begin) }

// napping starts a thread that sleeps once.
func napping(t *testing.T, length time.Duration) <-chan nap {
	t.Helper()
	done := make(chan nap, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		name, err := unix.BytePtrFromString(sleeperComm)
		assert.Check(t, err)
		assert.Check(t, unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0))
		n := nap{begin: linux.Monotonic()}
		until := unix.NsecToTimespec(int64(n.begin) + length.Nanoseconds())
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil) == unix.EINTR {
		}
		n.end = linux.Monotonic()
		done <- n
	}()
	return done
}

// guestDaemon is the daemon of a test.
type guestDaemon struct {
	socket, snaps string
	log           *bytes.Buffer
}

// startDaemon starts the daemon with rules; it is stopped at the end of the test.
func startDaemon(t *testing.T, rules string, flags ...string) *guestDaemon {
	t.Helper()
	dir := t.TempDir()
	d := &guestDaemon{socket: filepath.Join(dir, "s.sock"), snaps: filepath.Join(dir, "snaps"), log: &bytes.Buffer{}}
	file := filepath.Join(dir, "rules.yaml")
	assert.NilError(t, os.WriteFile(file, []byte(rules), 0o600))
	cmd := exec.Command("/bin/tailcam", append([]string{
		"run", "--rules", file, "--socket-path", d.socket,
		"--snapshots-dir", d.snaps, "--snapshots-min-free", "0", "--budget-cpu", "100%",
	}, flags...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = d.log, d.log, []string{"PATH=/bin"}
	watchTimers(t)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		assert.Check(t, cmd.Process.Signal(unix.SIGTERM))
		err := cmd.Wait()
		assert.Check(t, err == nil && !t.Failed(), "the daemon: %v\n%s", err, d.log)
	})
	d.await(t, "it watches", func() bool {
		out, err := d.command("status").Output()
		return err == nil && len(out) > 0
	})
	return d
}

func (d *guestDaemon) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/bin/tailcam", append(args, "--socket", d.socket)...)
	cmd.Env = []string{"PATH=/bin"}
	return cmd
}

// tailcam runs a command that must succeed, and returns what it prints.
func (d *guestDaemon) tailcam(t *testing.T, args ...string) string {
	t.Helper()
	out, err := d.command(args...).CombinedOutput()
	assert.Check(t, err, "tailcam %s\n%s", args, out)
	return string(out)
}

// events are the outliers that the daemon remembers.
func (d *guestDaemon) events(t *testing.T) (list []events.Outlier) {
	t.Helper()
	for line := range strings.Lines(d.tailcam(t, "events", "-o", "json")) {
		var o events.Outlier
		assert.NilError(t, json.Unmarshal([]byte(line), &o), "%s", line)
		list = append(list, o)
	}
	return list
}

// await waits until something holds.
func (d *guestDaemon) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(200 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(end), "waited in vain until %s", what)
	}
}
