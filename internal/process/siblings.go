package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/linux"
)

// Limits of one lookup of siblings.
const (
	maxSiblings = 1024 // found
	maxBeside   = 4096 // looked at, of one process
)

// pool is tasks that belong together: threads of a process, or processes of a parent.
type pool struct {
	of      int // the process, or the parent
	threads bool
	family  string
}

// Siblings returns the ids of tasks that are not in a list, but have the name of two or more
// of it, but for digits at the end: further threads of the same process, or processes of
// the same parent (CONFIG_PROC_CHILDREN). It stops after limit, or at 1024 tasks.
func (t *Table) Siblings(list []Task, limit time.Duration) []int {
	end := time.Now().Add(limit)
	known, count := map[int]bool{}, map[pool]int{}
	for i := range list {
		x := &list[i]
		if known[x.TID] = true; x.Kernel || x.Exited || x.Comm == "" {
			continue
		}
		count[pool{x.PID, true, linux.Family(x.Comm)}]++
		if x.TID == x.PID && x.PPID > 1 {
			count[pool{x.PPID, false, linux.Family(x.Comm)}]++
		}
	}
	wanted := map[pool][]string{} // families, by pools without one
	for p, n := range count {
		if n >= 2 {
			all := pool{of: p.of, threads: p.threads}
			wanted[all] = append(wanted[all], p.family)
		}
	}
	var candidates []int
	families := map[int][]string{} // of which a candidate may be
	for _, threads := range []bool{false, true} {
		var of []int
		for p := range wanted {
			if p.threads == threads {
				of = append(of, p.of)
			}
		}
		slices.Sort(of)
		for _, b := range t.allBeside(of, threads, end) {
			for _, tid := range b.tids {
				if !known[tid] {
					candidates = append(candidates, tid)
					families[tid] = append(families[tid], wanted[pool{of: b.of, threads: threads}]...)
				}
			}
		}
	}
	slices.Sort(candidates)
	var out []int
	for _, x := range each(t, slices.Compact(candidates), "comm", end, alone(t.comm)) {
		if len(out) < maxSiblings && slices.Contains(families[x.tid], linux.Family(x.comm)) {
			out = append(out, x.tid)
		}
	}
	return out
}

// Children returns the children of the processes of those tasks of a list that are among some
// (CONFIG_PROC_CHILDREN), but for those in the list. It stops after limit, or at 1024 tasks.
func (t *Table) Children(list []Task, of []int, limit time.Duration) []int {
	end := time.Now().Add(limit)
	known, asked := map[int]bool{}, map[int]bool{}
	for i := range list {
		known[list[i].TID] = true
	}
	var pids []int
	for i := range list {
		if x := &list[i]; !x.Kernel && !x.Exited && !asked[x.PID] && slices.Contains(of, x.TID) {
			asked[x.PID] = true
			pids = append(pids, x.PID)
		}
	}
	var out []int
	for _, b := range t.allBeside(pids, false, end) {
		for _, pid := range b.tids {
			if !known[pid] && len(out) < maxSiblings {
				known[pid] = true
				out = append(out, pid)
			}
		}
	}
	slices.Sort(out)
	return out
}

// besides are the threads of a process, or the children of its threads.
type besides struct {
	of   int
	tids []int
}

// allBeside is beside for several processes, as far as they can be read.
func (t *Table) allBeside(of []int, threads bool, end time.Time) []besides {
	return each(t, of, "siblings", end, alone(func(pid int) (besides, error) {
		tids, err := t.beside(pool{of: pid, threads: threads})
		return besides{pid, tids}, err
	}))
}

// beside lists the threads of a process, or the children of its threads.
func (t *Table) beside(of pool) ([]int, error) {
	dir := filepath.Join(t.opts.Proc, strconv.Itoa(of.of), "task")
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxBeside)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil && of.threads {
			out = append(out, tid)
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name, "children"))
		if err != nil {
			continue // it has ended, or the kernel does not tell
		}
		for child := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(child); err == nil && len(out) < maxBeside {
				out = append(out, pid)
			}
		}
	}
	return out, nil
}

// named is a task and its name.
type named struct {
	tid  int
	comm string
}

// comm reads the name of a task.
func (t *Table) comm(tid int) (named, error) {
	text, err := os.ReadFile(filepath.Join(t.opts.Proc, strconv.Itoa(tid), "comm"))
	return named{tid, strings.TrimSuffix(string(text), "\n")}, err
}
