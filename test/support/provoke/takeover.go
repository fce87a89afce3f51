package provoke

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/cpus"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/pins"
)

// functionPairs are pairs of functions that a task is in while it sleeps.
const functionPairs = `
rules:
  - {name: probed, track: pair, entry: "kprobe:hrtimer_nanosleep", exit: "kretprobe:hrtimer_nanosleep", key: tid, threshold: 300ms, when: {pid: %[1]d}}
  - {name: traced, track: pair, entry: "fentry:hrtimer_nanosleep", exit: "fexit:hrtimer_nanosleep", key: tid, threshold: 300ms, when: {pid: %[1]d}}
`

// Takeover tests that a kernel side that is left in a BPF file system is taken over, with
// what is pending, hooks that were shed and, if grow is set, a table that has grown; also a
// declared pair of functions of the kernel, if these can be attached to. The test's own
// process is the victim. If others is set, the second one needs other programs.
func Takeover(t *testing.T, grow, functions, others bool) {
	mount := t.TempDir()
	assert.NilError(t, unix.Mount("bpf", mount, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	t.Cleanup(func() { assert.Check(t, unix.Unmount(mount, 0)) })
	dir := filepath.Join(mount, "pins")
	list := []rules.Rule{{
		Name: "asleep", Track: rules.OffCPU, Threshold: 300 * time.Millisecond, When: rules.Match{PID: []uint32{uint32(os.Getpid())}, State: []rules.State{rules.Interruptible}},
	}}
	if functions {
		pairs, err := rules.Parse(t.Name(), fmt.Appendf(nil, functionPairs, os.Getpid()), &rules.LocalMachine{})
		assert.NilError(t, err)
		list = append(list, pairs...)
	}
	groups := []string{"sched", "block"}
	load := func() (*tracker.Tracker, pins.Store) {
		store, err := pins.OpenDir(dir)
		assert.NilError(t, err)
		k, err := tracker.New(list, &tracker.Options{
			Groups: groups, Ring: 256 << 10, Tasks: 256, MaxTasks: 8192, TrackSelf: true, Pins: store, Version: "test",
		})
		assert.NilError(t, err)
		assert.NilError(t, k.Attach())
		assert.Check(t, len(k.Inactive()) == 0, "%v", k.Inactive())
		return k, store
	}
	first, store := load()
	programs, records := len(first.Programs()), first.Recorded()
	if grow {
		first.Grow(abi.TableTasks)
	}
	before, err := first.Tables()
	assert.NilError(t, err)
	assert.Check(t, (before[0].Grown == 1) == grow, "%+v", before[0])
	assert.NilError(t, first.Shed(&tracker.Shedding{Groups: []string{"block"}}))
	assert.Check(t, len(first.Programs()) < programs, "nothing was shed")

	var began, ended uint64
	slept := make(chan struct{})
	go func() {
		defer close(slept)
		runtime.LockOSThread() // and never unlocked: the thread ends here
		assert.Check(t, cpus.BlockSignals())
		began = linux.Monotonic()
		pause := unix.NsecToTimespec((time.Second).Nanoseconds())
		assert.Check(t, unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &pause, nil))
		ended = linux.Monotonic()
	}()
	time.Sleep(100 * time.Millisecond)
	first.Leave(true)
	assert.NilError(t, first.Close())
	assert.NilError(t, store.Close())
	<-slept

	if others {
		groups = append(groups, "workqueue")
	}
	second, store := load()
	how := second.Takeover()
	assert.Check(t, how.Taken && how.Version == "test" && how.Gap > 0 && how.Lost == 0, "%+v", how)
	assert.Check(t, (how.Programs != "") == others && len(how.Begun) == 0, "%+v", how)
	assert.Check(t, (len(second.Programs()) > programs) == others, "%v", second.Programs())
	tables, err := second.Tables()
	assert.NilError(t, err)
	assert.Check(t, tables[0].Grown == before[0].Grown && tables[0].Slots == before[0].Slots, "%+v, was %+v", tables[0], before[0])
	for cpu, c := range second.Recorded() {
		assert.Check(t, c.Recorded >= records[cpu].Recorded, "CPU %d: its ring began anew", cpu)
	}
	missing := map[string]bool{}
	for i := range list {
		missing[list[i].Name] = true
	}
	for len(missing) > 0 {
		o, err := second.Read()
		assert.NilError(t, err)
		if o.StartMono > began && o.EndMono < ended && uint64(o.DelayNS) > (ended-began)/2 {
			t.Logf("%s: asleep for %s of %s", o.Rule, time.Duration(o.DelayNS), time.Duration(ended-began))
			delete(missing, o.Rule) // others are of the runtime's own threads
		}
	}
	assert.Check(t, second.Inherited() > 0)
	second.Leave(false)
	assert.NilError(t, second.Close())
	left, err := os.ReadDir(dir)
	assert.Check(t, err == nil && len(left) == 0, "%v stay: %v", left, err)
	assert.NilError(t, store.Close())
}
