package detect

import (
	"errors"
	"fmt"
	"io"
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
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/child"
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
	provoke.Takeover(t, true, false, false)
}

// TestTakeoverPrograms: the same by a daemon that needs other programs.
func TestTakeoverPrograms(t *testing.T) {
	needRoot(t)
	provoke.Takeover(t, true, false, true)
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

// stepSource is a program that answers each byte, and waits for the next one in a function.
const stepSource = `#include <unistd.h>
__attribute__((noinline)) int step(char *c) { return read(0, c, 1) == 1; }
int main(void) { char c; while (step(&c)) if (write(1, &c, 1) != 1) return 1; return 0; }
`

// step is such a program that waits for its first byte.
type step struct {
	*exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

// startStep returns when it waits.
func (p *successors) startStep(program string) *step {
	p.t.Helper()
	s := &step{Cmd: exec.CommandContext(p.t.Context(), program)}
	var err error
	s.in, err = s.StdinPipe()
	assert.NilError(p.t, err)
	s.out, err = s.StdoutPipe()
	assert.NilError(p.t, err)
	assert.NilError(p.t, s.Start())
	p.t.Cleanup(func() { _ = s.in.Close(); _ = s.Wait() })
	p.c.eventually("it waits", func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", s.Process.Pid))
		if err == nil && !strings.HasPrefix(string(text), strconv.Itoa(unix.SYS_READ)+" 0x0 ") {
			err = fmt.Errorf("it is at %s", text)
		}
		return err
	})
	return s
}

// told ends the wait, and checks which rules tell of it, each of them once.
func (p *successors) told(s *step, names ...string) {
	p.t.Helper()
	ended := linux.Monotonic()
	_, err := s.in.Write([]byte("x"))
	assert.NilError(p.t, err)
	_, err = io.ReadFull(s.out, make([]byte, 1))
	assert.NilError(p.t, err)
	list := slices.DeleteFunc(slices.Clone(p.c.settle()), func(o *events.Outlier) bool {
		return o.Task.PID != s.Process.Pid || o.StartMono >= ended || o.EndMono < ended
	})
	for _, rule := range []string{"call", "raw", "function"} {
		want := 0
		if slices.Contains(names, rule) {
			want = 1
		}
		assert.Check(p.t, len(only(rule, list)) == want, "%s has told %d times, want %d", rule, len(only(rule, list)), want)
	}
}

// TestTakeoverPairs: hooks of declared pairs outlive who attached them, with what they saw
// begin, also if the next one needs other programs. Those of a rule that has changed, or of a
// file that is another one by now, do not, nor do any if they were about to change.
func TestTakeoverPairs(t *testing.T) {
	p := pinDirectory(t)
	source, program := filepath.Join(t.TempDir(), "step.c"), filepath.Join(t.TempDir(), "step")
	assert.NilError(t, os.WriteFile(source, []byte(stepSource), 0o600))
	replace := func() { // as a package does
		t.Helper()
		child.Compile(t, "gcc", "-O1", "-static", "-o", program+".new", source)
		assert.NilError(t, os.Rename(program+".new", program))
	}
	replace()
	more := "" // rules
	list := func(key string) []rules.Rule {
		return pairRules(t, strings.NewReplacer("PROGRAM", program, "KEY", key, "READ", strconv.Itoa(unix.SYS_READ)).Replace(`
rules:
  - {name: call, track: pair, entry: "tracepoint:syscalls:sys_enter_read", exit: "tracepoint:syscalls:sys_exit_read",
     key: KEY, threshold: 1us, when: {comm: step}, labels: {file: args.fd}}
  - {name: raw, track: pair, entry: "raw_tracepoint:sys_enter", entry_when: args.id == READ, exit: "raw_tracepoint:sys_exit",
     key: tid, threshold: 1us, when: {comm: step}}
  - {name: function, track: pair, entry: "uprobe:PROGRAM:step", exit: "uretprobe:PROGRAM:step",
     key: tid, threshold: 1us, when: {comm: step}}
`)+more)
	}
	load := func(key string) {
		t.Helper()
		p.load(list(key), nil, 0)
		p.c.read()
	}
	names := func() []string {
		t.Helper()
		list, err := p.store.Names()
		assert.NilError(t, err)
		slices.Sort(list)
		return list
	}
	load("tid")
	before := names()
	s := p.startStep(program)
	p.dies()

	load("tid")
	assert.Assert(t, p.c.kernel.Takeover().Taken, "%+v", p.c.kernel.Takeover())
	assert.DeepEqual(t, before, names())
	p.told(s, "call", "raw", "function")
	s = p.startStep(program)
	p.dies()

	replace()
	load("[tid, pid]")
	assert.Assert(t, p.c.kernel.Takeover().Taken, "%+v", p.c.kernel.Takeover())
	assert.Check(t, p.links() == len(p.c.kernel.Programs()), "%d links are pinned of %d programs", p.links(), len(p.c.kernel.Programs()))
	p.told(s, "raw")
	p.told(p.startStep(program), "call", "raw", "function")
	s = p.startStep(program)
	assert.NilError(t, p.store.Remove("state-pairs")) // as while a reload is at work
	p.dies()

	load("[tid, pid]")
	assert.Assert(t, p.c.kernel.Takeover().Taken, "%+v", p.c.kernel.Takeover())
	p.told(s)
	p.told(p.startStep(program), "call", "raw", "function")

	// Programs that serve another tracker, too, and then the old ones again.
	for _, more = range []string{"  - {name: late, track: wakeup, threshold: 10s}\n", ""} {
		s = p.startStep(program)
		p.dies()
		load("[tid, pid]")
		how := p.c.kernel.Takeover()
		assert.Assert(t, how.Taken && strings.Contains(how.Programs, "track_"), "%+v", how)
		p.told(s, "call", "raw", "function")
		p.told(p.startStep(program), "call", "raw", "function")
		s = p.startStep(program)
		p.dies()
		load("[tid, pid]")
		how = p.c.kernel.Takeover()
		assert.Assert(t, how.Taken && how.Programs == "", "%+v", how)
		p.told(s, "call", "raw", "function")
	}
	p.ends()
}
