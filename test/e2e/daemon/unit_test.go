package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/cleanup"
	"github.com/tailcam/tailcam/test/support/systemd"
)

// underUnit lets every daemon of these tests run as a service of the shipped
// unit: `make e2e-unit`.
var underUnit = os.Getenv("E2E_UNIT") != ""

// visibleDir holds the tests' files then: services have a /tmp of their own.
const visibleDir = "/var/lib"

const shippedUnit = "../../../configs/systemd/tailcam.service"

// serviceProcess is the daemon as a service.
type serviceProcess struct{ *systemd.Service }

func (s serviceProcess) Exit() (status int, how string) {
	r := s.Result()
	if r.Signal {
		return -1, r.String()
	}
	return r.Code, r.String()
}

func (s serviceProcess) Signal(sig syscall.Signal) error { return s.Service.Signal(sig) }

// startService starts a daemon under the shipped unit.
func startService(t *testing.T, argv, dropIns []string, log *logText) process {
	t.Helper()
	mountTracefs(t)
	dir := publicDir(t, "")
	log.file = filepath.Join(dir, "log")
	return serviceProcess{systemd.Start(t, systemd.Options{
		Dir: dir, Unit: readText(t, shippedUnit), DropIns: dropIns, Argv: argv, Log: log.file, Writable: []string{os.TempDir()},
	})}
}

// mountTracefs does what sys-kernel-tracing.mount has done where systemd is init:
// the unit may not mount.
func mountTracefs(t *testing.T) {
	t.Helper()
	const dir = "/sys/kernel/tracing"
	if _, err := os.Stat(filepath.Join(dir, "events")); err == nil {
		return
	}
	assert.NilError(t, unix.Mount("nodev", dir, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
		"mount tracefs")
	cleanup.Unmount(t, dir)
}

// notUnderUnit skips what the unit forbids on purpose.
func notUnderUnit(t *testing.T, why string) {
	t.Helper()
	if underUnit {
		t.Skip("not under the shipped unit: " + why)
	}
}

// unitHome is a home where a service may write; the daemon of it is not started.
func unitHome(t *testing.T, rules string) *home {
	t.Helper()
	return homeBelow(t, visibleDir, rules)
}

// serve runs the daemon of a home under a unit; it may fail.
func (h *home) serve(t *testing.T, unit string, dropIns []string, args ...string) *running {
	t.Helper()
	return h.serveWith(t, systemd.Options{Unit: unit, DropIns: dropIns}, args...)
}

// serveWith is serve with more options: what is run, and where, is filled in.
func (h *home) serveWith(t *testing.T, o systemd.Options, args ...string) *running {
	t.Helper()
	d := &running{home: h, t: t}
	d.log.file = filepath.Join(h.dir, "log")
	binary := filepath.Join(h.dir, "tailcam") // the usual one may lie in /tmp
	if err := os.Link(built.tailcam, binary); err != nil {
		writeFile(t, binary, readText(t, built.tailcam), 0o755)
	}
	argv := h.command(args...)
	argv[0] = binary
	o.Dir, o.Log, o.Writable = h.dir, d.log.file, []string{h.dir}
	o.Pre, o.Argv = []string{binary, "check", h.rules}, argv
	d.main = serviceProcess{systemd.Start(t, o)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.log.String())
		}
	})
	return d
}

