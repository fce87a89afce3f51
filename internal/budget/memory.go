package budget

import "time"

// Least heap that the daemon gets, whatever its maps take, without the history.
const leastHeap = 64 << 20

// AutoMemory as the configured limit leaves it to MemoryLimit.
const AutoMemory = -1

// usualMemory is enough where the recorder's rings are those of a machine with few CPUs.
const usualMemory = 256 << 20

// MemoryLimit is the budget in bytes for what is configured; 0: none. With AutoMemory it is
// 256 MiB, or what the maps and the least heap take: with many CPUs, or few that are so busy
// that the rings grow, the usual would drop caches all the time, and free little.
func MemoryLimit(configured, maps, rings int64) int64 {
	if configured != AutoMemory {
		return configured
	}
	return max(usualMemory, maps+heapFor(rings))
}

// heapFor is the heap that the daemon gets in any case, in bytes.
func heapFor(rings int64) int64 { return leastHeap + 2*rings }

// HeapLimit is the limit of the daemon's heap in bytes: what the maps of the kernel side, of
// which rings are those of the recorder, leave of a budget. The heap has room for the history
// that is read from the rings, and for a snapshot of it, in any case: the collector would run
// all the time with less, and free nothing. 0: no budget.
func HeapLimit(memory, maps, rings int64) int64 {
	if memory <= 0 {
		return 0
	}
	return max(memory-maps, heapFor(rings))
}

// Memory decides when caches are dropped. It is not safe for concurrent use.
type Memory struct {
	Limit int64 // bytes; 0: none

	last    time.Duration
	dropped bool
	Drops   uint64
}

// Step reports whether to drop caches, given the memory in use: above the
// limit, once a minute.
func (m *Memory) Step(at time.Duration, used int64) (drop bool) {
	since := at - m.last
	if m.Limit <= 0 || used <= m.Limit || m.dropped && since >= 0 && since < time.Minute {
		return false
	}
	m.last, m.dropped = at, true
	m.Drops++
	return true
}
