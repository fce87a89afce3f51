package process

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"time"
)

// Listening is a socket of TCP that listens on a port, in the network namespace of a process.
type Listening struct {
	PID  int
	Port uint16
}

// Listeners looks up whose the sockets are, by their ports and namespaces, as far as limit permits:
// of processes that share one, that with the lowest number, and the first process of all, which may
// only have opened it for another, last.
func (t *Table) Listeners(of []Listening, limit time.Duration) map[Listening]int {
	spaces, owners := map[Listening]string{}, map[Listening]int{}
	for _, l := range of {
		if s := t.space(l.PID); s != "" {
			spaces[l] = s
		}
	}
	if len(spaces) == 0 {
		return owners
	}
	wanted := slices.Collect(maps.Values(spaces))
	pids := slices.DeleteFunc(t.allPIDs(), func(pid int) bool { return !slices.Contains(wanted, t.space(pid)) })
	for _, s := range t.endpoints(pids, "listeners", limit) {
		for l, space := range spaces {
			if old := owners[l]; (old == 0 || old == 1) && s.space == space && slices.Contains(s.ports, l.Port) {
				owners[l] = s.PID
			}
		}
	}
	return owners
}

// space is the network namespace of a process; "": not known.
func (t *Table) space(pid int) string {
	s, _ := os.Readlink(t.inProc(pid, "ns/net"))
	return s
}

// allPIDs returns the numbers of all processes, in order.
func (t *Table) allPIDs() (pids []int) {
	dir, err := os.Open(t.opts.Proc)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
