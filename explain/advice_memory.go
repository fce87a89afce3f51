package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func (w *walker) adviseReclaim(a *advised) string {
	if a.By.Kind != KindCgroup {
		return fmt.Sprintf("The machine is short of memory: check what uses it (memory.current of its cgroups%s); vm.watermark_scale_factor%s has kswapd begin earlier.",
			w.m.memoryUsers("/", 0), w.m.now("vm.watermark_scale_factor"))
	}
	return w.adviseMemory(a.By, "memory.high or memory.max")
}

// adviseMemory is about a cgroup that has reached a limit of its memory.
func (w *walker) adviseMemory(by *Who, limits string) string {
	_, value, _ := strings.Cut(by.Limit, " ")
	limit, _ := strconv.ParseInt(value, 10, 64)
	return raise(by, limits) + ", or check what uses it" + w.m.memoryUsers(by.Cgroup, limit) + "."
}

// manyBytes is the anonymous memory of a process that is worth a word where no limit is known.
const manyBytes = 64 << 20

// memoryUsers names the processes of the trace that have most anonymous memory in a cgroup, two at
// most: one that has a tenth of the limit, and one that has at least half as much as the other.
func (m *model) memoryUsers(cgroup string, limit int64) string {
	if m.names.Tasks == nil || cgroup == "" {
		return ""
	}
	type user struct {
		pid   int
		bytes int64
	}
	var all []user
	for _, tid := range m.names.Tasks() {
		f, _ := m.taskInfo(tid)
		known := slices.ContainsFunc(all, func(u user) bool { return u.pid == f.PID })
		if f.Anonymous > 0 && !known && within(cmp.Or(f.MemoryCgroup, f.Cgroup), cgroup) {
			all = append(all, user{f.PID, f.Anonymous})
		}
	}
	slices.SortFunc(all, func(a, b user) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.pid, b.pid)) })
	least := int64(manyBytes)
	if limit > 0 {
		least = limit / 10
	}
	if len(all) == 0 || all[0].bytes < least {
		return ""
	}
	text := fmt.Sprintf(": %s has %s of anonymous memory", m.whoTask(all[0].pid).Name, roughBytes(uint64(all[0].bytes)))
	if len(all) > 1 && all[1].bytes >= all[0].bytes/2 {
		text += fmt.Sprintf(", and %s has %s", m.whoTask(all[1].pid).Name, roughBytes(uint64(all[1].bytes)))
	}
	return text
}

func (w *walker) adviseCompaction(*advised) string {
	return fmt.Sprintf("Contiguous memory was asked for, mostly for huge pages: check transparent_hugepage/defrag%s and vm.compaction_proactiveness%s.",
		w.m.now("transparent_hugepage/defrag"), w.m.now("vm.compaction_proactiveness"))
}

func (w *walker) advisePages(a *advised) string {
	if a.By.Kind != KindDevice {
		return ""
	}
	f, _ := w.m.taskInfo(a.who.TID)
	if f.Cgroup == "" || f.Cgroup == "/" {
		return fmt.Sprintf("Keep pages of %s in memory (mlock).", a.who.Name)
	}
	return fmt.Sprintf("Keep pages of %s in memory: mlock, or memory.low of its cgroup %s%s.", a.who.Name, f.Cgroup, w.m.own(f.Cgroup, "memory.low").now())
}
