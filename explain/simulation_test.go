package explain

import (
	"math/rand/v2"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// simulation is a machine that runs tasks at random, and remembers what they
// really did. Its tasks run, are preempted, sleep until a timer, wait for each
// other, for a disk, and for packets; interrupts come in between.
type simulation struct {
	rnd     *rand.Rand
	now     uint64
	tasks   []*simTask
	cpus    []*simTask // who runs; nil: idle
	records []trace.Record
	flight  []uint64 // requests under way, by address
	owner   map[uint64]*simTask
	hostile *simInterrupts // nil: interrupts come in order, and say all
	asked   []simRequest
}

type simTask struct {
	tid, cpu int
	state    string
	since    uint64
	bits     uint32 // state of the kernel while it is blocked
	truth    []simStretch
}

// byTimer is why a task slept that a timer wakes: it can wish for that interruptibly alone.
func (t *simTask) byTimer() Cause {
	if t.bits == taskUninterruptible {
		return Limited
	}
	return Timer
}

type simStretch struct {
	from, to uint64
	state    string
	cause    Cause // blocked
	waker    int
}

func newSimulation(seed uint64, cpus, tasks int) *simulation {
	s := &simulation{rnd: rand.New(rand.NewPCG(seed, 1)), now: 1_000_000, cpus: make([]*simTask, cpus), owner: map[uint64]*simTask{}}
	for i := range tasks {
		s.tasks = append(s.tasks, &simTask{tid: 1001 + i, state: "blocked", since: s.now, cpu: i % cpus})
	}
	for n := range s.cpus { // each CPU says at once what it does: nothing
		s.records = append(s.records, newRecord(trace.CPUIdle, s.now, n, 0).u32(abi.OffPowerCpu, uint32(n)).r)
	}
	return s
}

func (s *simulation) emit(x *record) { s.records = append(s.records, x.r) }

func (s *simulation) become(t *simTask, state string, cause Cause, waker int) {
	if s.now > t.since {
		t.truth = append(t.truth, simStretch{t.since, s.now, t.state, cause, waker})
	}
	t.state, t.since = state, s.now
}

func (s *simulation) current(cpu int) int {
	if t := s.cpus[cpu]; t != nil {
		return t.tid
	}
	return 0
}

// run lets something happen so many times.
func (s *simulation) run(steps int) {
	for range steps {
		s.now += 1 + s.rnd.Uint64N(20_000)
		cpu := s.rnd.IntN(len(s.cpus))
		if s.hostile != nil && s.rnd.IntN(2) == 0 {
			s.interrupt(cpu)
			continue
		}
		switch s.rnd.IntN(7) {
		case 0, 1:
			s.reschedule(cpu)
		case 2:
			s.wake(cpu, "timer")
		case 3, 4:
			s.wake(cpu, "task")
		case 5:
			s.wake(cpu, "disk")
		case 6:
			s.wake(cpu, "network")
		}
	}
}

// reschedule takes the CPU's task off it, for one reason or another, and lets another run.
func (s *simulation) reschedule(cpu int) {
	prev, next := s.cpus[cpu], (*simTask)(nil)
	for _, t := range s.tasks {
		if t.state == "runnable" && t.cpu == cpu && (next == nil || s.rnd.IntN(2) == 0) {
			next = t
		}
	}
	if prev == next {
		return
	}
	state := uint32(0)
	x := newRecord(trace.SchedSwitch, s.now, cpu, s.current(cpu))
	if prev != nil {
		if next == nil || s.rnd.IntN(3) > 0 {
			state = 1 + uint32(s.rnd.IntN(2))
			prev.bits = state
			s.become(prev, "blocked", "", 0)
			if s.rnd.IntN(2) == 0 { // it has asked the disk for something
				rq := 0xffff0000 + uint64(prev.tid)
				s.emit(newRecord(trace.BlockIssue, s.now, cpu, prev.tid).u64(abi.OffBlockRq, rq).
					u64(abi.OffBlockSector, 8*uint64(prev.tid)).u32(abi.OffBlockDev, 8<<20).u32(abi.OffBlockBytes, 4096))
				s.flight, s.owner[rq] = append(s.flight, rq), prev
				s.asked = append(s.asked, simRequest{rq: rq, tid: prev.tid, from: s.now, to: forever})
				s.now++
				prev.since = s.now
				x.u64(abi.OffTimeNs, s.now)
				last := &prev.truth[len(prev.truth)-1]
				last.to = s.now
			}
		} else {
			s.become(prev, "runnable", "", 0)
		}
	}
	nextTID := 0
	if next != nil {
		nextTID = next.tid
		s.become(next, "running", "", 0)
	}
	s.cpus[cpu] = next
	s.emit(x.u32(abi.OffSwitchNextTid, uint32(nextTID)).u32(abi.OffSwitchNextPid, uint32(nextTID)).
		u16(abi.OffSwitchPrevPrio, 120).u16(abi.OffSwitchNextPrio, 120).u32(abi.OffSwitchPrevState, state))
}

// wake lets a sleeper be woken, if there is one.
func (s *simulation) wake(cpu int, by string) {
	var sleeper *simTask
	cause, waker := Timer, 0
	current := s.current(cpu)
	var begin, end *record
	if by == "disk" {
		if len(s.flight) == 0 {
			return
		}
		rq := s.flight[0]
		s.flight, sleeper, cause = s.flight[1:], s.owner[rq], BlockDevice
		s.answered(rq, cpu)
		s.emit(newRecord(trace.SoftirqEntry, s.now, cpu, current).u32(abi.OffSoftirqVec, softirqBlock))
		s.emit(newRecord(trace.BlockComplete, s.now, cpu, current).u64(abi.OffBlockRq, rq).
			u64(abi.OffBlockSector, 8*uint64(sleeper.tid)).u32(abi.OffBlockDev, 8<<20).u32(abi.OffBlockBytes, 4096))
		end = newRecord(trace.SoftirqExit, s.now+3, cpu, current).u32(abi.OffSoftirqVec, softirqBlock)
		delete(s.owner, rq)
		if sleeper.state != "blocked" {
			s.now += 3
			s.emit(end)
			return
		}
	}
	for range 4 {
		if t := s.tasks[s.rnd.IntN(len(s.tasks))]; sleeper == nil && t.state == "blocked" && s.owner[0xffff0000+uint64(t.tid)] == nil {
			sleeper = t
		}
	}
	if sleeper == nil {
		return
	}
	switch by {
	case "timer":
		cause = sleeper.byTimer()
		begin = newRecord(trace.HrtimerEntry, s.now, cpu, current).
			u64(abi.OffHrtimerHrtimer, 7).u64(abi.OffHrtimerFunction, 9)
		end = newRecord(trace.HrtimerExit, s.now+3, cpu, current).u64(abi.OffHrtimerHrtimer, 7)
	case "network":
		s.emit(newRecord(trace.IRQEntry, s.now, cpu, current).u32(abi.OffIrqIrq, 24))
		s.emit(newRecord(trace.IRQExit, s.now+1, cpu, current).u32(abi.OffIrqIrq, 24))
		s.now++
		begin = newRecord(trace.SoftirqEntry, s.now, cpu, current).u32(abi.OffSoftirqVec, softirqNetRX)
		end = newRecord(trace.SoftirqExit, s.now+3, cpu, current).u32(abi.OffSoftirqVec, softirqNetRX)
		cause = Network
	case "task":
		if current == 0 {
			return
		}
		cause, waker = Task, current
	}
	if begin != nil {
		s.emit(begin)
	}
	s.become(sleeper, "runnable", cause, waker)
	s.emit(newRecord(trace.SchedWaking, s.now, cpu, current).u32(abi.OffWakeTid, uint32(sleeper.tid)).
		u32(abi.OffWakePid, uint32(sleeper.tid)).u32(abi.OffWakePrio, 120).u32(abi.OffWakeTargetCpu, uint32(sleeper.cpu)))
	if end != nil {
		s.now += 3
		s.emit(end)
	}
}

func (s *simulation) events(t testing.TB) events {
	var out events
	for i := range s.records {
		ev, err := s.records[i].Decode()
		assert.NilError(t, err)
		out = append(out, ev)
	}
	return out
}

// TestTruthOfSimulatedMachines: what is said of a task is what it did: its own
// states at depth 0, what ended each of its waits, and who.
func TestTruthOfSimulatedMachines(t *testing.T) {
	causes := map[Cause]int{}
	for seed := range uint64(300) {
		s := newSimulation(seed, 1+int(seed%4), 2+int(seed%9))
		if seed%2 == 1 {
			s.hostile = &simInterrupts{kinds: map[string]int{}}
		}
		s.run(400)
		end := s.now
		s.now++
		for _, task := range s.tasks {
			s.become(task, "over", "", 0)
		}
		all := s.events(t)
		for _, task := range s.tasks {
			from := 1_000_000 + s.rnd.Uint64N(end-1_000_000)
			o := Outlier{Track: "pair", Rule: "r", TID: task.tid, Start: from, End: from + 1 + s.rnd.Uint64N(end-from+1)}
			o.End = min(o.End, end)
			src := all
			r := explained(t, &src, []Outlier{o}, Names{}).Outliers[0]
			open := false
			want, got := map[string]int64{}, map[string]int64{}
			for _, x := range task.truth {
				lo, hi := max(x.from, o.Start), min(x.to, o.End)
				if lo >= hi {
					continue
				}
				want[x.state] += int64(hi - lo)
				switch {
				case x.state != "blocked":
				case x.cause == "" || x.to > o.End+lateEvents: // what ends it is past all that is read
					open = true
				default:
					want[string(x.cause)] += int64(hi - lo)
					causes[x.cause]++
				}
			}
			for i := range r.Path {
				p := &r.Path[i]
				if p.Depth > 0 {
					continue
				}
				state := p.State
				if state == "interrupted" {
					state = "running"
				}
				got[state] += int64(p.ToMonoNS - p.FromMonoNS)
				if state == "blocked" {
					c := p.Cause
					if c == BlockQueue {
						c = BlockDevice // it was behind others in the device
					}
					got[string(c)] += int64(p.ToMonoNS - p.FromMonoNS)
				}
			}
			for k, ns := range want {
				if open {
					break
				}
				if got[k] != ns {
					t.Fatalf("seed %d, task %d, [%d, %d]: %s for %d ns, want %d\n%v\n%v\n%+v\n%+v", seed, task.tid, o.Start, o.End, k, got[k], ns, want, got, task.truth, r.Path)
				}
			}
		}
	}
	for _, c := range []Cause{Timer, Task, BlockDevice, Network} {
		assert.Check(t, causes[c] >= 100, "only %d waits of cause %s were simulated: %v", causes[c], c, causes)
	}
}

// TestSumsOfAnything: parts and path add up whatever the trace is: records that
// are missing, that are torn, that come twice.
func TestSumsOfAnything(t *testing.T) {
	for seed := range uint64(400) {
		s := newSimulation(seed, 1+int(seed%5), 2+int(seed%7))
		s.run(300)
		rnd := rand.New(rand.NewPCG(seed, 2))
		var list events
		for _, ev := range s.events(t) {
			switch rnd.IntN(12) {
			case 0:
				continue
			case 1:
				list = append(list, ev)
			case 2: // something else, of the same moment
				var r trace.Record
				for i := range r {
					r[i] = byte(rnd.Uint32())
				}
				x := &record{r}
				x.u16(abi.OffType, uint16(1+rnd.IntN(int(trace.Interrupts)))).u16(abi.OffCpu, uint16(ev.CPU)).
					u32(abi.OffTid, uint32(1001+rnd.IntN(8))).u64(abi.OffTimeNs, ev.Time)
				if other, err := x.r.Decode(); err == nil {
					list = append(list, other)
				}
			}
			list = append(list, ev)
		}
		var outliers []Outlier
		for i := range 6 {
			from := 900_000 + rnd.Uint64N(s.now-900_000)
			outliers = append(outliers, Outlier{
				Rule: "r", Track: tracks[rnd.IntN(len(tracks))], TID: 1001 + i, CPU: i % 3, Start: from, End: from + rnd.Uint64N(2_000_000), Name: "BLOCK", Raised: i%2 == 0,
			})
			if i >= 3 {
				outliers[i].Key = map[string]uint64{"rq": 0xffff0000 + uint64(1001+i)}
			}
		}
		var names Names
		if seed%2 == 0 { // and whatever is said of what there is
			names.Covered = map[int][]Interval{}
			for cpu := range 1 + rnd.IntN(6) {
				at := 800_000 + rnd.Uint64N(1_000_000)
				for range rnd.IntN(4) {
					to := at + rnd.Uint64N(2_000_000)
					names.Covered[cpu] = append(names.Covered[cpu], Interval{at, to})
					at = to + rnd.Uint64N(500_000)
				}
			}
		}
		explained(t, &list, outliers, names)
	}
}

// TestMissingSwitches: kernels leave out a switch at times. What is known beside
// stays known, as each event tells who ran.
func TestMissingSwitches(t *testing.T) {
	var right, wrong, unexplained, all int64
	for seed := range uint64(100) {
		s := newSimulation(seed, 1+int(seed%4), 2+int(seed%9))
		s.run(400)
		end := s.now
		s.now++
		for _, task := range s.tasks {
			s.become(task, "over", "", 0)
		}
		rnd := rand.New(rand.NewPCG(seed, 3))
		var kept events
		for _, ev := range s.events(t) {
			if ev.Type != trace.SchedSwitch || rnd.IntN(10) > 0 {
				kept = append(kept, ev)
			}
		}
		for _, task := range s.tasks {
			o := Outlier{Track: "pair", Rule: "r", TID: task.tid, Start: 1_000_001, End: end}
			src := kept
			r := explained(t, &src, []Outlier{o}, Names{}).Outliers[0]
			for i := range r.Path {
				p := &r.Path[i]
				if p.Depth > 0 {
					continue
				}
				all += int64(p.ToMonoNS - p.FromMonoNS)
				if p.State == "unknown" {
					unexplained += int64(p.ToMonoNS - p.FromMonoNS)
					continue
				}
				for _, x := range task.truth {
					lo, hi := max(x.from, p.FromMonoNS), min(x.to, p.ToMonoNS)
					if lo >= hi {
						continue
					}
					if x.state == p.State || x.state == "running" && p.State == "interrupted" {
						right += int64(hi - lo)
					} else {
						wrong += int64(hi - lo)
					}
				}
			}
		}
	}
	t.Logf("of %d us with a tenth of all switches missing: %.1f %% right, %.1f %% wrong, %.1f %% unexplained", all/1000,
		percent(right, all), percent(wrong, all), percent(unexplained, all))
	assert.Check(t, percent(right, all) >= 80 && percent(wrong, all) <= 10, "more than that must be known")
}
