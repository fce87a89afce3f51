package declared_test

import (
	"debug/elf"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/activities"
	"github.com/tailcam/tailcam/internal/activities/declared"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/pair"
)

// begin and end are where the hooks of these tests are, in this program itself. With nosplit,
// as a function of Go that needs a larger stack begins twice.
//
//go:noinline
//go:nosplit
func begin(n int) { did.Add(int64(n)) }

//go:noinline
//go:nosplit
func end(n int) { did.Add(-int64(n)) }

//go:noinline
//go:nosplit
func give(n int) { did.Store(int64(n)) }

// did has begin, end and give do something.
var did atomic.Int64

const patience = 10 * time.Second

// programs finds the functions of this program, whose symbols go test leaves out.
type programs struct{ pair.OwnPrograms }

func (programs) Function(path, name string) (offset, size uint64, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	fn, ok := map[string]func(int){"begin": begin, "end": end, "give": give}[name[strings.LastIndex(name, ".")+1:]]
	if !ok {
		return 0, 0, fmt.Errorf("unknown function %q", name)
	}
	at := uint64(reflect.ValueOf(fn).Pointer())
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && at >= p.Vaddr && at-p.Vaddr < p.Filesz {
			return at - p.Vaddr + p.Off, 1, nil
		}
	}
	return 0, 0, fmt.Errorf("%s is not in the code of %s", name, path)
}

// watch loads the kernel side with a rule for the hooks of this program.
func watch(t *testing.T, more string) (*activities.Activities, *declared.Set) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	a, err := activities.New(nil)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, a.Close()) })
	entry, err := a.OpenDeclared()
	assert.NilError(t, err)
	set, err := declared.New(&declared.Kernel{Maps: a.Maps(), Owner: entry.Owner()}, programs{}, nil)
	assert.NilError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { assert.Check(t, set.Run()) })
	t.Cleanup(func() {
		assert.Check(t, set.Close())
		wg.Wait()
	})
	none := set.Use(own(t, more))
	assert.Assert(t, len(none) == 0, "%v", none)
	return a, set
}

// own is the rule for the hooks of this program.
func own(t *testing.T, more string) []rules.Rule {
	t.Helper()
	exe, err := os.Executable()
	assert.NilError(t, err)
	const in = "github.com/tailcam/tailcam/internal/activities/declared_test"
	yaml := fmt.Sprintf("rules: [{name: r, track: pair, threshold: 1h, key: [tid], activity: work%s, "+
		"entry: 'uprobe:%s:%s.begin', exit: 'uprobe:%s:%s.end', cancel: 'uprobe:%s:%s.give'}]", more, exe, in, exe, in, exe, in)
	list, err := rules.Parse("test", []byte(yaml), &rules.LocalMachine{})
	assert.NilError(t, err)
	return list
}

// settle returns what has ended, n of them or more.
func settle(t *testing.T, set *declared.Set, n int) []declared.Ended {
	t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if got := set.Ended(); len(got) >= n {
			return got
		}
		assert.Assert(t, time.Now().Before(limit), "%d have ended, want %d", len(set.Ended()), n)
	}
}

func totals(t *testing.T, set *declared.Set) declared.Totals {
	t.Helper()
	list, err := set.Totals()
	assert.NilError(t, err)
	assert.Assert(t, len(list) == 1, "%+v", list)
	return list[0]
}

func spin(d time.Duration) {
	for until := linux.Monotonic() + uint64(d); linux.Monotonic() < until; {
	}
}

func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, &ts) == unix.EINTR {
	}
}

// threadCPU is how long the calling thread has run, less interrupts and stolen time.
func threadCPU() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// near is whether a time is within 1 % or 50 us of what it should be, or of up to what it could be.
func near(got uint64, least, most time.Duration) bool {
	slack := max(50*time.Microsecond, most/100)
	return time.Duration(got) >= least-slack && time.Duration(got) <= most+slack
}

