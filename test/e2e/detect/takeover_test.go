package detect

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/cleanup"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/pins"
)

// TestTakeover: see provoke.Takeover.
func TestTakeover(t *testing.T) {
	needRoot(t)
	provoke.Takeover(t, true, false)
}

// badStore is a store of which one object at a time cannot be put, or not be removed.
type badStore struct {
	pins.Store
	put, remove string
}

var errBad = errors.New("the store is bad")

func (s *badStore) Put(name string, fd int) error {
	if name == s.put {
		return errBad
	}
	return s.Store.Put(name, fd)
}

func (s *badStore) Remove(name string) error {
	if name == s.remove {
		return errBad
	}
	return s.Store.Remove(name)
}

// successors are trackers that share a directory of pins, one after the other.
type successors struct {
	t     *testing.T
	dir   string
	store *badStore
	c     *camera
}

func pinDirectory(t *testing.T) *successors {
	t.Helper()
	needRoot(t)
	mount := t.TempDir()
	assert.NilError(t, unix.Mount("bpf", mount, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	cleanup.Unmount(t, mount)
	return &successors{t: t, dir: filepath.Join(mount, "pins")}
}

func (p *successors) load(list []rules.Rule, groups []string, ring int) {
	p.t.Helper()
	store, err := pins.OpenDir(p.dir)
	assert.NilError(p.t, err)
	p.store = &badStore{Store: store}
	before := p.c
	p.c = load(p.t, list, &tracker.Options{Groups: groups, Ring: ring, Tasks: 256, MaxTasks: 8192, Pins: p.store, Version: "test"})
	p.c.kernel.Leave(true) // as a daemon does once it watches
	if before != nil && p.c.kernel.Takeover().Taken {
		p.c.received = before.received // counters go on
	}
}

// links counts those that are pinned.
func (p *successors) links() (n int) {
	p.t.Helper()
	names, err := p.store.Names()
	assert.NilError(p.t, err)
	for _, name := range names {
		if strings.HasPrefix(name, "link-") {
			n++
		}
	}
	return n
}

// dies ends the tracker, and leaves what is pinned as a daemon that is killed does.
func (p *successors) dies() {
	p.t.Helper()
	assert.NilError(p.t, p.c.kernel.Close())
	assert.NilError(p.t, p.store.Close())
}

// complete reports whether what is pinned could be taken over.
func (p *successors) complete() bool {
	p.t.Helper()
	names, err := p.store.Names()
	assert.NilError(p.t, err)
	return slices.Contains(names, pins.Complete)
}

// ends ends the last tracker, which leaves nothing.
func (p *successors) ends() {
	p.t.Helper()
	p.c.kernel.Leave(false)
	assert.NilError(p.t, p.c.kernel.Close())
	left, err := os.ReadDir(p.dir)
	assert.Check(p.t, err == nil && len(left) == 0, "%v stay: %v", left, err)
	assert.NilError(p.t, p.store.Close())
}

// TestTakeoverReplaced: what was loaded again is what is taken over, with tables that have
// grown and hooks that were shed, and can be loaded again. Nothing that was replaced stays.
func TestTakeoverReplaced(t *testing.T) {
	p := pinDirectory(t)
	waits := rules.Rule{Name: "waits", Track: rules.OffCPU, Threshold: threshold, When: rules.Match{Comm: []string{"inj-offcpu*"}}}
	late := rules.Rule{Name: "late", Track: rules.OffCPU, Threshold: time.Hour, Timeout: time.Hour, When: rules.Match{Comm: []string{"nobody"}}}
	disk := rules.Rule{Name: "disk", Track: rules.Block, Threshold: time.Hour}
	groups, ring := []string{"sched", "block"}, 256<<10
	set := func(g []string, size int) {
		t.Helper()
		groups, ring = g, size
		assert.NilError(t, p.c.kernel.Configure(func(o *tracker.Options) { o.Groups, o.Ring = g, size }))
	}
	list := []rules.Rule{waits}
	p.load(list, groups, ring)
	p.c.kernel.Grow(abi.TableTasks)
	for _, more := range []rules.Rule{late, disk} {
		list = append(list, more)
		assert.NilError(t, p.c.kernel.Swap(list))
		set([]string{"sched", "block", "timer"}, 512<<10)
		set([]string{"sched", "block", "irq"}, 1<<20)
		before, err := p.store.Names()
		assert.NilError(t, err)
		for range 4 {
			set([]string{"sched", "block", "irq", "lock"}, 256<<10)
			set([]string{"sched", "block", "irq"}, 1<<20)
		}
		after, err := p.store.Names()
		slices.Sort(before)
		slices.Sort(after)
		assert.NilError(t, err)
		assert.DeepEqual(t, before, after)
		links := p.links()
		assert.NilError(t, p.c.kernel.Shed(&tracker.Shedding{Groups: []string{"irq"}}))
		assert.Check(t, p.links() < links && p.links() == len(p.c.kernel.Programs()), "%d links are pinned of %d programs, before: %d",
			p.links(), len(p.c.kernel.Programs()), links)
		p.dies()

		p.load(list, groups, ring)
		how := p.c.kernel.Takeover()
		assert.Assert(t, how.Taken, "%+v", how)
		tables, err := p.c.kernel.Tables()
		assert.NilError(t, err)
		assert.Check(t, tables[0].Grown == 1, "%+v", tables[0])
	}
	p.c.read()
	before := len(p.c.settle())
	injected := inject.Run(t, "offcpu", "all", "24", micros(over), "24", micros(under), "8")
	p.c.balance(t, threshold, injected, p.c.since(before), "waits").check(20, 20)
	p.ends()
}

// TestTakeoverBadStore: what is pinned is complete only if it is what runs. If that cannot
// be said, nothing changes; if it cannot be pinned, nothing is.
func TestTakeoverBadStore(t *testing.T) {
	p := pinDirectory(t)
	list := []rules.Rule{{Name: "idle", Track: rules.IRQ, Threshold: time.Hour}}
	change := func(g string) error {
		return p.c.kernel.Configure(func(o *tracker.Options) { o.Groups = []string{g} })
	}
	p.load(list, []string{"sched"}, 256<<10)
	p.store.remove = pins.Complete
	assert.ErrorIs(t, change("timer"), errBad)
	p.store.remove = ""
	assert.Check(t, p.complete() && !p.c.kernel.Plan().Groups["timer"], "it has changed")
	assert.NilError(t, p.c.kernel.Stop())
	assert.ErrorContains(t, change("timer"), "stopping")
	assert.Check(t, p.complete(), "what is as before cannot be taken over")
	p.dies()

	p.load(list, []string{"sched"}, 256<<10)
	assert.Assert(t, p.c.kernel.Takeover().Taken, "%+v", p.c.kernel.Takeover())
	p.store.put = "map-rodata"
	assert.NilError(t, change("timer"))
	assert.ErrorIs(t, p.c.kernel.PinError(), errBad)
	assert.Check(t, !p.c.kernel.Pinned() && !p.complete(), "what is pinned does not run")
	p.dies()
	left, err := os.ReadDir(p.dir)
	assert.Check(t, errors.Is(err, os.ErrNotExist), "%v stay: %v", left, err)
}

// TestTakeoverPairs: hooks of declared pairs outlive who attached them, with what they saw
// begin. Those of a rule that has changed, or of a file that is another one by now, do not,
// nor do any if they were about to change.
func TestTakeoverPairs(t *testing.T) {
	p := pinDirectory(t)
	program := filepath.Join(t.TempDir(), "sleeper")
	copyTo := func() { // as a package does
		t.Helper()
		text, err := os.ReadFile(inject.Build(t))
		assert.NilError(t, err)
		assert.NilError(t, os.WriteFile(program+".new", text, 0o700))
		assert.NilError(t, os.Rename(program+".new", program))
	}
	copyTo()
	list := func(key string) []rules.Rule {
		return pairRules(t, strings.NewReplacer("PROGRAM", program, "KEY", key).Replace(`
rules:
  - {name: call, track: pair, entry: "tracepoint:syscalls:sys_enter_clock_nanosleep", exit: "tracepoint:syscalls:sys_exit_clock_nanosleep",
     key: KEY, threshold: 100ms, when: {comm: inj-syscall}, labels: {clock: args.which_clock}}
  - {name: raw, track: pair, entry: "raw_tracepoint:sys_enter", exit: "raw_tracepoint:sys_exit", key: tid, threshold: 100ms, when: {comm: inj-syscall}}
  - {name: function, track: pair, entry: "uprobe:PROGRAM:inject_syscall_sleep", exit: "uretprobe:PROGRAM:inject_syscall_sleep",
     key: tid, threshold: 100ms, when: {comm: inj-syscall}}
`))
	}
	asleep := func() *inject.Held {
		t.Helper()
		h := inject.Hold(t, func(cmd *exec.Cmd) { cmd.Args[3] = program }, "syscall", "sleep", "1", micros(time.Second), "0", "1", "1")
		h.LetGo()
		p.c.eventually("it sleeps", func() error {
			calls, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", h.PID()))
			if slices.ContainsFunc(calls, func(path string) bool {
				text, _ := os.ReadFile(path) // the thread may have ended
				return strings.HasPrefix(string(text), strconv.Itoa(unix.SYS_CLOCK_NANOSLEEP)+" ")
			}) {
				return nil
			}
			return errors.Join(err, errors.New("it does not"))
		})
		return h
	}
	// told checks which rules have told of a sleep, each of them once.
	told := func(h *inject.Held, names ...string) {
		t.Helper()
		e := h.Wait()[0]
		list := slices.DeleteFunc(p.c.settle(), func(o *events.Outlier) bool {
			return o.Task.TID != e.TID || o.StartMono >= e.End || o.EndMono <= e.Start || o.DelayNS < time.Second.Nanoseconds()/2
		})
		for _, rule := range []string{"call", "raw", "function"} {
			want := 0
			if slices.Contains(names, rule) {
				want = 1
			}
			assert.Check(t, len(only(rule, list)) == want, "%s has told %d times of %+v, want %d", rule, len(only(rule, list)), e, want)
		}
	}
	p.load(list("tid"), nil, 0)
	before, err := p.store.Names()
	assert.NilError(t, err)
	h := asleep()
	p.dies()

	p.load(list("tid"), nil, 0)
	assert.Assert(t, p.c.kernel.Takeover().Taken, "%+v", p.c.kernel.Takeover())
	after, err := p.store.Names()
	assert.NilError(t, err)
	slices.Sort(before)
	slices.Sort(after)
	assert.DeepEqual(t, before, after)
	p.c.read()
	told(h, "call", "raw", "function")
	h = asleep()
	p.dies()

	copyTo()
	p.load(list("[tid, pid]"), nil, 0)
	assert.Assert(t, p.c.kernel.Takeover().Taken, "%+v", p.c.kernel.Takeover())
	assert.Check(t, p.links() == len(p.c.kernel.Programs()), "%d links are pinned of %d programs", p.links(), len(p.c.kernel.Programs()))
	p.c.read()
	told(h, "raw")
	told(asleep(), "call", "raw", "function")
	h = asleep()
	assert.NilError(t, p.store.Remove("state-pairs")) // as while a reload is at work
	p.dies()

	p.load(list("[tid, pid]"), nil, 0)
	assert.Assert(t, p.c.kernel.Takeover().Taken, "%+v", p.c.kernel.Takeover())
	p.c.read()
	told(h)
	told(asleep(), "call", "raw", "function")
	p.ends()
}