// TestUnitFirstOutlier: the daemon lives through outliers whose cgroup it has to
// find by its id, under the shipped unit; with real-time snapshots too, given
// the drop-in for them.
func TestUnitFirstOutlier(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name    string
		dropIns []string
		args    []string
		unit    func(string) string
	}{
		{name: "shipped"},
		{name: "without open_by_handle_at", unit: func(u string) string {
			return strings.ReplaceAll(u, " open_by_handle_at", "")
		}},
		{name: "without CAP_DAC_READ_SEARCH", unit: func(u string) string {
			return strings.Replace(u, "=CAP_DAC_READ_SEARCH ", "=", 1)
		}},
		{name: "real time", dropIns: []string{"../../../configs/systemd/realtime.conf"}, args: []string{"--snapshots-rt-priority", "10"}},
		{name: "perf rings", args: []string{"--recorder-backend", "perf"}},
		{name: "offline", dropIns: []string{"../../../configs/systemd/offline.conf"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			uid := newUID()
			h := unitHome(t, rulesFile(napRule("nap", uid, "stacks: [kernel, user]", "snapshot: {after: 5ms, every: 1ms, burst: 10}")))
			unit := readText(t, shippedUnit)
			if c.unit != nil {
				changed := c.unit(unit)
				assert.Assert(t, changed != unit, "the unit does not have what this test takes out")
				unit = changed
			}
			d := h.serve(t, unit, c.dropIns, c.args...)
			d.watches()
			naps(t, uid, 3, 10*time.Millisecond, 1)
			eventually(t, "three outliers are told", func() bool { return len(d.events("nap")) == 3 })
			for _, o := range d.events("nap") {
				assert.Check(t, o.Task.Cgroup != "", "an outlier without its cgroup: %+v", o.Task)
				assert.Check(t, len(o.Stacks.User) != 0 && len(o.Stacks.Kernel) != 0 &&
					strings.Contains(o.Stacks.Kernel[0], "+0x"), "stacks are missing: %+v", o.Stacks)
			}
			eventually(t, "there is a snapshot", func() bool { return len(d.list()) > 0 })
			assert.Check(t, !d.log.has(`"level":"error"`) && !d.log.has(`"level":"warn"`),
				"the log tells of errors")
			d.stop(syscall.SIGTERM)
			complete(t, h.snaps)
		})
	}
}

// TestUnitHome: home directories are hidden from the service, but frames of a program
// that runs from there have their names.
func TestUnitHome(t *testing.T) {
	needRoot(t)
	uid := newUID()
	program := filepath.Join(publicDir(t, "/home"), "napper")
	writeFile(t, program, readText(t, buildC(t, "napper", "-g")), 0o755)
	h := unitHome(t, rulesFile(entry("napper", "syscall", "1ms", fmt.Sprintf("{uid: %d, syscall: clock_nanosleep}", uid),
		"stacks: [user]", "snapshot: false")))
	d := h.serve(t, readText(t, shippedUnit), nil)
	d.watches()
	hidden, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/home", d.pid()))
	assert.Check(t, err == nil && len(hidden) == 0, "the daemon sees %v: %v", hidden, err)
	cmd := exec.Command(program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	_, err = child.Talk(t, cmd).In.Write([]byte{'x'})
	assert.NilError(t, err)
	eventually(t, "the nap is told", func() bool { return len(d.events("napper")) == 1 })
	frames := d.events("napper")[0].Stacks.User
	assert.Check(t, len(frames) > 0 && strings.HasPrefix(frames[0], "work+0x") &&
		strings.HasSuffix(frames[0], " (napper)"), "%q", frames)
}

// TestUnitRealTime: without its drop-in, snapshots.rt_priority is refused in words.
func TestUnitRealTime(t *testing.T) {
	needRoot(t)
	h := unitHome(t, rulesFile(napRule("nap", newUID())))
	d := h.serve(t, readText(t, shippedUnit), nil, "--snapshots-rt-priority", "10")
	eventually(t, "the daemon ends", d.ended)
	code, how := d.main.Exit()
	assert.Check(t, code == 1, "it ended with %s", how)
	assert.Check(t, d.log.has("set the priority of the snapshot thread to 10"), "the log does not say why")
}

// TestUnitCanFail shows that the filter is in force: the unit as it was once
// (no open_by_handle_at, and the default action) dies of SIGSYS at the first
// outlier.
func TestUnitCanFail(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := unitHome(t, rulesFile(napRule("nap", uid, "stacks: [user]")))
	unit := strings.ReplaceAll(readText(t, shippedUnit), " open_by_handle_at", "")
	unit = strings.Replace(unit, "SystemCallErrorNumber=EPERM\n", "", 1)
	d := h.serve(t, unit, nil)
	d.watches()
	naps(t, uid, 1, 10*time.Millisecond, 1)
	eventually(t, "the daemon is killed", d.ended)
	r := d.main.(serviceProcess).Result()
	assert.Check(t, r.Signal && syscall.Signal(r.Code) == syscall.SIGSYS, "it ended with %v, not by SIGSYS", r)
}
