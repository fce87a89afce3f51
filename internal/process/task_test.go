package process

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/cpus"
)

func TestTaskOfThisThread(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: it ends with the test, nice and affinity with it
	table := New(nil)
	defer table.Close()
	cpu := cpus.First(t)
	assert.NilError(t, cpus.Keep(cpu))
	assert.NilError(t, unix.Setpriority(unix.PRIO_PROCESS, 0, 7))
	list := table.Tasks([]int{unix.Gettid()}, time.Minute)
	assert.Assert(t, len(list) == 1, "this thread is %+v", list)
	got := list[0]
	assert.Check(t, got.TID == unix.Gettid() && got.PID == os.Getpid() && got.PPID == os.Getppid() &&
		got.Nice == 7 && got.Policy == "SCHED_OTHER" && !got.Kernel && got.Cmdline != "" && got.Comm != "",
		"this thread is %+v", got)
	assert.Check(t, is.DeepEqual([]int{cpu}, got.CPUs), "CPUs")
}

func TestTaskThatIsAKernelThread(t *testing.T) {
	table := New(nil)
	defer table.Close()
	list := table.Tasks([]int{2}, time.Minute)
	assert.Assert(t, len(list) == 1, "%+v", list)
	got := list[0]
	assert.Check(t, got.Comm == "kthreadd" && got.Kernel && got.PID == 2 && got.Cmdline == "", "kthreadd is %+v", got)
}

func TestTasksThatAreGone(t *testing.T) {
	table := New(nil)
	defer table.Close()
	tids := []int{-1, 0, 1 << 30, os.Getpid()}
	for range 3 * chunk {
		tids = append(tids, 1<<30)
	}
	tids = append(tids, os.Getpid())
	list := table.Tasks(tids, time.Minute)
	assert.Check(t, len(list) == 2 && list[0].TID == os.Getpid() && list[1].TID == os.Getpid(), "found %+v", list)
	list = table.Tasks(tids, 0)
	assert.Check(t, len(list) == 0, "found %+v in no time", list)
}

