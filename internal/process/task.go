package process

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Task describes a task and its scheduling.
type Task struct {
	TID, PID, PPID int
	Session        int
	Comm           string
	Policy         string // SCHED_OTHER, SCHED_FIFO, …
	RTPriority     int
	Nice           int
	Kernel         bool  // a kernel thread
	Exited         bool  // known from before, without its scheduling; another may have had its id since
	CPUs           []int // CPU affinity
	Anonymous      int64 // of its process's memory, that which is of no file, and not swapped out: bytes
	Identity             // of its process, but for the cgroups of v1, which are its own
}

var policies = map[int]string{
	0: "SCHED_OTHER", 1: "SCHED_FIFO", 2: "SCHED_RR", 3: "SCHED_BATCH", 5: "SCHED_IDLE", 6: "SCHED_DEADLINE", 7: "SCHED_EXT",
}

const maxStatus = 16 << 10 // bytes of /proc/TID/status

// read reads about the task what its stat does not tell.
func (o *openTask) read() (Task, error) {
	task, dir := o.task, o.dir
	text, err := readIn(dir, "status", maxStatus)
	if err != nil {
		return Task{}, err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		switch key {
		case "Tgid":
			task.PID, _ = strconv.Atoi(value)
		case "Cpus_allowed_list":
			task.CPUs = cpuRange(value)
		case "RssAnon":
			task.Anonymous = anonymous(value)
		}
	}
	if task.PID <= 0 {
		return Task{}, fmt.Errorf("parse status of %s: no Tgid", dir.Name())
	}
	if !o.now.exiting { // else it has left its cgroups and shows the root
		task.V1Cgroups = v1Cgroups(o.cgroups)
	}
	return task, nil
}

// anonymous parses a size of /proc/TID/status, such as "  12 kB".
func anonymous(value string) int64 {
	kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, " kB")), 10, 64)
	return max(0, min(kib, math.MaxInt64>>10)) << 10
}

// parseTaskStat parses ppid, session, flags, nice, rt_priority and policy of proc(5), and what parseStat
// does.
func parseTaskStat(text []byte) (Task, state, error) {
	const ppid, session, nice, rtPriority, policy = 4 - 3, 6 - 3, 19 - 3, 40 - 3, 41 - 3
	comm, fields, err := statFields(text, policy)
	if err != nil {
		return Task{}, state{}, err
	}
	now, err := parseState(comm, fields)
	if err != nil {
		return Task{}, state{}, err
	}
	task := Task{Comm: clean(now.comm, maxCmdline), Kernel: now.kernel}
	number := 0
	for _, f := range []struct {
		at int
		to *int
	}{{ppid, &task.PPID}, {session, &task.Session}, {nice, &task.Nice}, {rtPriority, &task.RTPriority}, {policy, &number}} {
		if *f.to, err = strconv.Atoi(fields[f.at]); err != nil {
			return Task{}, state{}, fmt.Errorf("parse stat %.60q: field %d: %w", text, f.at+3, err)
		}
	}
	if task.Policy = policies[number]; task.Policy == "" {
		task.Policy = fmt.Sprintf("policy %d", number)
	}
	return task, now, nil
}

// maxCPUs is the kernel's limit.
const maxCPUs = 8192

// cpuRange parses a CPU list such as 0-3,8.
func cpuRange(list string) []int {
	var out []int
	for part := range strings.SplitSeq(list, ",") {
		a, b, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(a)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(b)
		}
		if err != nil || from < 0 || to < from || to >= maxCPUs {
			return nil
		}
		for n := from; n <= to; n++ {
			out = append(out, n)
		}
	}
	return out
}
