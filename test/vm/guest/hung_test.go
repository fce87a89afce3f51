package guest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/vm/boot"
	"github.com/tailcam/tailcam/tracker/events"
)

// setting changes a setting of the kernel until the end of the test.
func setting(t *testing.T, name, value string) {
	t.Helper()
	file := filepath.Join("/proc/sys/kernel", name)
	before, err := os.ReadFile(file)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(file, []byte(value), 0))
	t.Cleanup(func() { assert.Check(t, os.WriteFile(file, bytes.TrimSpace(before), 0)) })
}

// fired waits for the verdict on an outlier of a rule.
func (d *guestDaemon) fired(t *testing.T, rule string) (found events.Outlier) {
	t.Helper()
	d.await(t, "an outlier of "+rule+" is explained", func() bool {
		for _, o := range d.events(t) {
			if o.Rule == rule && o.Explained != nil {
				found = o
				return true
			}
		}
		return false
	})
	t.Logf("%s: %s; %s", rule, found.Trigger.Reason, found.Explained.Verdict)
	return found
}

// deaf is a file system whose file is never found, and not missing either, until it is released.
type deaf struct {
	fuse.RawFileSystem
	asked, released chan struct{}
}

const deafFile = "file"

// Lookup implements fuse.RawFileSystem.
func (d *deaf) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string, _ *fuse.EntryOut) fuse.Status {
	if name == deafFile {
		close(d.asked)
		<-d.released
	}
	return fuse.ENOENT
}

// TestTriggerHungTask: a task that a file system which does not answer keeps from its own death
// is told by the kernel's detector of hung tasks: the rule fires for that task, and its last
// seconds are explained.
func TestTriggerHungTask(t *testing.T) {
	inGuest(t)
	const variable = "TEST_HUNG_PATH"
	if path := os.Getenv(variable); path != "" {
		_, err := os.Stat(path)
		t.Fatal(err) // the file system has answered
	}
	setting(t, "hung_task_timeout_secs", "2")
	d := startDaemon(t, "rules:\n  - {name: hung, track: trigger, on: {kmsg: [hung_task]}, snapshot: {after: 10ms}}\n"+
		"  - {name: locked, track: trigger, on: {kmsg: [soft_lockup]}}\n")
	dir := t.TempDir()
	fs := &deaf{fuse.NewDefaultRawFileSystem(), make(chan struct{}), make(chan struct{})}
	server, err := fuse.NewServer(fs, dir, &fuse.MountOptions{DirectMountStrict: true, FsName: "deaf"})
	assert.NilError(t, err)
	go server.Serve()
	assert.NilError(t, server.WaitMount())

	victim := exec.Command("/proc/self/exe", "-test.run=^TestTriggerHungTask$")
	victim.Env = append(os.Environ(), variable+"="+filepath.Join(dir, deafFile))
	assert.NilError(t, victim.Start())
	t.Cleanup(func() {
		close(fs.released)
		_ = victim.Wait() // it was killed
		assert.Check(t, server.Unmount())
	})
	<-fs.asked
	assert.NilError(t, victim.Process.Kill()) // which it cannot be, from now on
	stuck := 0
	d.await(t, "all of the victim has ended but the thread that cannot", func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", victim.Process.Pid))
		assert.NilError(t, err)
		left := 0
		for _, task := range tasks {
			text, err := os.ReadFile(filepath.Join(task, "stat"))
			if _, state, ok := strings.Cut(string(text), ") "); err == nil && ok && state[0] != 'Z' && state[0] != 'X' {
				left++
				stuck, err = strconv.Atoi(filepath.Base(task))
				assert.NilError(t, err)
			}
		}
		return left == 1
	})
	o := d.fired(t, "hung")
	assert.Check(t, o.Task.TID == stuck && o.State == "uninterruptible", "%+v, %s, want thread %d", o.Task, o.State, stuck)
	assert.Check(t, strings.HasPrefix(o.Trigger.Reason, fmt.Sprintf("INFO: task %s:%d ", o.Task.Comm, stuck)), "%q", o.Trigger.Reason)
	assert.Check(t, o.DelayNS >= 2e9 && strings.Contains(o.Explained.Verdict, strconv.Itoa(stuck)), "%d ns: %q", o.DelayNS, o.Explained.Verdict)
	for _, o := range d.events(t) {
		assert.Check(t, o.Rule == "hung" && o.Task.TID == stuck, "%+v", o)
	}
}

