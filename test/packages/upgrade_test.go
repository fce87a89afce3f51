package packages

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/bpfobjects"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/systemd"
)

const (
	unit       = "tailcam.service"
	serviceLog = "/var/log/tailcam.log"
	// hang is how long a step may take on a loaded machine.
	hang = time.Minute
)

// sleeper is sleep(1) with a comm of its own, and sleepRule a rule whose only outliers are
// sleeps of it. Nothing of the rule ends with the process: it has no hook of its own.
const (
	sleeper   = "tc-upgrade"
	sleepRule = "rules:\n  - {name: sleep, track: offcpu, threshold: 50ms, when: {comm: " + sleeper + ", state: interruptible}, snapshot: {after: 5ms, every: 1s}}\n"
)

// TestUpgradeRunning: an upgrade by dpkg of a running service keeps history, pending work and
// counters, no outlier is lost, the gap is told, and a purge leaves nothing in the kernel.
func TestUpgradeRunning(t *testing.T) {
	base := newSystem(t)
	release, next := base.copy(deb(t, "1.0.0")), base.copy(deb(t, "1.1.0~rc.1"))
	s := bootSystem(t, base)
	before := base.files()
	const ownRule = "/etc/tailcam/rules.d/sleep.yaml"
	assert.NilError(t, os.MkdirAll(base.dir+filepath.Dir(ownRule), 0o755))
	base.write(ownRule, sleepRule)

	s.Do("dpkg", "--install", release)
	first := await(t, s)
	sleeps := newSleeper(t)
	sleeps.run("0.1")
	d := statusOf(t, s)
	assert.Check(t, is.Equal(d.Version, "v1.0.0"))
	assert.Check(t, d.Pins.Where == "systemd" && !d.Pins.TakenOver, "%+v", d.Pins)
	eventually(t, "the sleep is told", func() bool { return statusOf(t, s).outliers(t) == 1 })

	pending := sleeps.start("infinity")
	alive := sleeps.during(first, func() { s.Do("dpkg", "--install", next) })
	second := await(t, s)
	replaced := linux.Monotonic()
	assert.Check(t, first != second && !isRunning(first), "the upgrade did not restart the service")
	assert.NilError(t, pending.Process.Kill())
	_ = pending.Wait() // it was killed
	sleeps.ended++

	d = statusOf(t, s)
	assert.Check(t, is.Equal(d.Version, "v1.1.0-rc.1"))
	assert.Check(t, d.Pins.Where == "systemd" && d.Pins.TakenOver && d.Pins.From == "v1.0.0" && d.Pins.GapNS > 0 && d.Pins.Lost == 0,
		"%+v", d.Pins)
	eventually(t, "all sleeps are counted", func() bool { return statusOf(t, s).outliers(t) == sleeps.ended })
	t.Logf("%d sleeps; %d outliers in the gap of %s", sleeps.ended, d.Pins.Unread, time.Duration(d.Pins.GapNS))
	checkTold(t, s, alive, replaced)
	dir := strings.TrimSpace(s.Do("tailcam", "snapshot", "--reason", "after the upgrade"))
	m, err := snapshot.ReadMeta(base.dir + dir)
	assert.NilError(t, err)
	for _, c := range m.Coverage {
		assert.Check(t, c.FromMonoNS < alive && len(c.Gaps) == 0, "CPU %d: not the history of before the upgrade: %+v", c.CPU, c)
	}

	held := append(programs(t, second), pinAndDie(t, s, ownRule)...)
	assert.NilError(t, os.Remove(base.dir+ownRule))
	s.Do("dpkg", "--purge", "tailcam")
	assert.Check(t, !isRunning(second), "the service runs")
	_, err = s.Try("test", "-e", pinned, "-o", "-e", "/run/tailcam")
	assert.Check(t, err != nil, "pins or the runtime directory stay: %s", s.Do("ls", "-l", "/sys/fs/bpf", "/run"))
	assertFreed(t, held)
	assert.Check(t, is.Equal(base.files(), before), "purge left something, or took too much")
}

// bootSystem starts the manager; the log of the service is shown if the test fails.
func bootSystem(t *testing.T, base *system) *systemd.System {
	t.Helper()
	t.Cleanup(func() {
		if text, err := os.ReadFile(base.dir + serviceLog); t.Failed() && err == nil {
			t.Logf("the log of the service:\n%s", text)
		}
	})
	return systemd.Boot(t, base.dir, map[string]string{
		unit: "[Service]\nStandardOutput=append:" + serviceLog + "\nStandardError=append:" + serviceLog + "\n",
	})
}

// checkTold: the daemon tells of a sleep that began while the one before it was alive, and ended
// after it was there.
func checkTold(t *testing.T, s *systemd.System, alive, replaced uint64) {
	t.Helper()
	for line := range strings.Lines(s.Do("tailcam", "events", "--rule", "sleep", "-o", "json")) {
		var o struct {
			Start uint64 `json:"start_mono_ns"`
			End   uint64 `json:"end_mono_ns"`
		}
		assert.NilError(t, json.Unmarshal([]byte(line), &o))
		if o.Start < alive && o.End >= replaced {
			return
		}
	}
	t.Error("what was pending during the upgrade is not told")
}

