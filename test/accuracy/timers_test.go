package accuracy

import (
	_ "embed" // a program in Python
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// timerScenarios are waits that end by a timer which is not the victim's own: of a
// protocol, of a limit, or of a wait that is repeated.
func timerScenarios(shared *resources) []scenario {
	only := func(c explain.Cause) []explain.Cause { return []explain.Cause{c} }
	tcp := func(call, says, advice string) (string, want) {
		return trackSyscall(call), want{causes: only(explain.ProtocolTimer), by: "TCP", says: says, advice: advice}
	}
	var list []scenario
	add := func(name string, rule string, w want, prepare func(*testing.T, *round)) {
		list = append(list, scenario{name: name, rule: rule, want: w, prepare: prepare})
	}
	rule, w := tcp("connect", "TCP sent the SYN again", "The SYN was lost or not answered")
	add("syn-again", rule, w, nil)
	rule, w = tcp("connect", "accept queue of ", "at most net.core.somaxconn (now ")
	add("syn-twice", rule, w, nil)
	rule, w = tcp("read", "TCP sent data again", "ss -ti")
	add("data-again", rule, w, nil)
	rule, w = tcp("sendto", "zero-window probe", "The peer does not read")
	add("window-probe", rule, w, nil)
	rule, w = tcp("read", "TCP sent what its sender had held back", "clear TCP_CORK")
	add("corked", rule, w, nil)
	rule, w = tcp("close", "TCP sent a delayed acknowledgement", "ss -ti")
	add("linger", rule, w, nil)
	add("delayed-ack", trackSyscall("read"),
		want{causes: only(explain.Task), by: "scn-server", root: explain.ProtocolTimer, rootBy: "TCP", says: "delayed acknowledgement"}, nil)
	add("slow-reader", trackSyscall("sendto"),
		want{causes: only(explain.Task), by: "scn-reader", root: explain.Timer, rootBy: "timer"}, nil)
	add("io-limit", trackSyscall("pread64"), want{
		causes: only(explain.Limited), by: provoke.CgroupName(provoke.IOController()), says: "io.max", advice: " (now ",
	}, shared.withFewReads)
	add("others-limit", trackSyscall("pread64"), want{
		causes: only(explain.Limited), by: provoke.CgroupName(provoke.IOController()), says: "of scn-reader", advice: " (now ",
	}, shared.withFewReads)
	add("dirty-pages", trackSyscall("pwrite64"), want{causes: only(explain.Limited), by: "loop", says: "dirty pages", advice: "vm.dirty_ratio (now "}, shared.withFewDirtyPages)
	list = append(list, scenario{
		name: "wbt", rare: true, // where writeback is not throttled often
		rule: trackSyscall("sync_file_range"), prepare: shared.withFiles(0, 5*time.Millisecond, 0),
		want: want{
			causes: only(explain.BlockQueue), by: "scn-writer", many: true, within: 10 * time.Millisecond,
			says: "writeback throttling of loop", advice: "raise wbt_lat_usec of loop",
		},
	})
	list = append(list, scenario{name: "rt-limit", rule: trackWakeup, rare: true, want: want{causes: only(explain.Limited), by: "rt", says: "sched_rt_runtime_us", advice: "kernel.sched_rt_runtime_us (now "}})
	// The only rule that sees all of it.
	turns := fmt.Sprintf("track: pair\n    entry: uprobe:%[1]s:take_turn\n    exit: uretprobe:%[1]s:take_turn\n    key: tid", built.program)
	add("timed-turns", turns, want{causes: only(explain.Task), by: "scn-holder", root: explain.Running, rootBy: "scn-holder", advice: "It is CPU time of scn-holder"}, nil)
	turns = "track: pair\n    entry: tracepoint:syscalls:sys_exit_clock_nanosleep\n    exit: tracepoint:syscalls:sys_enter_getpgid\n    key: tid"
	add("python-turns", turns, want{
		causes: only(explain.Task), by: "scn-holder", root: explain.Running, rootBy: "scn-holder", pattern: explain.InterpreterLock, advice: "kept the interpreter",
	}, withPython)
	// Its one wait ends by its own time limit, and what gives way is after it.
	add("python-once", trackOffCPU, want{causes: only(explain.Task), by: "scn-holder", root: explain.Running, rootBy: "scn-holder", advice: "It is CPU time of scn-holder"}, withPython)
	return list
}

//go:embed src/turns.py
var turnsOfPython []byte

// withPython hands the scenario a program in Python.
func withPython(t *testing.T, r *round) {
	_, err := exec.LookPath("python3")
	assert.NilError(t, err, "this scenario needs Debian's python3")
	r.argument = filepath.Join(t.TempDir(), "turns.py")
	assert.NilError(t, os.WriteFile(r.argument, turnsOfPython, 0o600))
}

// withFewReads lets the program read from the disk, but not often.
func (s *resources) withFewReads(t *testing.T, r *round) {
	g := provoke.NewCgroup(t, provoke.IOController())
	s.theDisk().slow(0, 0, 0)
	number := fmt.Sprintf("%d:%d", s.disk.number>>20, s.disk.number&0xfffff)
	if g.V2 {
		g.Set(t, "", "io.max", number+" riops=25")
	} else {
		g.Set(t, "blkio.throttle.read_iops_device", "", number+" 25")
	}
	r.argument, r.env = "/dev/"+s.disk.device, []string{"SCENARIO_CGROUP=" + g.Dir}
}

// withFewDirtyPages lets there be few dirty pages of the disk, which is slow.
func (s *resources) withFewDirtyPages(t *testing.T, r *round) {
	s.withFiles(0, 20*time.Millisecond, 0)(t, r)
	dir := fmt.Sprintf("/sys/class/bdi/%d:%d", s.disk.number>>20, s.disk.number&0xfffff)
	set := func(file, value string) func() {
		path := filepath.Join(dir, file)
		before, err := os.ReadFile(path)
		assert.NilError(t, err)
		assert.NilError(t, os.WriteFile(path, []byte(value), 0o644))
		return func() { assert.Check(t, os.WriteFile(path, before, 0o644)) }
	}
	t.Cleanup(set("max_ratio", "1"))
	set("max_bytes", strconv.Itoa(2<<20)) // less than a hundredth of the memory; max_ratio undoes it. 6.2+
	t.Cleanup(set("strict_limit", "1"))
}
