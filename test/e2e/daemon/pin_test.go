package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/leftovers"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/test/support/cleanup"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/test/support/systemd"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/pins"
)

// bpffs mounts a BPF file system for a test, and returns a directory in it that is not
// there yet.
func bpffs(t *testing.T) string {
	t.Helper()
	needRoot(t)
	notUnderUnit(t, "systemd keeps what is pinned there: TestUnitPins")
	mount, err := os.MkdirTemp("", "pins-") // not a name that nothingPinned looks for
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.Remove(mount)) })
	assert.NilError(t, unix.Mount("bpf", mount, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	cleanup.Unmount(t, mount)
	return filepath.Join(mount, "tailcam")
}

// kill ends a daemon without a word.
func (d *running) kill() {
	d.t.Helper()
	d.signal(syscall.SIGKILL)
	eventually(d.t, "it is dead", d.ended)
}

// sleeping starts a nap of a user, and returns when its thread is in the system call.
func sleeping(t *testing.T, uid int, length time.Duration) *inject.Held {
	t.Helper()
	h := inject.Hold(t, inject.As(uid), napArgs(1, length, 1)...)
	h.LetGo()
	eventually(t, "the injector sleeps", func() bool {
		paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", h.PID()))
		assert.NilError(t, err)
		return slices.ContainsFunc(paths, func(path string) bool {
			text, _ := os.ReadFile(path) // it may have ended
			f := strings.Fields(string(text))
			return len(f) > 2 && f[0] == strconv.Itoa(unix.SYS_CLOCK_NANOSLEEP)
		})
	})
	return h
}

// TestPinKilled: history, pending work, counters and outliers outlive a daemon that is
// killed, and each outlier is told once.
func TestPinKilled(t *testing.T) {
	dir := bpffs(t)
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 5ms, every: 1s}"),
		entry("other", "wakeup", "10s", "{uid: "+strconv.Itoa(uid)+"}"),
		declaredRule(uid)))
	args := []string{"--pin=" + dir, "--recorder-size", "4MiB"}
	d := h.start(t, args...)
	objects := heldBy(t, d.pid())
	naps(t, uid, 3, 10*time.Millisecond, 1)
	eventually(t, "three outliers are told", func() bool { return len(d.events("nap")) == 3 })
	eventually(t, "their snapshot is there", func() bool { return len(d.list()) > 0 })
	landmark := runTrue(t)
	pending := sleeping(t, uid, 3*time.Second)
	d.kill()
	killed := linux.Monotonic()

	gap := naps(t, uid, 5, 10*time.Millisecond, 1)
	ended := pending.Wait()
	d = h.start(t, args...)
	assert.Check(t, ended[0].Start < killed && ended[0].End > killed, "the nap was not pending at the kill: %+v", ended)
	assert.Check(t, d.log.has("took over the kernel side of the daemon before"), "the log does not tell")
	eventually(t, "the outliers of the gap are told", func() bool { return len(d.events("nap")) >= 6 })
	told := map[uint64]int{}
	for _, o := range d.events("nap") {
		told[o.StartMono]++
		want := append(slices.Clone(gap), ended...)
		assert.Check(t, slices.ContainsFunc(want, func(e inject.Event) bool { return o.StartMono >= e.Start && o.EndMono <= e.End }),
			"this was before the kill, or never: %+v", o)
	}
	assert.Check(t, len(told) == 6 && slices.Max(slices.Collect(maps.Values(told))) == 1, "told: %v", told)
	eventually(t, "the declared pair's are told", func() bool { return len(d.events("declared")) >= 6 })
	assert.Check(t, len(d.events("declared")) == 6 && slices.ContainsFunc(d.events("declared"), func(o events.Outlier) bool {
		return o.StartMono >= ended[0].Start && o.EndMono <= ended[0].End
	}), "told of the declared pair: %+v, want one of %+v", d.events("declared"), ended)
	m, trace := checkSnapshot(t, byHand(d, "after the kill"))
	for _, c := range m.Coverage {
		assert.Check(t, c.FromMonoNS < killed && len(c.Gaps) == 0, "CPU %d: not the history of before the kill: %+v", c.CPU, c)
	}
	knows(t, trace, landmark, killed)
	s := d.status()
	assert.Assert(t, s.Pins != nil && s.Pins.TakenOver && s.Pins.Where == dir, "%+v", s.Pins)
	assert.Check(t, s.Pins.Unread == 12 && s.Pins.Lost == 0 && s.Pins.GapNS > 0, "%+v", s.Pins)
	assert.Check(t, s.rule("nap").Outliers == 9, "the counters began anew: %+v", s.rule("nap"))

	// It works on, and its end leaves nothing.
	naps(t, uid, 2, 10*time.Millisecond, 1)
	eventually(t, "new outliers are told", func() bool { return len(d.events("nap")) == 8 })
	d.stop(syscall.SIGTERM)
	objects.gone(t)
	_, err := os.Lstat(dir)
	assert.Check(t, errors.Is(err, os.ErrNotExist), "the directory stays: %v", err)
	complete(t, h.snaps)
}