// A process whose command line cannot be read costs itself, and none of those
// after it.
func TestTasksBesideOneThatIsStuck(t *testing.T) {
	proc := t.TempDir()
	const stuck = 7
	var tids []int
	for tid := 1; tid <= 2*chunk; tid++ {
		tids = append(tids, tid)
		fakeProc(t, proc, tid, "x", 100, "x")
		dir := filepath.Join(proc, strconv.Itoa(tid))
		stat := fmt.Sprintf("%d (x) S 1%s 100 0%s\n", tid, strings.Repeat(" 0", 17), strings.Repeat(" 0", 20))
		for name, text := range map[string]string{"stat": stat, "status": fmt.Sprintf("Tgid:\t%d\n", tid)} {
			assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
	fifo := filepath.Join(proc, strconv.Itoa(stuck), "cmdline")
	assert.NilError(t, errors.Join(os.Remove(fifo), unix.Mkfifo(fifo, 0o600))) // opening it waits for a writer
	table := New(&Options{Proc: proc, Timeout: 2 * time.Second})
	list := table.Tasks(tids, time.Minute)
	assert.Check(t, len(list) == len(tids)-1, "found %d of %d", len(list), len(tids))
	for _, task := range list {
		assert.Check(t, task.TID != stuck && task.Cmdline == "x", "found %+v", task)
	}
	assert.Check(t, table.Timeouts() == 1 && table.gate.Stuck() == 1,
		"%d timeouts, %d stuck", table.Timeouts(), table.gate.Stuck())
	letGo(t, table, fifo)
}

// TestAnonymous: what the kernel tells of this process, and what a hostile file system might.
func TestAnonymous(t *testing.T) {
	memory := make([]byte, 64<<20)
	for i := range memory {
		memory[i] = 1
	}
	table := New(nil)
	defer table.Close()
	list := table.Tasks([]int{os.Getpid()}, time.Minute)
	assert.Assert(t, len(list) == 1)
	assert.Check(t, list[0].Anonymous >= int64(len(memory)) && list[0].Anonymous < 16<<30, "%d", list[0].Anonymous)
	runtime.KeepAlive(memory)
	for value, want := range map[string]int64{
		"   12 kB": 12 << 10, "0 kB": 0, "": 0, "-5 kB": 0, "x": 0, "99999999999999999999 kB": math.MaxInt64 >> 10 << 10,
	} {
		assert.Check(t, anonymous(value) == want, "%q: %d", value, anonymous(value))
	}
}

func TestParseTaskStatRefuses(t *testing.T) {
	for _, text := range []string{"", "1 (a", "1 (a) S 1", "1 (a) S x 1 1 0 -1 64 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0"} {
		got, _, err := parseTaskStat([]byte(text))
		assert.Check(t, err != nil, "%q became %+v", text, got)
	}
}

func TestCPURange(t *testing.T) {
	for list, want := range map[string][]int{
		"0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "": nil, "3-1": nil, "x": nil, "0-99999999": nil, "1,": nil,
	} {
		diff := cmp.Diff(want, cpuRange(list))
		assert.Check(t, diff == "", "%q (-want +got):\n%s", list, diff)
	}
}

// TestExited: who was identified and has exited since is still named, for a while.
func TestExited(t *testing.T) {
	cmd := sleeper(t, "-u", "-")
	pid := cmd.Process.Pid
	table, forgetful := New(&Options{TTL: time.Nanosecond}), New(&Options{TTL: time.Nanosecond, Keep: time.Nanosecond})
	for _, of := range []*Table{table, forgetful} {
		for who, err := of.Identity(pid); who.Cmdline == ""; who, err = of.Identity(pid) { // not in the middle of exec
			assert.NilError(t, err)
		}
	}
	alive := table.Tasks([]int{pid}, time.Minute)
	assert.Assert(t, len(alive) == 1 && !alive[0].Exited, "%+v", alive)
	_ = cmd.Process.Kill()
	_, _ = cmd.Process.Wait()
	gone := table.Tasks([]int{pid, 1 << 30}, time.Minute)
	assert.Assert(t, len(gone) == 1 && gone[0].Exited && gone[0].Comm == "cat" && gone[0].Identity == alive[0].Identity, "%+v", gone)
	assert.Check(t, len(forgetful.Tasks([]int{pid}, time.Minute)) == 0)
	_, err := forgetful.Identity(pid)
	assert.Check(t, errors.Is(err, fs.ErrNotExist), "%v", err)
}

// TestCommandLineOfAThreadsProcess: who is in a hurry asks for command lines of many, and is not
// kept by that of the process of a thread either.
func TestCommandLineOfAThreadsProcess(t *testing.T) {
	var asked []Started
	table := New(&Options{
		Cmdline: func(pid int, _ uint64) (string, error) {
			t.Errorf("waits for the command line of %d", pid)
			return "", nil
		},
		Cmdlines: func(of []Started) map[Started]string {
			asked = append(asked, of...)
			all := map[Started]string{}
			for _, p := range of {
				all[p] = "of " + strconv.Itoa(p.PID)
			}
			return all
		},
	})
	defer table.Close()
	tids, stop := make(chan int), make(chan struct{})
	defer close(stop)
	tid := os.Getpid()
	for tid == os.Getpid() {
		go func() {
			runtime.LockOSThread() // ends with the goroutine
			tids <- unix.Gettid()
			<-stop
		}()
		tid = <-tids
	}
	list := table.Tasks([]int{tid}, time.Minute)
	assert.Assert(t, len(list) == 1 && list[0].PID == os.Getpid(), "%+v", list)
	assert.Check(t, list[0].Cmdline == "of "+strconv.Itoa(os.Getpid()), "%+v, asked for %v", list[0], asked)
}
