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
	beside := map[pool][]int{} // without family: read once
	var out []int
	for p, n := range count {
		if n < 2 {
			continue
		}
		all := pool{of: p.of, threads: p.threads}
		tids, ok := beside[all]
		if !ok {
			tids, _ = bounded(t, p.of, "siblings", func() ([]int, error) { return t.beside(all) }) // nil: none is known
			beside[all] = tids
		}
		for _, tid := range tids {
			if len(out) >= maxSiblings || time.Now().After(end) {
				return out
			}
			if known[tid] {
				continue
			}
			comm, err := bounded(t, tid, "comm", func() (string, error) { return t.comm(tid) })
			if err == nil && linux.Family(comm) == p.family {
				known[tid] = true
				out = append(out, tid)
			}
		}
	}
	slices.Sort(out)
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
	var out []int
	for i := range list {
		x := &list[i]
		if x.Kernel || x.Exited || asked[x.PID] || !slices.Contains(of, x.TID) {
			continue
		}
		asked[x.PID] = true
		if time.Now().After(end) {
			break
		}
		children, _ := bounded(t, x.PID, "children", func() ([]int, error) { return t.beside(pool{of: x.PID}) }) // nil: none is known
		for _, pid := range children {
			if !known[pid] && len(out) < maxSiblings {
				known[pid] = true
				out = append(out, pid)
			}
		}
	}
	slices.Sort(out)
	return out
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

// comm reads the name of a task.
func (t *Table) comm(tid int) (string, error) {
	dir, err := os.Open(filepath.Join(t.opts.Proc, strconv.Itoa(tid)))
	if err != nil {
		return "", err
	}
	defer dir.Close()
	text, err := readIn(dir, "comm", maxStat)
	return strings.TrimSuffix(string(text), "\n"), err
}
