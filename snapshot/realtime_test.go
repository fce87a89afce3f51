package snapshot

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// The thread that reads the recorder has the priority; no other one gets it.
func TestRealTimePriority(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("real-time priority needs CAP_SYS_NICE")
	}
	policy := make(chan *unix.SchedAttr, 1)
	rec := newMemRecorder(10)
	rec.drains = func() {
		a, err := unix.SchedGetAttr(0, 0)
		assert.Check(t, err)
		select {
		case policy <- a:
		default:
		}
	}
	_, stop := running(t, Options{Recorder: rec, Store: testStore(t, StoreOptions{}), RTPriority: 3})
	a := <-policy
	assert.Check(t, a.Policy == unix.SCHED_FIFO && a.Priority == 3,
		"policy %d, priority %d, want SCHED_FIFO 3", a.Policy, a.Priority)
	stop()
	for range 1000 { // they end a moment after their goroutines
		if realTimeThreads(t) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	n := realTimeThreads(t)
	assert.Check(t, n <= 0, "%d threads keep the priority", n)
	m, err := New(Options{Recorder: newMemRecorder(1), Store: testStore(t, StoreOptions{}), RTPriority: 100})
	assert.NilError(t, err)
	err = m.Run(t.Context())
	assert.Check(t, errors.Is(err, unix.EINVAL) && strings.Contains(err.Error(), "1 to 99"),
		"priority 100: %v", err)
}

// realTimeThreads counts the threads of this process that are not ordinary ones.
func realTimeThreads(t *testing.T) (n int) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	assert.NilError(t, err)
	for _, task := range tasks {
		if task.Name() == strconv.Itoa(os.Getpid()) {
			continue // the first thread does not end with its goroutine: Go lets it sleep for good
		}
		stat, err := os.ReadFile("/proc/self/task/" + task.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(after); f[38] != "0" && f[0] != "Z" && f[0] != "X" {
			n++
		}
	}
	return n
}