// declaredRule is napRule as a declared pair.
func declaredRule(uid int) string {
	return entry("declared", "pair", "1ms", "{uid: "+strconv.Itoa(uid)+", comm: inj-syscall}", "key: tid", "snapshot: false",
		"entry: raw_tracepoint:sys_enter", "entry_when: args.id == "+strconv.Itoa(unix.SYS_CLOCK_NANOSLEEP), "exit: raw_tracepoint:sys_exit")
}

// killsVariable is how often TestPinKilledAnywhere kills.
const killsVariable = "TAILCAM_TEST_KILLS"

// TestPinKilledAnywhere kills daemons with pins at random moments of their start and of
// their work: no half snapshot stays, each start works, whatever it finds, and the last stop
// leaves nothing of any.
func TestPinKilledAnywhere(t *testing.T) {
	dir := bpffs(t)
	rounds := 24
	if text := os.Getenv(killsVariable); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		assert.NilError(t, err, killsVariable)
	}
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "timeout: 10ms", "snapshot: {after: 5ms, every: 10ms, burst: 20}"), declaredRule(uid)))
	all := objects{}
	taken := 0
	for round := range rounds {
		d := &running{home: h, t: t}
		c, err := startChild(h.command("--pin="+dir), &d.log)
		assert.NilError(t, err)
		d.main = c
		t.Cleanup(func() { _ = d.main.Signal(syscall.SIGKILL) }) // if the test ends early
		most := 2000 >> rand.IntN(6)
		if round%2 == 1 {
			d.watches()
			naps(t, uid, 20, 3*time.Millisecond, 2)
			most = 100
		}
		time.Sleep(time.Duration(rand.IntN(most)) * time.Millisecond)
		if d.ended() {
			t.Fatalf("round %d: it ended by itself:\n%s", round, d.log.String())
		}
		d.pause()
		maps.Copy(all, heldBy(t, d.pid()))
		d.kill()
		if d.log.has("took over the kernel side") {
			taken++
		}
		if _, err := os.Stat(h.snaps); err == nil {
			complete(t, h.snaps)
		}
	}
	d := h.start(t, "--pin="+dir)
	naps(t, uid, 1, 10*time.Millisecond, 1)
	checkSnapshot(t, byHand(d, "after all that"))
	maps.Copy(all, heldBy(t, d.pid()))
	d.stop(syscall.SIGTERM)
	all.gone(t)
	assert.Check(t, len(halves(t, h.snaps)) == 0, "half snapshots stay")
	_, err := os.Lstat(dir)
	assert.Check(t, errors.Is(err, os.ErrNotExist), "the directory stays: %v", err)
	t.Logf("%d kills, %d of daemons that had taken over; %d BPF objects in all", rounds, taken, len(all))
	assert.Check(t, taken > 0, "nothing was ever taken over: this test proves nothing")
}

// TestPinAnew: what cannot be taken over is removed, the daemon loads anew, and says why.
func TestPinAnew(t *testing.T) {
	dir := bpffs(t)
	uid := newUID()
	nap := rulesFile(napRule("nap", uid))
	for _, c := range []struct {
		name, reason string
		change       func(t *testing.T, h *home)
	}{
		{"another ABI", "another ABI", func(t *testing.T, _ *home) {
			changeRecord(t, dir, map[string]any{"ABI": "0123", "Layout": "4567", "Version": "v0.0.1"})
		}},
		{"not complete", "not complete", func(t *testing.T, _ *home) {
			assert.NilError(t, os.Remove(filepath.Join(dir, pins.Complete)))
		}},
		{"a map is missing", "not complete", func(t *testing.T, _ *home) {
			assert.NilError(t, os.Remove(filepath.Join(dir, "map-rules")))
		}},
		{"nonsense", "decode", func(t *testing.T, _ *home) {
			m, err := ebpf.LoadPinnedMap(filepath.Join(dir, pins.Complete), nil)
			assert.NilError(t, err)
			defer m.Close()
			assert.NilError(t, m.Put(uint32(0), bytes.Repeat([]byte{'['}, int(m.ValueSize()))))
		}},
		{"rules unknown", "decode", func(t *testing.T, _ *home) {
			m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "state-rules"), nil)
			assert.NilError(t, err)
			defer m.Close()
			for i := range m.MaxEntries() {
				assert.NilError(t, m.Put(i, make([]byte, m.ValueSize())))
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHome(t, nap)
			d := h.start(t, "--pin="+dir)
			before := heldBy(t, d.pid())
			d.kill()
			c.change(t, h)
			d = h.start(t, "--pin="+dir)
			before.gone(t)
			assert.Check(t, d.log.has("loaded the kernel side anew"), "the log does not tell")
			s := d.status()
			assert.Check(t, s.Pins != nil && !s.Pins.TakenOver && strings.Contains(s.Pins.Reason, c.reason), "%+v", s.Pins)
			naps(t, uid, 2, 10*time.Millisecond, 1)
			eventually(t, "outliers are told", func() bool { return len(d.events("nap")) == 2 })
			d.stop(syscall.SIGTERM)
		})
	}
}

