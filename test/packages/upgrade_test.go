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
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot"
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
	s := systemd.Boot(t, base.dir, map[string]string{
		unit: "[Service]\nStandardOutput=append:" + serviceLog + "\nStandardError=append:" + serviceLog + "\n",
	})
	t.Cleanup(func() {
		if text, err := os.ReadFile(base.dir + serviceLog); t.Failed() && err == nil {
			t.Logf("the log of the service:\n%s", text)
		}
	})
	before := base.files()
	ownRule := filepath.Join("/etc/tailcam/rules.d", "sleep.yaml")
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
	began := linux.Monotonic()
	upgraded := make(chan struct{})
	many := make(chan struct{})
	go func() {
		defer close(many)
		for {
			select {
			case <-upgraded:
				return
			default:
				sleeps.run("0.1")
			}
		}
	}()
	out, err := s.Try("dpkg", "--install", next)
	second := await(t, s)
	replaced := linux.Monotonic()
	close(upgraded)
	<-many
	assert.NilError(t, err, "%s", out)
	assert.Check(t, first != second && !isRunning(first), "the upgrade did not restart the service")
	assert.NilError(t, pending.Process.Kill())
	_ = pending.Wait() // it was killed
	sleeps.ended.Add(1)

	d = statusOf(t, s)
	assert.Check(t, is.Equal(d.Version, "v1.1.0-rc.1"))
	assert.Check(t, d.Pins.Where == "systemd" && d.Pins.TakenOver && d.Pins.From == "v1.0.0" && d.Pins.GapNS > 0 && d.Pins.Lost == 0,
		"%+v", d.Pins)
	assert.Check(t, is.Contains(base.read(serviceLog), "took over the kernel side of the daemon before"))
	want := int(sleeps.ended.Load())
	eventually(t, "all sleeps are counted", func() bool { return statusOf(t, s).outliers(t) == want })
	t.Logf("%d sleeps; %d outliers in the gap of %s", want, d.Pins.Unread, time.Duration(d.Pins.GapNS))
	long := false
	for line := range strings.Lines(s.Do("tailcam", "events", "--rule", "sleep", "-o", "json")) {
		var o struct {
			Start uint64 `json:"start_mono_ns"`
			End   uint64 `json:"end_mono_ns"`
		}
		assert.NilError(t, json.Unmarshal([]byte(line), &o))
		long = long || o.Start < began+uint64(time.Second) && o.End > replaced
	}
	assert.Check(t, long, "what was pending during the upgrade is not told")
	dir := strings.TrimSpace(s.Do("tailcam", "snapshot", "--reason", "after the upgrade"))
	m, err := snapshot.ReadMeta(base.dir + dir)
	assert.NilError(t, err)
	for _, c := range m.Coverage {
		assert.Check(t, c.FromMonoNS < replaced-uint64(d.Pins.GapNS) && len(c.Gaps) == 0, "CPU %d: not the history of before: %+v", c.CPU, c)
	}

	// One that was pinned by hand, and killed, goes as well.
	byHand := s.Command("tailcam", "run", "--pin", "--socket", "/run/by-hand", "--snapshots-dir", "/tmp/by-hand", "--rules", ownRule)
	assert.NilError(t, child.Start(byHand))
	const pinned = "/sys/fs/bpf/tailcam"
	eventually(t, "it watches", func() bool {
		_, err := s.Try("tailcam", "status", "--socket", "/run/by-hand")
		return err == nil
	})
	held := append(programs(t, second), programs(t, byHand.Process.Pid)...)
	assert.NilError(t, byHand.Process.Kill())
	_ = byHand.Wait() // it was killed
	s.Do("test", "-d", pinned)

	assert.NilError(t, os.Remove(base.dir+ownRule))
	s.Do("dpkg", "--purge", "tailcam")
	assert.Check(t, !isRunning(second), "the service runs")
	_, err = s.Try("test", "-e", pinned, "-o", "-e", "/run/tailcam")
	assert.Check(t, err != nil, "pins or the runtime directory stay: %s", s.Do("ls", "-l", "/sys/fs/bpf", "/run"))
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
	assert.Check(t, is.Equal(base.files(), before), "purge left something, or took too much")
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

// running is what the daemon says of itself.
type running struct {
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

func statusOf(t *testing.T, s *systemd.System) *running {
	t.Helper()
	d := &running{}
	assert.NilError(t, json.Unmarshal([]byte(s.Do("tailcam", "status", "-o", "json")), d))
	return d
}

// outliers is how many the rule has had, in all daemons of the kernel side.
func (d *running) outliers(t *testing.T) int {
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
	ended atomic.Int64 // sleeps
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
	p.ended.Add(1)
}

// programs are the BPF programs that a process has open.
func programs(t *testing.T, pid int) (ids []ebpf.ProgramID) {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	assert.NilError(t, err)
	for _, path := range paths {
		info, err := os.ReadFile(path)
		if err != nil {
			continue // closed meanwhile
		}
		for line := range strings.Lines(string(info)) {
			if number, ok := strings.CutPrefix(line, "prog_id:"); ok {
				id, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
				assert.NilError(t, err, "%s: %q", path, line)
				ids = append(ids, ebpf.ProgramID(id))
			}
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
