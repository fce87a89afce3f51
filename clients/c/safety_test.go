package c

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/test/support/activitypeer"
	"github.com/tailcam/tailcam/test/support/bpfobjects"
	"github.com/tailcam/tailcam/test/support/disturbance"
)

// TestExecEnds: what a child does is in the account of the token that it inherits, until it
// becomes another program.
func TestExecEnds(t *testing.T) {
	p, program := activitypeer.StartKernel(t), client(t)
	lines, complaint := run(t, program, p.Path, "exec")
	assert.Equal(t, complaint, "")
	assert.Assert(t, is.Len(lines, 2))
	cpu, before := lines[1]["cpu_ns"].(float64), lines[0]["before_ns"].(float64)
	assert.Check(t, cpu > 9e6 && cpu < before+100e6, "%.0f ns of CPU, the exec was after %.0f; the program then spun for 200 ms", cpu, before)
}

// TestNamespaces: a process in a pid namespace of its own, also as a container without root has it,
// opens over the socket, and its account is exact.
func TestNamespaces(t *testing.T) {
	p, program := activitypeer.StartKernel(t), client(t)
	root := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	for name, attr := range map[string]*syscall.SysProcAttr{
		"pid":      {Cloneflags: syscall.CLONE_NEWPID},
		"rootless": {Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: root, GidMappings: root},
	} {
		wrong := "not measured"
		for n := 0; wrong != "" && n < attempts; n++ {
			lines, complaint := runIn(t, attr, program, p.Path, "exact")
			assert.Equal(t, complaint, "")
			assert.Assert(t, is.Len(lines, 4))
			wrong = exactPart(lines[1], "blocked_timer_ns")
		}
		assert.Check(t, is.Equal(wrong, ""), name)
	}
}

// TestReopen: a process that closes may open again at once.
func TestReopen(t *testing.T) {
	p, program := activitypeer.StartKernel(t), client(t)
	_, complaint := run(t, program, p.Path, "reopen", "50")
	assert.Equal(t, complaint, "")
	assert.Check(t, is.Equal(p.Counts().Opened, uint64(51)))
	assert.Check(t, is.Equal(p.Counts().Refused, uint64(0)))
}

// TestSilent: after the first one of a thread, a switch makes no system call, as any would kill
// the process; so does a call in their place.
func TestSilent(t *testing.T) {
	p, program := activitypeer.StartKernel(t), client(t)
	lines, complaint := run(t, program, p.Path, "silent", "1000000", "0")
	assert.Equal(t, complaint, "")
	assert.Assert(t, is.Len(lines, 1))
	assert.Check(t, is.Equal(lines[0]["switches"], 1e6))
	out, err := exec.CommandContext(t.Context(), program, p.Path, "silent", "1000000", "1").Output()
	var exit *exec.ExitError
	assert.Assert(t, errors.As(err, &exit), "%v: %s", err, out)
	assert.Check(t, is.Equal(exit.Sys().(syscall.WaitStatus).Signal(), syscall.SIGSYS))
}

// calmAttempts is how often is measured what must be fast, until the machine is calm.
const calmAttempts = 5

// TestGone: the maps of a process that died go within a second, on a machine that is calm.
func TestGone(t *testing.T) {
	p, program := activitypeer.StartKernel(t), client(t)
	machine, err := disturbance.Start()
	assert.NilError(t, err)
	defer machine.Stop()
	for range calmAttempts {
		run(t, program, p.Path, "crash", "8", "1")
		died := time.Now()
		eventually(t, func() bool { return allGone(p.Maps()) })
		gone := time.Now()
		took := gone.Sub(died)
		time.Sleep(time.Second) // as long as is judged at once
		account := machine.Between(disturbance.Span{From: died.Add(-time.Second), To: gone.Add(time.Second)})
		t.Logf("gone after %v; %s", took, account)
		if took < time.Second {
			return
		}
		assert.Check(t, account.Disturbed || account.Full, "gone after %v, on a calm machine: %s", took, account)
	}
	t.Log("the machine was never calm")
}

// allGone says whether there is none of these maps.
func allGone(maps []ebpf.MapID) bool {
	return !slices.ContainsFunc(maps, func(id ebpf.MapID) bool {
		m, err := ebpf.NewMapFromID(id)
		if err == nil {
			m.Close()
		}
		return !errors.Is(err, os.ErrNotExist)
	})
}

