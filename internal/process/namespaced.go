package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxNamespaced bounds the threads of a process that are looked at.
const maxNamespaced = 4096

// HostThread returns the id here of a thread that its process knows by another: that of the
// innermost pid namespace. 0: there is no such thread, or it has ended.
func (t *Table) HostThread(pid, tid int) int {
	dir := filepath.Join(t.opts.Proc, strconv.Itoa(pid), "task")
	if ids := namespaced(filepath.Join(dir, strconv.Itoa(pid))); len(ids) == 1 {
		if _, err := os.Stat(filepath.Join(dir, strconv.Itoa(tid))); err != nil {
			return 0
		}
		return tid
	}
	d, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxNamespaced)
	for _, name := range names {
		ids := namespaced(filepath.Join(dir, name))
		if len(ids) > 0 && ids[len(ids)-1] == tid {
			return ids[0]
		}
	}
	return 0
}

// ThreadsHere returns the ids here of the threads of a process, by those that it knows them by:
// those of the innermost pid namespace. Of more than 4,096 threads the rest is missing.
func (t *Table) ThreadsHere(pid int) map[int]int {
	dir := filepath.Join(t.opts.Proc, strconv.Itoa(pid), "task")
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	same := len(namespaced(filepath.Join(dir, strconv.Itoa(pid)))) == 1
	names, _ := d.Readdirnames(maxNamespaced)
	here := make(map[int]int, len(names))
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil && same {
			here[tid] = tid
		} else if ids := namespaced(filepath.Join(dir, name)); len(ids) > 0 {
			here[ids[len(ids)-1]] = ids[0]
		}
	}
	return here
}

// ThreadInside returns the id that a process knows one of its threads by: that of the
// innermost pid namespace. 0: there is no such thread, or it has ended.
func (t *Table) ThreadInside(pid, tid int) int {
	ids := namespaced(filepath.Join(t.opts.Proc, strconv.Itoa(pid), "task", strconv.Itoa(tid)))
	if len(ids) == 0 {
		return 0
	}
	return ids[len(ids)-1]
}

// namespaced are the ids of a thread in its pid namespaces, this one first.
func namespaced(dir string) (ids []int) {
	text, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		list, ok := strings.CutPrefix(line, "NSpid:")
		if !ok {
			continue
		}
		for _, f := range strings.Fields(list) {
			id, err := strconv.Atoi(f)
			if err != nil {
				return nil
			}
			ids = append(ids, id)
		}
		return slices.Clip(ids)
	}
	return nil
}

// ThreadName returns what a thread calls itself; "": it has ended.
func (t *Table) ThreadName(tid int) string {
	text, err := os.ReadFile(filepath.Join(t.opts.Proc, strconv.Itoa(tid), "comm"))
	if err != nil {
		return ""
	}
	return clean(strings.TrimSuffix(string(text), "\n"), maxCmdline)
}
