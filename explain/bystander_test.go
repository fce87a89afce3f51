package explain

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// simInterrupts is what interrupts of a simulated machine have done on top of tasks that
// have nothing to do with it.
type simInterrupts struct {
	stray []uint64 // requests that nobody here has asked for, under way
	next  uint64
	kinds map[string]int
}

// simRequest is a request to the simulated disk; tid 0: an interrupt submitted it.
type simRequest struct {
	rq       uint64
	tid      int
	from, to uint64
	cpu      int // where it completed
	current  int // and who was interrupted then
}

func (s *simulation) answered(rq uint64, cpu int) {
	for i := range s.asked {
		if r := &s.asked[i]; r.rq == rq && r.to == forever {
			r.to, r.cpu, r.current = s.now, cpu, s.current(cpu)
		}
	}
}

// sleeper finds a task that sleeps, and not for the disk.
func (s *simulation) sleeper() *simTask {
	for range 4 {
		if t := s.tasks[s.rnd.IntN(len(s.tasks))]; t.state == "blocked" && s.owner[0xffff0000+uint64(t.tid)] == nil {
			return t
		}
	}
	return nil
}

// wakeIn wakes a task from a context, of which the wake-up alone tells.
func (s *simulation) wakeIn(cpu int, t *simTask, context uint32, cause Cause, waker int) {
	s.become(t, "runnable", cause, waker)
	s.emit(newRecord(trace.SchedWaking, s.now, cpu, s.current(cpu)).u32(abi.OffWakeTid, uint32(t.tid)).
		u32(abi.OffWakePid, uint32(t.tid)).u32(abi.OffWakePrio, 120).u32(abi.OffWakeTargetCpu, uint32(t.cpu)).
		u32(abi.OffWakeContext, context))
}

// softirq runs what it does within a softirq that receives packets.
func (s *simulation) softirq(cpu int, do func()) {
	s.emit(newRecord(trace.SoftirqEntry, s.now, cpu, s.current(cpu)).u32(abi.OffSoftirqVec, softirqNetRX).u32(abi.OffSoftirqIrq, ^uint32(0)))
	s.now++
	do()
	s.now++
	s.emit(newRecord(trace.SoftirqExit, s.now, cpu, s.current(cpu)).u32(abi.OffSoftirqVec, softirqNetRX))
}

// interrupt has an interrupt do something on top of whatever runs.
func (s *simulation) interrupt(cpu int) {
	h, current := s.hostile, s.current(cpu)
	kind := []string{"remote packet", "local packet", "unhooked packet", "short interrupt", "timer", "stray request", "stray answer", "sent packet"}[s.rnd.IntN(8)]
	t := s.sleeper()
	const netRX = abi.WakerSoftirq | softirqNetRX
	switch {
	case kind == "stray request": // a queue that is run again
		rq := 0xeeee0000 + h.next
		h.next++
		s.emit(newRecord(trace.IRQEntry, s.now, cpu, current).u32(abi.OffIrqIrq, 24))
		s.emit(newRecord(trace.BlockIssue, s.now, cpu, current).u64(abi.OffBlockRq, rq).u64(abi.OffBlockSector, 8*h.next).
			u32(abi.OffBlockDev, 8<<20).u32(abi.OffBlockBytes, 1<<20))
		s.emit(newRecord(trace.IRQExit, s.now+1, cpu, current).u32(abi.OffIrqIrq, 24))
		h.stray = append(h.stray, rq)
		s.asked = append(s.asked, simRequest{rq: rq, from: s.now, to: forever})
	case kind == "stray answer" && len(h.stray) > 0:
		rq := h.stray[0]
		h.stray = h.stray[1:]
		s.emit(newRecord(trace.IRQEntry, s.now, cpu, current).u32(abi.OffIrqIrq, 24))
		s.emit(newRecord(trace.BlockComplete, s.now, cpu, current).u64(abi.OffBlockRq, rq).u32(abi.OffBlockDev, 8<<20).u32(abi.OffBlockBytes, 1<<20))
		s.answered(rq, cpu)
		s.emit(newRecord(trace.IRQExit, s.now+1, cpu, current).u32(abi.OffIrqIrq, 24))
	case t == nil || kind == "stray answer":
		return
	case kind == "remote packet": // by an interrupt of another CPU, which has no handler
		s.softirq(cpu, func() { s.wakeIn(cpu, t, netRX|abi.WakerRemote, Network, 0) })
	case kind == "local packet":
		if current == 0 {
			return
		}
		s.softirq(cpu, func() { s.wakeIn(cpu, t, netRX|abi.WakerLocal, Task, current) })
	case kind == "sent packet": // its address tells, whoever is interrupted where it arrives
		to, from := s.rnd.IntN(len(s.cpus)), s.current(cpu)
		if from == 0 {
			return
		}
		s.emit(newRecord(trace.NetQueue, s.now, cpu, from).u64(abi.OffNetSkb, 77))
		s.now++
		s.softirq(to, func() {
			s.emit(newRecord(trace.NetReceive, s.now, to, s.current(to)).u64(abi.OffNetSkb, 77))
			s.wakeIn(to, t, netRX|abi.WakerRemote, Task, from)
		})
		cpu = to
	case kind == "unhooked packet":
		s.wakeIn(cpu, t, netRX|abi.WakerRemote, Network, 0)
	case kind == "short interrupt":
		s.wakeIn(cpu, t, abi.WakerIrq|24, IRQ, 0)
	case kind == "timer":
		s.wakeIn(cpu, t, abi.WakerHrtimer, t.byTimer(), 0)
	}
	s.now += 3
	h.kinds[kind]++
}

