package provoke

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Steal holds what the recorder tells of stolen time against the kernel's own
// account, while all CPUs compute: the sums agree, and no more was taken
// between two looks than lies between them. Where the hypervisor takes nothing
// there is nothing to see.
func Steal(t *testing.T, history *History) {
	const (
		enough = 100 * time.Millisecond
		grain  = 50 * time.Millisecond // the account has ticks of 10 ms for each CPU
		late   = 20 * time.Millisecond // the CPU may be taken away between the clock and the look
	)
	history = history.with(t)
	for range runtime.NumCPU() + 1 {
		StartSpinner(t)
	}
	history.Take()
	var taken, told time.Duration
	before := Stolen(t)
	for begin := time.Now(); time.Since(begin) < 3*time.Second && taken < enough; {
		time.Sleep(200 * time.Millisecond)
		for _, ev := range history.Take() {
			s, ok := ev.Body.(trace.Stolen)
			if !ok {
				continue
			}
			told += time.Duration(s.NS)
			assert.Check(t, s.Since < ev.Time && time.Duration(s.NS) <= time.Duration(ev.Time-s.Since)+late,
				"%d ns taken between %d and %d, which are %d ns", s.NS, s.Since, ev.Time, ev.Time-s.Since)
		}
		taken = Stolen(t) - before
	}
	t.Logf("the kernel's account has %s, the records %s", taken, told)
	switch {
	case taken == 0 && told > grain:
		t.Errorf("the records have %s, but the kernel's account has none", told)
	case taken == 0:
		t.Skip("the hypervisor took nothing")
	case taken < enough: // too little to compare sums
		return
	}
	assert.Check(t, told >= taken/2-grain && told <= 2*taken+grain,
		"the records have %s, the kernel's account %s", told, taken)
}

// Stolen is the time that the hypervisor has taken from all CPUs, by the kernel's account.
func Stolen(t testing.TB) time.Duration { return account(t, steal) }

// Columns of /proc/stat.
const (
	idle  = 4
	steal = 8
)

// account reads the account of all CPUs out of /proc/stat, which has it in hundredths of a second.
func account(t testing.TB, column int) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	assert.NilError(t, err)
	first, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(first)
	if len(fields) < 9 {
		t.Fatal(fmt.Errorf("/proc/stat begins with %q", first))
	}
	n, err := strconv.ParseInt(string(fields[column]), 10, 64)
	assert.NilError(t, err)
	return time.Duration(n) * 10 * time.Millisecond
}
