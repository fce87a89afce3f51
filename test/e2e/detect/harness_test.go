package detect

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/internal/unwind"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/install"
)

// patience is how long anything that has to come may take. Nothing waits for
// it where all is well.
const patience = 20 * time.Second

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs, makes real-time threads")
	}
}

// camera is a tracker that is attached and read.
type camera struct {
	t       *testing.T
	kernel  *tracker.Tracker
	hidden  *hidden
	started bool
	done    chan error // ends when Read does

	names     *symbols.Resolver
	unwinding sync.WaitGroup
	mu        sync.Mutex
	outliers  []*events.Outlier
	received  map[string]uint64 // by rule
	frames    map[uint64]string // of the injectors, whose addresses never change
}

// watch loads, attaches and reads. It is taken down at the end of the test.
func watch(t *testing.T, list []rules.Rule, opts *tracker.Options) *camera {
	t.Helper()
	c := load(t, list, opts)
	c.read()
	return c
}

// load is watch without a reader.
func load(t *testing.T, list []rules.Rule, opts *tracker.Options) *camera {
	t.Helper()
	needRoot(t)
	if opts == nil {
		opts = &tracker.Options{}
	}
	if opts.Cgroups == nil {
		table := process.New(nil)
		t.Cleanup(func() { table.Close() })
		opts.Cgroups = host{table}
	}
	witness := countHidden(t)
	kernel, err := tracker.New(list, opts)
	assert.NilError(t, err)
	c := &camera{
		t: t, kernel: kernel, hidden: witness, done: make(chan error, 1), names: symbols.New(&symbols.Options{Concurrent: 64}),
		received: map[string]uint64{}, frames: map[uint64]string{},
	}
	t.Cleanup(c.close)
	assert.Assert(t, len(kernel.Inactive()) == 0, "this kernel does not serve %v", kernel.Inactive())
	assert.NilError(t, kernel.Attach())
	return c
}

// host answers from the process table.
type host struct{ *process.Table }

func (h host) PlaceOf(path string) install.CgroupPlace {
	return install.CgroupPlace{Place: rules.Place{Cgroup: path, Unit: process.PlaceOf(path).Unit}}
}

func (h host) WalkCgroups(visit func(id uint64, path string)) error {
	err := h.Walk(visit)
	if errors.Is(err, process.ErrNoCgroup2) {
		return nil
	}
	return err
}

func (c *camera) close() {
	assert.Check(c.t, c.kernel.Stop())
	if c.started {
		assert.Check(c.t, is.ErrorIs(<-c.done, os.ErrClosed), "reading ended with")
	}
	assert.Check(c.t, c.kernel.Close())
}

func (c *camera) read() {
	c.started = true
	go func() {
		for {
			o, err := c.kernel.Read()
			if err != nil {
				c.done <- err
				return
			}
			// Named at once: the task may be gone a moment later. Not here: the copy of its
			// stack may come next.
			c.unwinding.Go(func() { c.unwind(o) })
			c.mu.Lock()
			c.outliers = append(c.outliers, o)
			c.received[o.Rule]++
			c.mu.Unlock()
		}
	}()
}

// unwind does in this process what helpers do for the daemon.
func (c *camera) unwind(o *events.Outlier) {
	if o.User == nil {
		return
	}
	m := o.User.Memory.Wait(time.Second)
	base, data := m.Base, m.Data
	exact := data != nil
	if !exact {
		start := o.User.StartNS / uint64(time.Second/100)
		base = o.User.Registers[abi.UserSp]
		data, exact, _ = process.Stack(o.Task.PID, o.Task.TID, start, base, o.User.Switches, make([]byte, 64<<10))
	}
	t := unwind.NewThread(unwind.Native, o.User.Registers[:], o.User.Narrow, unwind.Memory{Base: base, Data: data})
	s, _ := c.names.Unwind(o.Task.PID, t) // as far as it goes
	c.mu.Lock()
	defer c.mu.Unlock()
	o.Stacks.Approximate, o.Raw.User = !exact, s.Frames
	o.Stacks.User = c.name(o.Task.PID, o.Raw.User)
}

// name names user addresses. The injectors are linked to fixed addresses, so a
// name that was found for one of their processes holds for a later one.
func (c *camera) name(pid int, addrs []uint64) []string {
	out := c.names.User(pid, addrs).Frames
	for i, a := range addrs {
		if !strings.HasPrefix(out[i], "[unknown]") {
			c.frames[a] = out[i]
		} else if name := c.frames[a]; name != "" && a < 1<<24 {
			out[i] = name
		}
	}
	return out
}