// TestCrashes: of 1,000 processes that open and die, and others in their places, nothing is left.
func TestCrashes(t *testing.T) {
	const processes, atOnce = 1000, 16
	p, program := activitypeer.StartKernel(t), client(t)
	run(t, program, p.Path, "open") // what is made once is there
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		assert.NilError(t, err)
		return len(list)
	}
	eventually(t, func() bool { return p.Counts().Processes == 0 })
	before, held := descriptors(), bpfobjects.Held(t, os.Getpid())
	began := time.Now()
	lines, complaint := run(t, program, p.Path, "crash", "1000", "16")
	took := time.Since(began)
	assert.Equal(t, complaint, "")
	assert.Check(t, is.Equal(lines[0]["died"], 1.0*processes))
	began = time.Now()
	eventually(t, func() bool { return p.Counts().Processes == 0 && p.Counts().Bytes == 0 })
	closed := time.Since(began)
	maps := p.Maps()
	assert.Check(t, is.Len(maps, 2*(processes+1)))
	eventually(t, func() bool {
		maps = slices.DeleteFunc(maps, func(id ebpf.MapID) bool {
			m, err := ebpf.NewMapFromID(id)
			if err == nil {
				m.Close()
			}
			return errors.Is(err, os.ErrNotExist)
		})
		return len(maps) == 0
	})
	t.Logf("%d processes, %d at once, in %v; the last ones were closed after %v, and all maps gone after %v",
		processes, atOnce, took, closed, time.Since(began))
	eventually(t, func() bool { return descriptors() == before })
	assert.Check(t, is.DeepEqual(bpfobjects.Held(t, os.Getpid()), held))
	assert.Check(t, is.Equal(p.Counts().Refused, uint64(0)))
	assert.Check(t, is.Equal(p.Counts().Opened, uint64(processes+1)))
	_, complaint = run(t, program, p.Path, "reopen", "1")
	assert.Equal(t, complaint, "")
}

// TestHostileNeighbour: while another process writes anything into its maps, and does what the
// kernel side accounts for, the accounts of this one are exact.
func TestHostileNeighbour(t *testing.T) {
	p, program := activitypeer.StartKernel(t, accounts.Names()...), client(t)
	hostile := exec.CommandContext(t.Context(), program, p.Path, "hostile", filepath.Join(t.TempDir(), "file"))
	in, err := hostile.StdinPipe()
	assert.NilError(t, err)
	out, err := hostile.StdoutPipe()
	assert.NilError(t, err)
	hostile.Stderr = os.Stderr
	assert.NilError(t, hostile.Start())
	said := json.NewDecoder(out)
	var line map[string]int
	assert.Check(t, said.Decode(&line))
	assert.Check(t, is.DeepEqual(line, map[string]int{"writable": 0}))

	wrong := "not measured"
	for n := 0; wrong != "" && n < attempts; n++ {
		t.Logf("attempt %d: %s", n+1, wrong)
		lines, complaint := run(t, program, p.Path, "exact")
		assert.Equal(t, complaint, "")
		wrong = ""
		for i, part := range []string{"cpu_ns", "blocked_timer_ns", "blocked_lock_ns", "blocked_task_ns"} {
			wrong = cmp.Or(wrong, exactPart(lines[i], part))
		}
	}
	assert.Check(t, is.Equal(wrong, ""))
	wrong = "not measured"
	for n := 0; wrong != "" && n < attempts; n++ {
		t.Logf("attempt %d: %s", n+1, wrong)
		lines, complaint := run(t, program, p.Path, "churn", "16", "500", "10")
		assert.Equal(t, complaint, "")
		wrong = exactTogether(lines[:len(lines)-1], lines[len(lines)-1])
	}
	assert.Check(t, is.Equal(wrong, ""))

	assert.Check(t, in.Close())
	clear(line)
	assert.Check(t, said.Decode(&line))
	assert.Check(t, hostile.Wait())
	assert.Check(t, line["rounds"] > 0)
	eventually(t, func() bool { return p.Counts().Processes == 0 })
	t.Logf("%d rounds, late: %d", line["rounds"], p.Counts().Late)
}

// eventually waits for what needs some time.
func eventually(t *testing.T, what func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !what(); time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(end))
	}
}
