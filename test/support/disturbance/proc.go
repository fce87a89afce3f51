package disturbance

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc: USER_HZ is 100 on every architecture that Linux has.
const tick = 10 * time.Millisecond

// cpuTimes are sums of all CPUs since boot.
type cpuTimes struct{ stolen, idle time.Duration }

// parseStat reads the first line of /proc/stat.
func parseStat(text []byte) (cpuTimes, error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 9 || fields[0] != "cpu" {
		return cpuTimes{}, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var ticks [9]time.Duration // user nice system idle iowait irq softirq steal
	for i := 1; i < len(ticks); i++ {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return cpuTimes{}, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks[i] = time.Duration(n) * tick
	}
	return cpuTimes{stolen: ticks[8], idle: ticks[4] + ticks[5]}, nil
}

func readStat() (cpuTimes, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpuTimes{}, err
	}
	return parseStat(text)
}

// process is one line of /proc/PID/stat.
type process struct {
	parent int
	cpu    time.Duration // user and system
	start  int64         // tells processes with the same number apart
}

// parseProcess reads a /proc/PID/stat. The name in it may hold anything.
func parseProcess(text string) (p process, ok bool) {
	_, rest, found := cutLast(text, ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 20 {
		return p, false
	}
	number := func(i int) int64 { // as in proc_pid_stat(5), which counts from 1
		n, err := strconv.ParseInt(fields[i-3], 10, 64)
		ok = ok && err == nil
		return n
	}
	ok = true
	p = process{parent: int(number(4)), cpu: time.Duration(number(14)+number(15)) * tick, start: number(22)}
	return p, ok
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// kthreadd is the parent of all kernel threads.
const kthreadd = 2

// processes follows what those processes use that do not descend from root.
type processes struct {
	root   int
	kernel map[int]bool // threads of the kernel, which live on
	seen   map[int]process
	ours   map[int]int64 // descendants ever seen, and when they began; parents may die
}

func newProcesses(root int) *processes {
	p := &processes{root: root, kernel: map[int]bool{kthreadd: true}, ours: map[int]int64{}}
	p.others()
	return p
}

// others returns the CPU time that other processes used since the last call.
func (p *processes) others() time.Duration {
	now := map[int]process{}
	dir, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	names, _ := dir.Readdirnames(-1)
	dir.Close()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || p.kernel[pid] {
			continue
		}
		text, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it ended
		}
		switch one, ok := parseProcess(string(text)); {
		case ok && one.parent == kthreadd:
			p.kernel[pid] = true
		case ok:
			now[pid] = one
		}
	}
	return p.since(now)
}

// since compares with the processes of the last call.
func (p *processes) since(now map[int]process) time.Duration {
	ours := map[int]int64{}
	for pid, one := range now {
		if p.descends(now, pid) {
			ours[pid] = one.start
		}
	}
	p.ours = ours
	var used time.Duration
	for pid, one := range now {
		if _, mine := ours[pid]; mine || p.seen == nil {
			continue
		}
		if before, ok := p.seen[pid]; ok && before.start == one.start {
			used += one.cpu - before.cpu
		} else {
			used += one.cpu
		}
	}
	p.seen = now
	return used
}

// descends reports whether root started pid, or who started it.
func (p *processes) descends(now map[int]process, pid int) bool {
	for range 64 { // generations; numbers that are used again cannot make a circle
		one, ok := now[pid]
		switch {
		case pid == p.root:
			return true
		case !ok:
			return false
		}
		if start, ok := p.ours[pid]; ok && start == one.start {
			return true
		}
		pid = one.parent
	}
	return false
}