// lockup has whoever starts a program of that name hold a CPU for so long, in the kernel and
// without being preempted.
func lockup(t *testing.T, comm string, length time.Duration) {
	t.Helper()
	const size = 16 << 20 // of memory that is copied, slowly enough
	memory, err := ebpf.NewMap(&ebpf.MapSpec{Name: "lockup", Type: ebpf.Array, KeySize: 4, ValueSize: 2 * size, MaxEntries: 1})
	assert.NilError(t, err)
	t.Cleanup(func() { memory.Close() })
	var name [16]byte
	copy(name[:], comm)
	word := func(at int) int64 {
		var v int64
		for i := range 8 {
			v |= int64(name[at+i]) << (8 * i)
		}
		return v
	}
	code := asm.Instructions{
		asm.Mov.Imm(asm.R1, 0), // 6.1 sets nothing behind the end of the name
		asm.StoreMem(asm.R10, -16, asm.R1, asm.DWord),
		asm.StoreMem(asm.R10, -8, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R10),
		asm.Add.Imm(asm.R1, -16),
		asm.Mov.Imm(asm.R2, 16),
		asm.FnGetCurrentComm.Call(),
		asm.LoadMem(asm.R1, asm.R10, -16, asm.DWord),
		asm.LoadImm(asm.R2, word(0), asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, "end"),
		asm.LoadMem(asm.R1, asm.R10, -8, asm.DWord),
		asm.LoadImm(asm.R2, word(8), asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, "end"),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.Mov.Imm(asm.R7, 0),
		asm.LoadMapValue(asm.R1, memory.FD(), 0).WithSymbol("again"),
		asm.Mov.Imm(asm.R2, size),
		asm.LoadMapValue(asm.R3, memory.FD(), size),
		asm.FnProbeReadKernel.Call(),
		asm.FnKtimeGetNs.Call(),
		asm.Sub.Reg(asm.R0, asm.R6),
		asm.LoadImm(asm.R1, length.Nanoseconds(), asm.DWord),
		asm.JGT.Reg(asm.R0, asm.R1, "end"),
		asm.Add.Imm(asm.R7, 1),
		asm.JLT.Imm(asm.R7, 4000, "again"),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "lockup", Type: ebpf.RawTracepoint, License: "Dual BSD/GPL", Instructions: code})
	assert.NilError(t, err, "load: %+v", err)
	t.Cleanup(func() { prog.Close() })
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exec", Program: prog})
	assert.NilError(t, err)
	t.Cleanup(func() { l.Close() })
}

// TestTriggerSoftLockup: a task that holds a CPU in the kernel is told by the kernel's watchdog:
// the rule fires for that task. The harness knows that this one is provoked.
func TestTriggerSoftLockup(t *testing.T) {
	inGuest(t)
	setting(t, "watchdog_thresh", "1") // twice that is a lockup
	d := startDaemon(t, "rules:\n  - {name: locked, track: trigger, on: {kmsg: [soft_lockup]}, snapshot: {after: 10ms}}\n"+
		"  - {name: hung, track: trigger, on: {kmsg: [hung_task]}}\n")
	assert.NilError(t, os.WriteFile(boot.LockupProvoked, nil, 0o600))
	lockup(t, boot.LockupComm, 6*time.Second)
	program := filepath.Join(t.TempDir(), boot.LockupComm)
	assert.NilError(t, os.Symlink("/proc/self/exe", program))
	victim := exec.Command(program, "-test.run=^TestKernel$")
	start := time.Now()
	out, err := victim.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	t.Logf("a CPU was held for about %s", time.Since(start).Round(100*time.Millisecond))
	log := make([]byte, 1<<20)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, log)
	assert.NilError(t, err)
	if !bytes.Contains(log[:n], []byte("soft lockup")) {
		t.Skip("the watchdog of this kernel told of no lockup")
	}
	o := d.fired(t, "locked")
	assert.Check(t, o.Task.Comm == boot.LockupComm && o.Task.TID == victim.Process.Pid, "%+v, want %d", o.Task, victim.Process.Pid)
	assert.Check(t, strings.HasPrefix(o.Trigger.Reason, "watchdog: BUG: soft lockup - CPU#"), "%q", o.Trigger.Reason)
	assert.Check(t, o.DelayNS >= 2e9, "%d ns", o.DelayNS)
	for _, o := range d.events(t) {
		assert.Check(t, o.Rule == "locked", "%+v", o)
	}
}
