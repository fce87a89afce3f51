package disturbance

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestParse(t *testing.T) {
	got, err := parseStat([]byte("cpu  2232415 59788 975522 1767487 54142 0 23134 120258 0 0\ncpu0 1\n"))
	if want := (cpuTimes{stolen: 120258 * tick, idle: (1767487 + 54142) * tick}); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "cpu", "cpu 1 2 3 4 5 6 7", "cpu 1 2 3 4 5 6 7 x", "cpu0 1 2 3 4 5 6 7 8"} {
		_, err := parseStat([]byte(bad))
		assert.Check(t, err != nil, "%q was read", bad)
	}
	const rest = " S 812 4711 812 0 -1 4194560 1 0 0 0 250 30 7 7 20 0 1 0 98765 1 1\n"
	want := process{parent: 812, cpu: 2800 * time.Millisecond, start: 98765}
	for _, name := range []string{"bash", ") R 1 2 (", "", "a b"} {
		p, ok := parseProcess("4711 (" + name + ")" + rest)
		assert.Check(t, ok && p == want, "%q: got %+v, %v, want %+v", name, p, ok, want)
	}
	text, err := os.ReadFile("/proc/self/stat")
	assert.NilError(t, err)
	p, ok := parseProcess(string(text))
	assert.Check(t, ok && p.parent == os.Getppid() && p.start != 0, "this process: got %+v, %v", p, ok)
}

func FuzzParseProcess(f *testing.F) {
	f.Add("4711 (a) b) S 812 4711 812 0 -1 4194560 1 0 0 0 250 30 7 7 20 0 1 0 98765 1 1\n")
	f.Add("1 () S")
	f.Fuzz(func(_ *testing.T, text string) {
		parseProcess(text)
		_, _ = parseStat([]byte(text))
	})
}

// Those whose parents have died are still descendants; who was never one is not.
func TestDescendants(t *testing.T) {
	p := &processes{root: 10, ours: map[int]int64{}}
	p.since(map[int]process{
		1: {parent: 0}, 10: {parent: 1}, 11: {parent: 10, start: 5, cpu: tick}, 12: {parent: 11, start: 6}, 20: {parent: 1, start: 2, cpu: 7 * tick},
	})
	used := p.since(map[int]process{
		1: {parent: 0}, 10: {parent: 1}, 12: {parent: 1, start: 6, cpu: 100 * tick}, // its parent ended
		13: {parent: 12, start: 8, cpu: 10 * tick},
		20: {parent: 1, start: 2, cpu: 9 * tick}, 21: {parent: 20, start: 9, cpu: 3 * tick},
		11: {parent: 20, start: 10, cpu: 30 * tick}, // the number of a descendant, used again
	})
	want := 35 * tick
	assert.Check(t, used == want, "others used %s, want %s", used, want)
}

// Real processes: a child computes, which is others' load to who does not have it.
func TestOthers(t *testing.T) {
	theirs := newProcesses(-1)
	spinner := exec.Command("sh", "-c", "while :; do :; done")
	assert.NilError(t, spinner.Start())
	ours := newProcesses(os.Getpid())
	var used time.Duration
	for theirs.seen[spinner.Process.Pid].cpu < 3*tick {
		time.Sleep(50 * time.Millisecond)
		used += theirs.others()
		ours.others()
	}
	one := theirs.seen[spinner.Process.Pid].cpu
	assert.Check(t, used >= one, "others used %s, of which one used %s", used, one)
	_, ok := ours.ours[spinner.Process.Pid]
	assert.Check(t, ok, "a child of this process is taken for another's")
	assert.Check(t, len(ours.kernel) >= 2, "no thread of the kernel was found")
	spinner.Process.Kill()
	spinner.Wait()
}

// The witness adds up to what the kernel says, and finds CPUs full that compute.
func TestWitness(t *testing.T) {
	before, err := readStat()
	assert.NilError(t, err)
	w, err := Start()
	assert.NilError(t, err)
	var hogs []*exec.Cmd // processes: goroutines would take the witness's turns
	for range runtime.NumCPU() {
		hog := exec.Command("sh", "-c", "while :; do :; done")
		assert.NilError(t, hog.Start())
		hogs = append(hogs, hog)
	}
	time.Sleep(3 * period)
	span := Span{From: time.Now()}
	time.Sleep(2 * window)
	span.To = time.Now()
	a := w.Between(span)
	for _, hog := range hogs {
		hog.Process.Kill()
		hog.Wait()
	}
	w.Stop()
	after, err := readStat()
	assert.NilError(t, err)
	var sum sample
	for i := range w.samples {
		sum.add(&w.samples[i])
	}
	if stolen, idle := after.stolen-before.stolen, after.idle-before.idle; sum.stolen > stolen || sum.idle > idle || a.Stolen > sum.stolen {
		t.Errorf("samples have %s stolen and %s idle, the kernel %s and %s", sum.stolen, sum.idle, stolen, idle)
	}
	assert.Check(t, a.Full, "a machine whose CPUs all compute was not full: %+v", a)
	assert.Check(t, a.Length >= span.To.Sub(span.From), "judged %s of %s", a.Length, span.To.Sub(span.From))
}

// A stopped process loses time as one whose CPU is taken away: no account has it.
func TestInvisibleTheft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: lateness counts with real-time priority only")
	}
	w, err := Start()
	assert.NilError(t, err)
	time.Sleep(period)
	span := Span{From: time.Now()}
	stopper := exec.Command("sh", "-c", fmt.Sprintf("kill -STOP %[1]d; sleep 0.5; kill -CONT %[1]d", os.Getpid()))
	out, err := stopper.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	span.To = time.Now()
	a := w.Between(span)
	w.Stop()
	assert.Check(t, a.Late >= 400*time.Millisecond && a.Disturbed &&
		strings.Contains(a.String(), "of late wake-ups"), "this process was stopped for half a second; got %+v", a)
}

// The thread that measures is the only one with a real-time priority.
func TestPriority(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: sets a priority")
	}
	w, err := Start()
	assert.NilError(t, err)
	defer w.Stop()
	time.Sleep(period)
	var realTime int
	threads, err := os.ReadDir("/proc/self/task")
	assert.NilError(t, err)
	for _, thread := range threads {
		var tid int
		_, err := fmt.Sscan(thread.Name(), &tid)
		assert.NilError(t, err)
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil && attr.Policy == unix.SCHED_FIFO {
			realTime++
		}
	}
	assert.Check(t, realTime == 1, "%d threads have a real-time priority, want 1", realTime)
}

// What the kernel counts and what it tells a tracer of are near each other, or it keeps some: both
// are real here, and what they are is a fact of the kernel.
func TestUnseen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: counts the switches of all CPUs")
	}
	s, err := unseen()
	assert.NilError(t, err)
	t.Logf("%v; kept: %v", s, s.Kept())
	assert.Check(t, s.All > 0 && s.Unseen <= s.All, "%v", s)
	for s, want := range map[Switches]string{
		{All: 1000, Unseen: 2}: "of 1000 switches between tasks the kernel told tracers nothing of 2",
		{All: 1000, Unseen: 3}: "of 1000 switches between tasks the kernel told tracers nothing of 3",
	} {
		assert.Check(t, s.String() == want && s.Kept() == (s.Unseen > 2), "%v: kept %v", s, s.Kept())
	}
}
