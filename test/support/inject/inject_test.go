package inject

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestMain(m *testing.M) {
	code := m.Run()
	Remove()
	os.Exit(code)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: real-time threads")
	}
}

// count holds that every event of a kind is complete, and returns how many of
// each kind there are.
func count(t *testing.T, events []Event, track string) map[string]int {
	t.Helper()
	kinds := map[string]int{}
	for _, e := range events {
		kinds[e.Kind]++
		assert.Assert(t, e.Track == track && e.PID != 0 && e.TID != 0 && e.Start != 0 && e.Comm != "" &&
			e.Func != "", "incomplete event of %s: %+v", track, e)
		assert.Assert(t, (e.End == 0) == (e.Kind == Dead) && (e.End == 0 || e.End >= e.Start),
			"event with a wrong end: %+v", e)
	}
	return kinds
}

// checkAsked holds that what is called over is over: anything shorter is spoilt.
func checkAsked(t *testing.T, events []Event, over time.Duration) {
	t.Helper()
	for _, e := range events {
		assert.Check(t, e.Kind != Over || e.Delay() >= over*9/10, "asked for %v, got %v: %+v", over, e.Delay(), e)
	}
}

func TestWakeup(t *testing.T) {
	needRoot(t)
	events := Run(t, "wakeup", "40", "4000", "400", "500", "8")
	kinds := count(t, events, "wakeup")
	assert.Check(t, kinds[Over]+kinds[Under]+kinds[Spoilt] >= 440, "got %v, want 440 events", kinds)
	checkAsked(t, events, 4*time.Millisecond)
}

func TestWaits(t *testing.T) {
	for _, c := range []struct {
		track string
		ways  []string
	}{
		{"offcpu", []string{"read", "futex", "sleep", "vfork", "all"}},
		{"syscall", []string{"read", "poll", "futex", "sleep", "all"}},
	} {
		for _, way := range c.ways {
			t.Run(c.track+"/"+way, func(t *testing.T) {
				events := Run(t, c.track, way, "16", "10000", "160", "300", "8")
				kinds := count(t, events, c.track)
				assert.Check(t, kinds[Over]+kinds[Under]+kinds[Spoilt] == 176, "got %v, want 176 events", kinds)
				checkAsked(t, events, 10*time.Millisecond)
				for _, e := range events {
					assert.Assert(t, way == "all" || e.Func == "inject_"+c.track+"_"+way,
						"function of %s is %s", way, e.Func)
				}
			})
		}
	}
}

func TestEdge(t *testing.T) {
	kinds := count(t, Run(t, "edge", "1", "5000"), "syscall")
	// killed 4, exit_group 4, execve 4, thread exit 4; interrupted 1, restarted 2, stopped 2
	assert.Check(t, kinds[Dead] == 16 && kinds[Edge]+kinds[Spoilt] == 5, "got %v, want 16 dead and 5 edge", kinds)
}

func TestBlock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	assert.NilError(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	for _, op := range []string{"write", "read"} {
		kinds := count(t, Run(t, "block", file, op, "4096", "100", "8"), "block")
		assert.Check(t, kinds[Request] == 100, "%s: got %v, want 100 requests", op, kinds)
	}
}

func TestWakerOnSameCPU(t *testing.T) {
	events := Run(t, "samecpu", "10", "5000")
	kinds := count(t, events, "offcpu")
	assert.Check(t, kinds[Over]+kinds[Spoilt] == 10, "got %v, want 10 events", kinds)
	checkAsked(t, events, 5*time.Millisecond)
}

func TestRunnable(t *testing.T) {
	needRoot(t)
	for _, args := range [][]string{{"preempt", "5", "8000", "50", "3000"}, {"newtask", "10", "8000"}} {
		events := Run(t, args...)
		if kinds := count(t, events, "wakeup"); kinds[Over]+kinds[Spoilt] < 5 {
			t.Errorf("%s: got %v, want at least 5 over", args[0], kinds)
		}
		checkAsked(t, events, 8*time.Millisecond)
	}
}

func TestBadArguments(t *testing.T) {
	path := Build(t)
	for _, args := range [][]string{
		nil, {"nonsense"}, {"wakeup"}, {"wakeup", "1", "x", "1", "1", "1"},
		{"offcpu", "poll", "1", "1", "1", "1", "1"}, {"edge", "0", "1"},
		{"block", "/nonexistent", "read", "4096", "1", "1"}, {"samecpu", "1", "-5"},
		{"preempt", "1", "1"}, {"newtask", "0", "1"},
	} {
		out, err := exec.Command(path, args...).CombinedOutput()
		assert.Check(t, err != nil && strings.Contains(string(out), "inject"),
			"inject %q: error %v, said %q", args, err, out)
	}
}

func TestSplit(t *testing.T) {
	at := func(kind string, delay time.Duration) Event {
		return Event{Kind: kind, Start: 1e9, End: 1e9 + uint64(delay)}
	}
	must, mustNot, either := Split([]Event{
		at(Over, 12*time.Millisecond), at(Under, 12*time.Millisecond), at(Over, 9*time.Millisecond),
		at(Under, 2*time.Millisecond), at(Spoilt, 12*time.Millisecond), at(Over, 10*time.Millisecond),
		{Kind: Dead, Start: 1e9},
	}, 10*time.Millisecond, 500*time.Microsecond)
	assert.Check(t, len(must) == 2 && len(mustNot) == 3 && len(either) == 2,
		"split into %d, %d, %d; want 2, 3, 2", len(must), len(mustNot), len(either))
}