// What a thread does between the hooks lands in its account, part by part, and what it does
// before and after does not.
func TestParts(t *testing.T) {
	_, set := watch(t, "")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spin(20 * time.Millisecond)
	sleep(20 * time.Millisecond)
	outside := linux.Monotonic()
	begin(1)
	inside, cpuInside := linux.Monotonic(), threadCPU()
	spin(30 * time.Millisecond)
	slept := linux.Monotonic()
	sleep(40 * time.Millisecond)
	slept = linux.Monotonic() - slept
	spin(10 * time.Millisecond)
	cpuLeast, least := threadCPU()-cpuInside, linux.Monotonic()-inside
	end(1)
	most := linux.Monotonic() - outside
	spin(20 * time.Millisecond)
	e := settle(t, set, 1)[0]
	v := &e.Values
	t.Logf("wall %v, cpu %v, runnable %v, timer %v of %v, unexplained %v", time.Duration(e.WallNS()), time.Duration(v[abi.ActivityCpuNs]),
		time.Duration(v[abi.ActivityRunnableNs]), time.Duration(v[abi.ActivityBlockedTimerNs]), time.Duration(slept), time.Duration(e.UnexplainedNS()))
	assert.Check(t, e.Activity == "work" && e.Rule == "r" && e.PID == os.Getpid() && e.TID == unix.Gettid(), "%+v", e)
	assert.Check(t, near(e.WallNS(), time.Duration(least), time.Duration(most)), "wall %d, want %d to %d", e.WallNS(), least, most)
	assert.Check(t, near(v[abi.ActivityCpuNs], cpuLeast, time.Duration(most)), "cpu %d, want %d", v[abi.ActivityCpuNs], cpuLeast)
	waits := time.Duration(v[abi.ActivityBlockedTimerNs])
	assert.Check(t, waits >= 40*time.Millisecond && waits <= time.Duration(slept), "timer %v of %v", waits, slept)
	// The clock of the thread itself stands still while an interrupt, the machine below or a thread
	// that the kernel keeps from tracers has its CPU. That, and no more, is unexplained.
	elsewhere := time.Duration(most) - cpuLeast - waits - time.Duration(v[abi.ActivityRunnableNs])
	assert.Check(t, time.Duration(e.UnexplainedNS()) <= max(0, elsewhere)+50*time.Microsecond, "unexplained %d of %v elsewhere", e.UnexplainedNS(), elsewhere)
	sum := totals(t, set)
	assert.Check(t, sum.Wall.Count == 1 && sum.Wall.Sum == e.WallNS() && sum.Values == e.Values, "%+v, want %+v", sum.Values, e.Values)
}