// settle waits until everything that the kernel side has counted as sent has
// been read, and returns it. Nothing may have been lost on the way.
func (c *camera) settle() []*events.Outlier {
	c.t.Helper()
	c.arrived()
	c.unwinding.Wait()
	k := c.counters()
	for name, r := range k.Rules {
		assert.Check(c.t, r.RingFull <= 0,
			"rule %s: %d outliers lost, as the ring buffer was full", name, r.RingFull)
	}
	for track, n := range k.Trackers {
		assert.Check(c.t, n.TableFull <= 0,
			"%s: %d entries lost, as the pending table was full", track, n.TableFull)
	}
	for program, n := range k.Missed {
		c.t.Errorf("the kernel has skipped program %s %d times", program, n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.outliers {
		if o.DelayNS < o.ThresholdNS || uint64(o.DelayNS) != o.EndMono-o.StartMono {
			c.t.Errorf("reported after %v, from %d to %d, with a limit of %v: %+v", time.Duration(o.DelayNS), o.StartMono, o.EndMono, time.Duration(o.ThresholdNS), o)
		}
	}
	return c.outliers
}

// arrived waits until what was read is what was counted, for every rule. What
// the daemon has to decide is counted when it is read only: see last.
func (c *camera) arrived() {
	c.t.Helper()
	c.eventually("everything that was counted is read", func() error {
		k := c.counters()
		c.mu.Lock()
		defer c.mu.Unlock()
		for name, r := range k.Rules {
			if c.received[name] != r.Outliers {
				return fmt.Errorf("rule %s: read %d, counted %d", name, c.received[name], r.Outliers)
			}
		}
		return nil
	})
}

func (c *camera) counters() *tracker.Counters {
	c.t.Helper()
	k, err := c.kernel.Counters()
	assert.NilError(c.t, err)
	return k
}

// unseen is how many context switches, wake-ups and completions of requests the
// kernel has not told of: there are machines on which no tracer is told of what
// some threads do, nor of what interrupts them. On most it is zero. What tailcam
// says of it is believed only as far as an independent tracer agrees. Only the
// sched trackers notice; see neverSlow.
func (c *camera) unseen() int {
	c.t.Helper()
	k := c.counters()
	if k.Unseen == 0 {
		return 0
	}
	switches, requests := c.hidden.soFar() // after what it bounds
	replaced := k.Trackers[rules.Block].Replaced
	if k.Unseen > switches || replaced > requests {
		c.t.Errorf("tailcam says that %d switches and wake-ups and %d completions were left out, another tracer %d and %d",
			k.Unseen, replaced, switches, requests)
	}
	return int(min(k.Unseen, switches) + min(replaced, requests))
}

// pardons returns a judge of faults, which forgives as many of each thread, or of
// all threads of each process, as the kernel has hidden events of it. It goes by
// the tests' own tracer alone, but only where tailcam has noticed, too.
func (c *camera) pardons() (thread, process func(id int) bool) {
	c.t.Helper()
	some := c.unseen() > 0
	judge := func(hidden func(id int) int) func(id int) bool {
		faults := map[int]int{}
		return func(id int) bool {
			faults[id]++
			return some && faults[id] <= hidden(id)
		}
	}
	return judge(func(tid int) int { n, _ := c.hidden.of(tid); return n }),
		judge(func(pid int) int { _, n := c.hidden.of(pid); return n })
}

// unseenOf is unseen of the processes that injected this.
func (c *camera) unseenOf(injected []inject.Event) (n int) {
	c.t.Helper()
	if c.unseen() == 0 {
		return 0
	}
	pids := map[int]bool{}
	for _, e := range injected {
		if !pids[e.PID] {
			_, more := c.hidden.of(e.PID)
			n += more
		}
		pids[e.PID] = true
	}
	return n
}

// neverSlow is a rule that makes a camera without sched trackers notice too.
var neverSlow = rules.Rule{Name: "never", Track: rules.Wakeup, Threshold: 24 * time.Hour}

// eventually asks until the answer is nil.
func (c *camera) eventually(what string, ask func() error) {
	c.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if err = ask(); err == nil {
			return
		}
	}
	c.t.Fatalf("%s: not within %v: %v", what, patience, err)
}

// since returns what was read after the first n.
func (c *camera) since(n int) []*events.Outlier { return c.settle()[n:] }

// parsed reads the events that a program printed.
func parsed(t *testing.T, out []byte) []inject.Event {
	t.Helper()
	list, err := inject.Parse(out)
	assert.NilError(t, err)
	return list
}

// hold starts an injector up to the moment before it becomes one.
func hold(t *testing.T, args ...string) *inject.Held {
	t.Helper()
	return inject.Hold(t, nil, args...)
}

func pidOf(h *inject.Held) []uint32 { return []uint32{uint32(h.PID())} }

// pending are the keys of a table that are pending.
func (c *camera) pending(track rules.Track) []uint64 {
	c.t.Helper()
	keys, err := c.kernel.PendingKeys(track)
	assert.NilError(c.t, err)
	return keys
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

func calls(t *testing.T, names ...string) []int {
	t.Helper()
	var list []int
	for _, name := range names {
		nr, ok := rules.SyscallNumber(name)
		assert.Assert(t, ok, "no system call %s here", name)
		list = append(list, nr)
	}
	return list
}