// involved adds the tasks that took part in what a task did: who woke it, what those did
// meanwhile, who had its CPU, who used its disk.
func (s *simulation) involved(tid int, from, to uint64, in map[int]bool, depth int) {
	in[tid] = true
	t := s.tasks[tid-1001]
	for _, x := range t.truth {
		lo, hi := max(x.from, from), min(x.to, to)
		switch {
		case lo >= hi || depth > maxDepth:
		case x.state == "runnable":
			for _, other := range s.tasks {
				for _, y := range other.truth {
					if other.cpu == t.cpu && y.state == "running" && max(y.from, lo) < min(y.to, hi) {
						in[other.tid] = true
					}
				}
			}
		case x.state == "blocked" && x.cause == BlockDevice:
			s.submitters(lo, hi, in)
		case x.state == "blocked" && x.waker != 0:
			s.involved(x.waker, lo, hi, in, depth+1)
		}
	}
}

// submitters adds the tasks with requests under way.
func (s *simulation) submitters(from, to uint64, in map[int]bool) {
	for _, r := range s.asked {
		if r.tid != 0 && max(r.from, from) < min(r.to, to) {
			in[r.tid] = true
		}
	}
}

var taskNamed = regexp.MustCompile(`task (\d+)`)

// namedTasks returns the tasks that an explanation names anywhere.
func namedTasks(t *testing.T, r *Result) map[int]bool {
	names := map[int]bool{}
	var who func(w *Who)
	who = func(w *Who) {
		if w == nil {
			return
		}
		if w.TID != 0 {
			names[w.TID] = true
		}
		who(w.For)
	}
	for _, list := range [][]Part{r.Parts, r.Roots, r.Chain} {
		for i := range list {
			who(list[i].By)
			if b := list[i].Behalf; b != nil {
				who(b.Client)
			}
		}
	}
	for i := range r.Path {
		p := &r.Path[i]
		who(p.By)
		who(p.Waker)
		who(&p.Task)
	}
	who(&r.Task)
	if r.Behalf != nil {
		who(r.Behalf.Client)
	}
	for _, m := range taskNamed.FindAllStringSubmatch(r.Verdict+r.Advice, -1) {
		n, err := strconv.Atoi(m[1])
		assert.NilError(t, err)
		names[n] = true
	}
	return names
}

// TestNoBystanderIsNamed: whoever an interrupt has interrupted took no part in what it did.
// Work without a thread, whose exit is such an interrupt, names nobody but who asked for it
// and who used the same device.
func TestNoBystanderIsNamed(t *testing.T) {
	kinds, outliers, confidences := map[string]int{}, 0, map[Confidence]int{}
	for seed := range uint64(120) {
		s := newSimulation(seed, 1+int(seed%4), 2+int(seed%9))
		s.hostile = &simInterrupts{kinds: kinds}
		s.run(600)
		end := s.now
		s.now++
		for _, task := range s.tasks {
			s.become(task, "over", "", 0)
		}
		all := s.events(t)
		ask := func(o Outlier, in map[int]bool) {
			src := all
			r := explained(t, &src, []Outlier{o}, Names{}).Outliers[0]
			outliers++
			confidences[r.Confidence]++
			for tid := range namedTasks(t, &r) {
				if !in[tid] {
					t.Fatalf("seed %d, %+v: %d took no part, only %v did: %s\n%+v", seed, o, tid, slices.Sorted(maps.Keys(in)), r.Verdict, r.Path)
				}
			}
		}
		for _, task := range s.tasks {
			from := 1_000_001 + s.rnd.Uint64N(end-1_000_001)
			o := Outlier{Track: "pair", Rule: "r", TID: task.tid, Start: from, End: min(end, from+1+s.rnd.Uint64N(end-from+1))}
			in := map[int]bool{}
			s.involved(task.tid, o.Start, o.End+lateEvents, in, 0)
			ask(o, in)
		}
		for _, r := range s.asked[:min(len(s.asked), 6)] {
			if r.to > end {
				continue
			}
			in := map[int]bool{}
			s.submitters(r.from, r.to, in)
			ask(Outlier{Track: "pair", Rule: "rq", TID: r.current, Start: r.from, End: r.to, Key: map[string]uint64{"rq": r.rq}}, in)
			ask(Outlier{Track: "pair", Rule: "req", TID: r.current, Start: r.from, End: r.to, Key: map[string]uint64{"req": 12345}}, nil)
			ask(Outlier{Track: "span", Rule: "span", TID: r.current, Start: r.from, End: r.to, Began: "another"}, nil)
		}
	}
	t.Logf("%d outliers, %v, interrupts %v", outliers, confidences, kinds)
	for kind, n := range kinds {
		assert.Check(t, n > 100, "%d times %s", n, kind)
	}
	assert.Check(t, len(kinds) == 8 && outliers > 2000 && confidences[Seen] > 500 && confidences[Inferred] > 100, "%v", confidences)
}
