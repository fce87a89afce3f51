package action

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/rules"
)

// bounds are the limits of one run; 0: none.
type bounds struct {
	cpu    time.Duration // of all processes
	memory int64         // bytes of all processes
	output int64         // bytes
	cgroup int           // descriptor of the cgroup that all are in; 0: none
	ofRule [2]bool       // cpu, memory: what the rule's limits leave
	report bool          // what is used is reported, for limits of all actions
}

// What watch says is exceeded.
const (
	overCPU    = "CPU time"
	overMemory = "memory"
)

// boundsOf returns the limits of an action.
func (r *Runner) boundsOf(a *rules.Action) bounds {
	r.mu.Lock()
	b := r.bounds
	r.mu.Unlock()
	return bounds{cpu: cmp.Or(a.MaxCPU, b.cpu), memory: cmp.Or(a.MaxMemory, b.memory), output: cmp.Or(a.MaxOutput, b.output)}
}

// used is what the actions of one rule have used of its limits, for one snapshot or outlier.
type used struct {
	cpu    time.Duration
	output int64
}

func (u *used) add(r *Result) {
	u.cpu += r.CPU
	u.output += r.kept
}

// within returns what a rule's limits leave of those of an action; left is false if its
// actions have used up their CPU time. They run one after another, so that each may have all
// of the memory.
func (b bounds) within(limits *rules.ActionBounds, u used) (rest bounds, left bool) {
	if limits == nil {
		return b, true
	}
	if limits.MaxCPU > 0 {
		rest := limits.MaxCPU - u.cpu
		if rest <= 0 {
			return b, false
		}
		if b.cpu <= 0 || rest < b.cpu {
			b.cpu, b.ofRule[0] = rest, true
		}
	}
	if limits.MaxMemory > 0 && (b.memory <= 0 || limits.MaxMemory < b.memory) {
		b.memory, b.ofRule[1] = limits.MaxMemory, true
	}
	if limits.MaxOutput > 0 {
		b.output = min(b.output, max(limits.MaxOutput-u.output, 0))
	}
	return b, true
}

// exceeded names the limit for which an action was killed, as watch does.
func (b bounds) exceeded(what string) string {
	if what == overCPU && b.ofRule[0] || what == overMemory && b.ofRule[1] {
		return what + " of its rule's actions"
	}
	return what
}

// args passes the limits to a supervisor.
func (b bounds) args() []string {
	return []string{strconv.FormatInt(int64(b.cpu), 10), strconv.FormatInt(b.memory, 10), strconv.FormatBool(b.report)}
}

func parseBounds(args []string) (bounds, error) {
	cpu, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return bounds{}, fmt.Errorf("CPU time: %w", err)
	}
	memory, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return bounds{}, fmt.Errorf("memory: %w", err)
	}
	report, err := strconv.ParseBool(args[2])
	if err != nil {
		return bounds{}, fmt.Errorf("report: %w", err)
	}
	return bounds{cpu: time.Duration(cpu), memory: memory, report: report}, nil
}

// boundsPoll is how often the use of an action is compared with its limits.
const boundsPoll = 200 * time.Millisecond

// maxWatched bounds the processes that are looked at each time.
const maxWatched = maxProcesses

// watch says once which limit the descendants exceed, and until then reports what they use,
// if that is wanted.
func (b bounds) watch(over chan<- string, report *os.File) {
	if b.cpu <= 0 && b.memory <= 0 && !b.report {
		return
	}
	for range time.Tick(boundsPoll) {
		pids := tree(os.Getpid())
		cpu, memory := b.cpuTime(pids), memory(pids)
		if b.cpu > 0 && cpu > b.cpu {
			over <- overCPU
			return
		}
		if b.memory > 0 && memory > b.memory {
			over <- overMemory
			return
		}
		if b.report && writable(report) {
			fmt.Fprintf(report, "uses %d %d\n", cpu, memory)
		}
	}
}

// writable reports whether a pipe takes a line without a wait: a daemon that stands still
// must not keep limits from being watched.
func writable(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLOUT != 0
}

// cpuTime is that of the cgroup, which no process can hide, or else of the descendants.
func (b bounds) cpuTime(pids []int) time.Duration {
	if b.cgroup != 0 {
		if used, ok := cgroupCPU(b.cgroup); ok {
			return used
		}
	}
	return cpuTime(pids)
}

// dataSlack is what a process may map, and not use, beyond its memory limit: a Go program
// maps 64 MiB at a time.
const dataSlack = 256 << 20

// ownRoom is what the supervisor must have left of the limit that it passes on.
const ownRoom = 64 << 20

// limitData makes allocations of one process fail that would pass the limit by far before
// the next poll. Address space is not limited: programs reserve more than they use. The
// limit is of programs started until restore is called: the supervisor must not fail.
func (b bounds) limitData() (restore func()) {
	var before unix.Rlimit
	if b.memory <= 0 || unix.Getrlimit(unix.RLIMIT_DATA, &before) != nil {
		return func() {}
	}
	limit := uint64(b.memory) + dataSlack
	if limit >= before.Cur || ownData()+ownRoom > limit {
		return func() {}
	}
	after := before
	after.Cur = limit // only the soft limit can be raised again
	_ = unix.Setrlimit(unix.RLIMIT_DATA, &after)
	return func() { _ = unix.Setrlimit(unix.RLIMIT_DATA, &before) }
}

// ownData is what counts towards RLIMIT_DATA of this process, in bytes.
func ownData() uint64 {
	var size, resident, shared, text, lib, data uint64
	statm, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(statm), &size, &resident, &shared, &text, &lib, &data)
	}
	if err != nil {
		return math.MaxUint64 / 2 // not known
	}
	return data * uint64(os.Getpagesize())
}

// tree lists the living descendants of a process without reading all of /proc.
func tree(pid int) []int {
	if _, err := os.Stat("/proc/thread-self/children"); err != nil {
		return descendants(pid) // a kernel without CONFIG_PROC_CHILDREN
	}
	var all []int
	for queue := children(pid); len(queue) > 0 && len(all) < maxWatched; {
		all = append(all, queue[0])
		queue = append(queue[1:], children(queue[0])...)
	}
	return all
}

// children lists the children of all threads of a process.
func children(pid int) (list []int) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // gone
		}
		for _, field := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// clockTick is USER_HZ, in which /proc counts CPU time on all architectures.
const clockTick = time.Second / 100

// cpuTime is that of the children that have ended, and of living descendants with what
// they have waited for.
func cpuTime(living []int) time.Duration {
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &own); err != nil {
		return 0
	}
	sum := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	for _, pid := range living {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // gone
		}
		// pid (comm) state …: comm may contain anything, so parse from the last parenthesis.
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		for i := 11; i < min(15, len(fields)); i++ { // utime, stime, cutime, cstime
			if n, err := strconv.ParseInt(string(fields[i]), 10, 64); err == nil {
				sum += time.Duration(n) * clockTick
			}
		}
	}
	return sum
}

// memory is what processes have in RAM of their own, in bytes: without files, which are
// page cache, and shared memory.
func memory(pids []int) (sum int64) {
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			continue // gone
		}
		var size, resident, shared int64
		if _, err := fmt.Sscan(string(data), &size, &resident, &shared); err == nil {
			sum += (resident - shared) * int64(os.Getpagesize())
		}
	}
	return sum
}
