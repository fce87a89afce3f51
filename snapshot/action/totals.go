package action

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// What an action has exceeded together with others. It is the newest of those that run.
const (
	overTotalCPU    = "CPU time of all actions"
	overTotalMemory = "memory of all actions"
)

// totalWindow is for how long actions may use more CPU time than they may together.
const totalWindow = 3 * time.Second

// tolerance is for what is used between two reports: whom the kernel slows down to the limit
// is not ended.
const tolerance = 1.1

// usage is what an action has said that it uses.
type usage struct {
	number uint64 // the newest has the largest
	cpu    time.Duration
	memory int64
	over   chan string // gets what was exceeded, once, if this one is to end
	ending bool
}

// totals limits what all actions use together. Its methods may be called concurrently.
type totals struct {
	mu      sync.Mutex
	cpu     float64 // share of the time of all CPUs; 0: no limit
	memory  int64   // bytes; 0: no limit
	running map[*usage]bool
	number  uint64

	spent time.Duration // CPU time of all actions so far
	marks []mark        // of spent, for at most totalWindow
}

// mark is what was spent at a time.
type mark struct {
	at    time.Time
	spent time.Duration
}

func (t *totals) limited() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cpu > 0 || t.memory > 0
}

func (t *totals) begin() *usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number++
	u := &usage{number: t.number, over: make(chan string, 1)}
	if t.running == nil {
		t.running = map[*usage]bool{}
	}
	t.running[u] = true
	return u
}

func (t *totals) end(u *usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, u)
	if len(t.running) == 0 {
		t.marks = nil
	}
}

// uses takes in what an action uses now, and ends the newest if that is too much.
func (t *totals) uses(u *usage, cpu time.Duration, memory int64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spent += max(0, cpu-u.cpu)
	u.cpu, u.memory = max(u.cpu, cpu), memory
	sum, newest := int64(0), (*usage)(nil)
	for r := range t.running {
		if r.ending { // what it has is about to be free
			continue
		}
		sum += r.memory
		if newest == nil || r.number > newest.number {
			newest = r
		}
	}
	switch {
	case newest == nil:
	case t.memory > 0 && sum > t.memory:
		newest.end(overTotalMemory)
	case t.cpu > 0 && t.tooFast(now):
		newest.end(overTotalCPU)
		t.marks = nil // the others have as long again
	}
}

func (u *usage) end(why string) {
	u.ending = true
	u.over <- why
}

// tooFast reports whether more than the limit was used in a whole window.
func (t *totals) tooFast(now time.Time) bool {
	t.marks = append(t.marks, mark{now, t.spent})
	first := t.marks[0]
	took := now.Sub(first.at)
	if took < totalWindow {
		return false
	}
	for len(t.marks) > 1 && now.Sub(t.marks[1].at) >= totalWindow {
		t.marks = t.marks[1:]
	}
	return float64(t.spent-first.spent) > tolerance*t.cpu*float64(took)*float64(runtime.NumCPU())
}

// set changes the limits, and tells the kernel those of a cgroup that all actions are in, as
// far as its controllers were delegated.
func (t *totals) set(cpu float64, memory int64, cgroup string) {
	t.mu.Lock()
	t.cpu, t.memory, t.marks = cpu, memory, nil
	t.mu.Unlock()
	if cgroup == "" {
		return
	}
	const period = 100_000 // us
	quota, most := "max", "max"
	if cpu > 0 {
		quota = strconv.Itoa(max(1000, int(cpu*float64(runtime.NumCPU())*period)))
	}
	if memory > 0 {
		most = strconv.FormatInt(memory, 10)
	}
	for name, value := range map[string]string{"cpu.max": quota + " " + strconv.Itoa(period), "memory.max": most} {
		_ = os.WriteFile(filepath.Join(cgroup, name), []byte(value), 0) // if not, uses remains
	}
}