// Many threads at once: none is missed, and the sums are those of all threads.
func TestManyThreads(t *testing.T) {
	const threads, each = 64, 50
	_, set := watch(t, "")
	runtime.LockOSThread()
	begin(0) // two that find the process unknown at once may both find it busy: counted as refused
	end(0)
	runtime.UnlockOSThread()
	before := totals(t, set).Wall.Sum
	var wg sync.WaitGroup
	var mu sync.Mutex
	var least, most, cpuLeast time.Duration
	for range threads {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for i := range each {
				outside := linux.Monotonic()
				begin(i)
				inside, cpuInside := linux.Monotonic(), threadCPU()
				spin(10 * time.Microsecond)
				if i%8 == 0 {
					sleep(100 * time.Microsecond)
				}
				cpuIn, in := threadCPU()-cpuInside, linux.Monotonic()-inside
				end(i)
				out := linux.Monotonic() - outside
				mu.Lock()
				least, most = least+time.Duration(in), most+time.Duration(out)
				cpuLeast += cpuIn
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	sum := totals(t, set)
	v := &sum.Values
	most += time.Duration(before)
	assert.Check(t, sum.Wall.Count == threads*each+1 && sum.Replaced+sum.Nested+sum.Refused == 0, "%+v", sum)
	assert.Check(t, near(sum.Wall.Sum, least, most), "wall %d, want %v to %v", sum.Wall.Sum, least, most)
	assert.Check(t, near(v[abi.ActivityCpuNs], cpuLeast, most), "cpu %d, want %v", v[abi.ActivityCpuNs], cpuLeast)
	known := v[abi.ActivityCpuNs] + v[abi.ActivityRunnableNs] + v[abi.ActivityBlockedNs]
	t.Logf("wall %v, known %v", time.Duration(sum.Wall.Sum), time.Duration(known))
	assert.Check(t, near(known, time.Duration(sum.Wall.Sum), time.Duration(sum.Wall.Sum)), "parts %d, want %d", known, sum.Wall.Sum)
	var parts uint64
	for i := abi.ActivityBlockedNs + 1; i <= abi.ActivityBlockedOtherNs; i++ {
		parts += v[i]
	}
	assert.Check(t, parts == v[abi.ActivityBlockedNs], "parts of blocked time are %d, want %d", parts, v[abi.ActivityBlockedNs])
}

// What begins twice, ends twice, is given up, or whose thread ends.
func TestOrders(t *testing.T) {
	_, set := watch(t, "")
	for _, test := range []struct {
		name, more                      string
		do                              func()
		count, replaced, nested, atOnce uint64
	}{
		{"restart", "", func() { begin(1); begin(2); end(1); end(2) }, 1, 1, 0, 0},
		{"keep", ", on_duplicate: keep", func() { begin(1); begin(2); end(1); end(2) }, 1, 0, 1, 0},
		{"count", ", on_duplicate: count", func() { begin(1); begin(2); end(1); sleep(time.Millisecond); end(2) }, 1, 0, 1, 1e6},
		{"cancel", "", func() { begin(1); give(1); end(1) }, 0, 1, 0, 0},
		{"only an end", "", func() { end(1); begin(1); end(1) }, 1, 0, 0, 0},
		{"the thread ends", "", func() { begin(1); sleep(time.Millisecond) }, 1, 0, 0, 1e6},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Check(t, len(set.Use(nil)) == 0 && len(set.Use(own(t, test.more))) == 0)
			inThread(test.do)
			sum := totals(t, set)
			for limit := time.Now().Add(patience); sum.Wall.Count < test.count && time.Now().Before(limit); sum = totals(t, set) {
				time.Sleep(time.Millisecond)
			}
			assert.Check(t, sum.Wall.Count == test.count && sum.Replaced == test.replaced && sum.Nested == test.nested,
				"ended %d, replaced %d, nested %d", sum.Wall.Count, sum.Replaced, sum.Nested)
			assert.Check(t, sum.Wall.Sum >= test.atOnce, "took %d", sum.Wall.Sum)
		})
	}
}

// inThread calls fn in a thread that ends with it.
func inThread(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocks
		if unix.Gettid() == os.Getpid() {
			inThread(fn) // the first thread does not end, but stays locked
			return
		}
		fn()
	}()
	<-done
}

// Rules come and go; a process that opened by itself stays as it is.
func TestUse(t *testing.T) {
	a, set := watch(t, "")
	list := own(t, "")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin(1)
	end(1)
	settle(t, set, 1)
	assert.Check(t, len(set.Use(list)) == 0 && len(set.Ended()) == 1, "the same rule begins anew")
	assert.Check(t, len(set.Use(nil)) == 0 && len(set.Rules()) == 0)
	begin(1)
	end(1)
	assert.Check(t, len(set.Ended()) == 0, "%+v", set.Ended())
	missing := slices.Clone(list)
	spec := *list[0].Pair
	missing[0].Pair, spec.Exit = &spec, slices.Clone(spec.Exit)
	spec.Exit[0].Name = "nothing"
	err := set.Use(missing)["r"]
	assert.Check(t, err != nil && strings.Contains(err.Error(), `unknown function "nothing"`), "%v", err)
	assert.Check(t, len(set.Use(list)) == 0)
	assert.Check(t, totals(t, set).Wall.Count == 0)
	begin(1)
	end(1)
	assert.Check(t, totals(t, set).Wall.Count == 1)
	n := a.Counts()
	assert.Check(t, n.Processes == 0 && n.Bytes > 0, "%+v: one set of maps, which no process has opened", n)
}