// changeRecord changes what a daemon has noted of what it has pinned.
func changeRecord(t *testing.T, dir string, to map[string]any) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, pins.Complete), nil)
	assert.NilError(t, err)
	defer m.Close()
	b, err := m.LookupBytes(uint32(0))
	assert.NilError(t, err)
	var r map[string]any
	assert.NilError(t, json.Unmarshal(bytes.TrimRight(b, "\x00"), &r))
	maps.Copy(r, to)
	text, err := json.Marshal(r)
	assert.NilError(t, err)
	b = slices.Concat(text, make([]byte, len(b)-len(text)))
	assert.NilError(t, m.Put(uint32(0), b))
}

// TestPinRules: rules that the same programs can carry out change with a restart, and the
// others go on.
func TestPinRules(t *testing.T) {
	dir := bpffs(t)
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid), napRule("gone", uid)))
	args := []string{"--pin=" + dir, "--recorder-cover", "1s"}
	d := h.start(t, args...)
	assert.Check(t, d.log.has("sized the recorder"))
	naps(t, uid, 1, 10*time.Millisecond, 1)
	eventually(t, "it is told", func() bool { return len(d.events("nap")) == 1 && len(d.events("gone")) == 1 })
	d.kill()
	naps(t, uid, 2, 10*time.Millisecond, 1)
	writeFile(t, h.rules, rulesFile(napRule("new", uid, "priority: 1"), napRule("nap", uid)), 0o644)
	d = h.start(t, args...)
	assert.Check(t, d.status().Pins.TakenOver, "%+v", d.status().Pins)
	assert.Check(t, !d.log.has("sized the recorder"), "it has measured a size that cannot change")
	eventually(t, "the gap is told", func() bool { return len(d.events("nap")) == 2 })
	naps(t, uid, 1, 10*time.Millisecond, 1)
	eventually(t, "the new rule works", func() bool { return len(d.events("new")) == 1 && len(d.events("nap")) == 3 })
	assert.Check(t, d.status().rule("nap").Outliers == 4, "%+v", d.status().rule("nap"))
}

// TestPinDirectory: a directory that cannot be trusted, or that another daemon uses, is
// not used; what is not ours in it stays.
func TestPinDirectory(t *testing.T) {
	dir := bpffs(t)
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	for _, c := range []struct {
		name, says string
		make       func(t *testing.T) string
	}{
		{"not a BPF file system", "is not in a BPF file system", func(t *testing.T) string { return filepath.Join(publicDir(t, ""), "pins") }},
		{"of another user", "belongs to user 12345", func(t *testing.T) string {
			assert.NilError(t, os.Mkdir(dir, 0o700))
			assert.NilError(t, os.Chown(dir, 12345, 12345))
			return dir
		}},
		{"open to others", "other users may use it", func(t *testing.T) string {
			assert.NilError(t, os.Mkdir(dir, 0o755))
			return dir
		}},
		{"a link", "not a directory", func(t *testing.T) string {
			assert.NilError(t, os.Symlink(filepath.Dir(dir), dir))
			return dir
		}},
		{"in use", "in use by another tailcam", func(t *testing.T) string {
			newHome(t, rulesFile(napRule("nap", newUID()))).start(t, "--pin="+dir)
			return dir
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := c.make(t)
			d := h.start(t, "--pin="+at)
			s := d.status()
			assert.Check(t, s.Pins != nil && s.Pins.Where == "" && strings.Contains(s.Pins.Error, c.says), "%+v", s.Pins)
			d.kill()
			eventually(t, "the socket is free", func() bool { return free(t, h.socket+".lock") })
			if c.name != "in use" {
				assert.NilError(t, os.RemoveAll(at))
			}
		})
	}
	t.Run("things of others", func(t *testing.T) {
		d := h.start(t, "--pin="+dir)
		other := filepath.Join(dir, "other")
		assert.NilError(t, os.Mkdir(other, 0o700))
		d.stop(syscall.SIGTERM)
		left, err := os.ReadDir(dir)
		assert.Check(t, err == nil && len(left) == 1, "%v, %v", left, err)
		assert.NilError(t, os.RemoveAll(dir))
	})
}

