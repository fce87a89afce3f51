package stress

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
}

// Every entry is matched, replaced, lost or left, whatever happens meanwhile.
func TestEveryEntryIsAccountedFor(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"room for all", Options{Places: 1 << 16, Keys: 500, Rounds: 200}},
		{"crowded", Options{Places: 1 << 11, Keys: 500, Rounds: 400}},
		{"full windows", Options{Places: 1 << 8, Keys: 500, Rounds: 400}},
		{"the scheduler too", Options{Places: 1 << 10, Keys: 200, Rounds: 800, Schedule: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Workers = 4 * runtime.NumCPU()
			if c.o.Schedule {
				defer hackbench(t)()
			}
			a, err := Run(c.o)
			assert.NilError(t, err)
			t.Logf("%+v", a)
			assert.Check(t, a.Balance())
			assert.Check(t, a.Stored >= 10_000 && a.Matched != 0 && a.Replaced != 0,
				"hardly anything happened: %+v", a)
			assert.Check(t, c.o.Places > 1<<8 || a.Lost != 0, "no window was full")
		})
	}
}

// The account is able to fail: with claims that two may win, it does.
func TestBrokenClaimIsNoticed(t *testing.T) {
	needRoot(t)
	for range 20 {
		a, err := Run(Options{Places: 1 << 8, Keys: 500, Workers: 4 * runtime.NumCPU(), Rounds: 200, Broken: true})
		assert.NilError(t, err)
		if err := a.Balance(); err != nil {
			t.Logf("noticed: %v", err)
			return
		}
	}
	t.Error("a table without compare-and-swap came out even: the account cannot fail")
}

// hackbench makes the scheduler work until stop is called.
func hackbench(t *testing.T) (stop func()) {
	t.Helper()
	path, err := exec.LookPath("hackbench")
	if err != nil {
		t.Skip("needs hackbench (apt-get install rt-tests)")
	}
	cmd := exec.Command(path, "--pipe", "--groups", "2", "--loops", "100000")
	assert.NilError(t, cmd.Start())
	time.Sleep(50 * time.Millisecond)
	return func() {
		assert.Check(t, cmd.Process.Signal(os.Interrupt)) // it ends its tasks itself
		_ = cmd.Wait()                                    // interrupted
	}
}
