package snapshot

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
		if err != nil {
			t.Error(err)
		}
		select {
		case policy <- a:
		default:
		}
	}
	_, stop := running(t, Options{Recorder: rec, Store: testStore(t, StoreOptions{}), RTPriority: 3})
	if a := <-policy; a.Policy != unix.SCHED_FIFO || a.Priority != 3 {
		t.Errorf("policy %d, priority %d, want SCHED_FIFO 3", a.Policy, a.Priority)
	}
	stop()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		stat, err := os.ReadFile("/proc/self/task/" + task.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(after); f[38] != "0" && f[0] != "Z" && f[0] != "X" {
			t.Errorf("thread %s: policy %s is left", task.Name(), f[38])
		}
	}
	m, err := New(Options{Recorder: newMemRecorder(1), Store: testStore(t, StoreOptions{}), RTPriority: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(t.Context()); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "1 to 99") {
		t.Errorf("priority 100: %v", err)
	}
}