// TestUninstallCheck lists pins of a daemon that was killed, and removes them.
func TestUninstallCheck(t *testing.T) {
	dir := bpffs(t)
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	cfg := writeFile(t, filepath.Join(h.dir, "tailcam.yaml"),
		fmt.Sprintf("pin: %s\nsocket: {path: %s}\nsnapshots: {dir: %s}\n", dir, h.socket, h.snaps), 0o644)
	check := func(args ...string) answer {
		return tailcam(t, append([]string{"uninstall-check", "--config", cfg}, args...)...)
	}
	d := h.start(t, "--pin="+dir)
	held := heldBy(t, d.pid())
	a := check("--unpin")
	assert.Check(t, a.code == 1 && strings.Contains(a.err, "in use by another tailcam"), "%+v", a)
	d.kill()
	a = check()
	for _, line := range []string{"pin: " + dir, "program: ", "socket: " + h.socket, "state: " + h.snaps} {
		assert.Check(t, a.code == 1 && strings.Contains(a.out, line), "%q is missing in %+v", line, a)
	}
	kinds := map[string]bool{}
	for _, item := range lines[leftovers.Item](t, check("-o", "json").out) {
		kinds[item.Kind] = true
	}
	assert.Check(t, kinds["pin"] && kinds["program"] && kinds["socket"] && kinds["state"], "%v", kinds)
	a = check("--unpin")
	assert.Check(t, !strings.Contains(a.out, "pin: "), "%+v", a)
	held.gone(t)
	assert.NilError(t, errors.Join(os.Remove(h.socket), os.Remove(h.socket+".lock"), os.RemoveAll(h.snaps)))
	eventually(t, "nothing is left", func() bool { return !strings.Contains(check().out, h.dir) })
}

// TestUnitPins: under the shipped unit, systemd keeps what is pinned while the service
// restarts, also what a reload has loaded, and not when it is stopped.
func TestUnitPins(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := unitHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 5ms}"), declaredRule(uid)))
	dropIn := writeFile(t, filepath.Join(h.dir, "restart.conf"), "[Service]\nRestartSec=100ms\n", 0o644)
	d := h.serveWith(t, systemd.Options{Unit: readText(t, shippedUnit), DropIns: []string{dropIn}, Restart: true})
	s := d.main.(serviceProcess)
	d.watches()
	held := heldBy(t, d.pid())
	told := func(ended []inject.Event) {
		t.Helper()
		for _, rule := range []string{"nap", "declared"} {
			eventually(t, "what was pending is told by "+rule, func() bool { return len(d.events(rule)) == 1 })
			o := d.events(rule)[0]
			assert.Check(t, o.StartMono >= ended[0].Start && o.EndMono <= ended[0].End, "%+v, injected was %+v", o, ended)
		}
	}
	watches := func(times int) {
		t.Helper()
		eventually(t, "it watches again", func() bool { return d.log.count(`"message":"watching"`) == times })
		assert.Check(t, d.status().Pins.TakenOver && d.status().Pins.Where == "systemd", "%+v", d.status().Pins)
	}
	pending := sleeping(t, uid, 2*time.Second)
	d.kill()
	ended := pending.Wait()
	watches(2)
	told(ended)

	writeFile(t, h.rules, rulesFile(napRule("nap", uid, "snapshot: {after: 5ms}"), declaredRule(uid), entry("disk", "block", "1h", "{op: [read]}", "timeout: 1h")), 0o644)
	d.ok("reload") // with programs that change places
	pending = sleeping(t, uid, 2*time.Second)
	s.Systemctl("restart")
	ended = pending.Wait()
	watches(3)
	told(ended)
	eventually(t, "systemd has restarted it", func() bool { return s.Property("ActiveState") == "active" })

	pid, err := strconv.Atoi(s.Property("MainPID"))
	assert.NilError(t, err)
	maps.Copy(held, heldBy(t, pid))
	s.Systemctl("stop")
	held.gone(t)
	complete(t, h.snaps)
	assert.Check(t, d.log.count("the kernel side is left to the next daemon") == 1, "only the restart leaves something")
}
