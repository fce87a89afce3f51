package process

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestTaskOfThisThread(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: it ends with the test, nice and affinity with it
	table := New(nil)
	defer table.Close()
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !old.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 7); err != nil {
		t.Fatal(err)
	}
	got, err := table.Task(unix.Gettid())
	if err != nil {
		t.Fatal(err)
	}
	if got.TID != unix.Gettid() || got.PID != os.Getpid() || got.PPID != os.Getppid() || got.Nice != 7 ||
		got.Policy != "SCHED_OTHER" || got.Kernel || got.Cmdline == "" || got.Comm == "" {
		t.Errorf("this thread is %+v", got)
	}
	if diff := cmp.Diff([]int{cpu}, got.CPUs); diff != "" {
		t.Errorf("CPUs (-want +got):\n%s", diff)
	}
}

func TestTaskThatIsAKernelThread(t *testing.T) {
	table := New(nil)
	defer table.Close()
	got, err := table.Task(2)
	if err != nil || got.Comm != "kthreadd" {
		t.Skipf("task 2 is not kthreadd here but %q (%v): a container", got.Comm, err)
	}
	if !got.Kernel || got.PID != 2 || got.Cmdline != "" {
		t.Errorf("kthreadd is %+v", got)
	}
}

func TestTaskThatIsGone(t *testing.T) {
	table := New(nil)
	defer table.Close()
	for _, tid := range []int{-1, 0, 1 << 30} {
		if _, err := table.Task(tid); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("task %d: %v", tid, err)
		}
	}
}

func TestParseTaskStatRefuses(t *testing.T) {
	for _, text := range []string{"", "1 (a", "1 (a) S 1", "1 (a) S x 1 1 0 -1 64 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0"} {
		if got, err := parseTaskStat([]byte(text)); err == nil {
			t.Errorf("%q became %+v", text, got)
		}
	}
}

func TestCPURange(t *testing.T) {
	for list, want := range map[string][]int{
		"0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "": nil, "3-1": nil, "x": nil, "0-99999999": nil, "1,": nil,
	} {
		if diff := cmp.Diff(want, cpuRange(list)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", list, diff)
		}
	}
}