// pinned is where a daemon that is started by hand pins.
const pinned = "/sys/fs/bpf/tailcam"

// pinAndDie starts such a daemon, kills it, and returns the programs that it leaves.
func pinAndDie(t *testing.T, s *systemd.System, rules string) []ebpf.ProgramID {
	t.Helper()
	const socket = "/run/by-hand"
	cmd := s.Command("tailcam", "run", "--pin", "--socket", socket, "--snapshots-dir", "/tmp/by-hand", "--rules", rules)
	assert.NilError(t, child.Start(cmd))
	eventually(t, "it watches", func() bool {
		_, err := s.Try("tailcam", "status", "--socket", socket)
		return err == nil
	})
	held := programs(t, cmd.Process.Pid)
	assert.NilError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	s.Do("test", "-d", pinned)
	return held
}

func assertFreed(t *testing.T, held []ebpf.ProgramID) {
	t.Helper()
	assert.Check(t, len(held) > 10, "%v: the test does not see the daemons' programs", held)
	for _, id := range held {
		eventually(t, fmt.Sprintf("the kernel has freed BPF program %d", id), func() bool {
			p, err := ebpf.NewProgramFromID(id)
			if err == nil {
				err = p.Close()
			}
			return errors.Is(err, os.ErrNotExist)
		})
	}
}

// await waits until the service watches, and returns its process.
func await(t *testing.T, s *systemd.System) (pid int) {
	t.Helper()
	eventually(t, "the service runs", func() bool {
		pid = s.MainPID(unit)
		_, err := s.Try("tailcam", "status")
		return pid != 0 && err == nil && pid == s.MainPID(unit)
	})
	return pid
}

// daemonStatus is what the daemon says of itself.
type daemonStatus struct {
	Version string
	Pins    struct {
		Where     string
		TakenOver bool `json:"taken_over"`
		From      string
		GapNS     int64 `json:"gap_ns"`
		Unread    uint64
		Lost      uint64
	}
	Rules []struct {
		Name     string
		Outliers int
	}
}

func statusOf(t *testing.T, s *systemd.System) *daemonStatus {
	t.Helper()
	d := &daemonStatus{}
	assert.NilError(t, json.Unmarshal([]byte(s.Do("tailcam", "status", "-o", "json")), d))
	return d
}

// outliers is how many the rule has had, in all daemons of the kernel side.
func (d *daemonStatus) outliers(t *testing.T) int {
	t.Helper()
	for _, r := range d.Rules {
		if r.Name == "sleep" {
			return r.Outliers
		}
	}
	t.Fatalf("no rule: %+v", d)
	return 0
}

// sleeperProgram is sleep(1) by its other name.
type sleeperProgram struct {
	t     *testing.T
	path  string
	ended int // sleeps
}

func newSleeper(t *testing.T) *sleeperProgram {
	t.Helper()
	program, err := os.ReadFile("/bin/sleep")
	assert.NilError(t, err)
	p := &sleeperProgram{t: t, path: filepath.Join(t.TempDir(), sleeper)}
	assert.NilError(t, os.WriteFile(p.path, program, 0o755))
	return p
}

// start begins a sleep, and returns when it is in the system call.
func (p *sleeperProgram) start(length string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), p.path, length)
	assert.NilError(p.t, child.Start(cmd))
	eventually(p.t, "it sleeps", func() bool { return child.States(cmd.Process.Pid) == "S" })
	return cmd
}

// run sleeps once.
func (p *sleeperProgram) run(length string) {
	assert.Check(p.t, exec.Command(p.path, length).Run())
	p.ended++
}

// during sleeps again and again while something is done, and returns when a process was last
// seen alive.
func (p *sleeperProgram) during(pid int, do func()) (alive uint64) {
	p.t.Helper()
	done := make(chan struct{})
	go func() {
		for {
			select {
			case done <- struct{}{}:
				return
			default:
			}
			if now := linux.Monotonic(); isRunning(pid) {
				alive = now
			}
			p.run("0.1")
		}
	}()
	func() {
		defer func() { <-done }() // also if it ends the test
		do()
	}()
	return alive
}

// programs are the BPF programs that a process has open.
func programs(t *testing.T, pid int) (ids []ebpf.ProgramID) {
	t.Helper()
	for name, id := range bpfobjects.Held(t, pid) {
		if strings.HasPrefix(name, "prog ") {
			ids = append(ids, ebpf.ProgramID(id))
		}
	}
	return ids
}

func isRunning(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/exe")
	return !errors.Is(err, fs.ErrNotExist)
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang); !holds(); time.Sleep(20 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(deadline), "waited in vain until %s", what)
	}
}
