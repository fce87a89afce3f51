package budget

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestNothingToDo(t *testing.T) {
	w := newWorld(t, 2, 0.01)
	w.run(time.Hour)
	assert.Check(t, is.Equal("", w.sequence()))
	assert.Check(t, math.Abs(w.meter.Sample(w.controller.IsShed).Share()-w.share) < 0.1*w.share, "believed %g, true %g",
		w.meter.Sample(w.controller.IsShed).Share(), w.share)

	w = newWorld(t, 2, 0) // no budget
	w.load = func(time.Duration) float64 { return 1 }
	w.run(time.Hour)
	assert.Check(t, is.Equal("", w.sequence()))
}

// TestLoadDoubles: what is shed, in which order, what comes back, and when; the
// same on 2 and on 256 CPUs.
func TestLoadDoubles(t *testing.T) {
	var first string
	for _, cpus := range []int{2, 256} {
		w := newWorld(t, cpus, 0.01)
		w.load = func(at time.Duration) float64 {
			if at > 10*time.Minute && at < 20*time.Minute {
				return 0.4
			}
			return 0.2
		}
		w.run(10 * time.Minute)
		assert.Check(t, is.Equal("", w.sequence()), "%d CPUs, before", cpus)
		assert.Check(t, w.share > 0.005 && w.share < 0.01, "%d CPUs: %g", cpus, w.share)
		w.run(10 * time.Minute)
		assert.Check(t, w.shedNow() != "" && w.share <= 0.01, "%d CPUs: shed %q, cost %g", cpus, w.shedNow(), w.share)
		assert.Check(t, w.steps[0].at <= 10*time.Minute+3*Window, "%d CPUs: shed at %s", cpus, w.steps[0].at)
		assert.Check(t, is.Equal("group sched", w.steps[len(w.steps)-1].part.String()), "%d CPUs", cpus)
		w.run(15 * time.Minute)
		assert.Check(t, is.Equal("", w.shedNow()), "%d CPUs, after", cpus)
		for _, s := range w.steps {
			if s.back && s.part.Name == "sched" {
				assert.Check(t, s.at >= 20*time.Minute+calm && s.at < 20*time.Minute+calm+6*Window, "%d CPUs: %s back at %s", cpus, s.part, s.at)
			}
		}
		if first == "" {
			first = w.sequence()
		}
		assert.Check(t, is.Equal(first, w.sequence()), "%d CPUs", cpus)
	}
}

// TestOrder: under a load that only silence meets, each part goes, in order of
// worth, and says so at the end; everything comes back afterwards, what is worth
// most first.
func TestOrder(t *testing.T) {
	w := newWorld(t, 2, 0.001)
	w.load = func(at time.Duration) float64 {
		if at > 10*time.Minute {
			return 0
		}
		return 1
	}
	w.rules[2].Priority = 10 // block
	w.run(10 * time.Minute)
	const want = "-group irq -group timer -histograms -user stacks -group block -group sched -rule block -rule wakeup -rule offcpu"
	assert.Check(t, strings.HasPrefix(w.sequence(), want), w.sequence())
	assert.Check(t, w.share < 0.002, "cost %g", w.share)
	w.run(30 * time.Minute)
	assert.Check(t, is.Equal("", w.shedNow()))
	for _, s := range w.steps {
		if s.at > 10*time.Minute && s.back {
			assert.Check(t, s.part == Part{Rule, "offcpu"} || s.part == Part{Kind: UserStacks}, "%+v", s)
			break
		}
	}

	w = newWorld(t, 2, 0.0001)
	w.load, w.own = func(time.Duration) float64 { return 1 }, 0.01
	w.run(10 * time.Minute)
	assert.Check(t, is.Contains(strings.Join(w.log, "\n"), "nothing is left to shed"))
}

// TestWakers: before a rule is shed, it is done without who wakes whom, which costs most; that is back
// before the recorder's switches are, as these need it.
func TestWakers(t *testing.T) {
	for _, measure := range []bool{true, false} {
		w := newWorld(t, 2, 0.01)
		w.less, w.measure = Wakers, measure
		w.load = func(at time.Duration) float64 {
			if at > 20*time.Minute {
				return 0.1
			}
			return 1
		}
		w.run(20 * time.Minute)
		assert.Check(t, strings.HasSuffix(w.shedNow(), "group sched, wakers"), "shed %q", w.shedNow())
		assert.Check(t, w.share <= 0.01, "cost %g", w.share)
		at := slices.IndexFunc(w.steps, func(s step) bool { return s.part == Part{Kind: Wakers} })
		assert.Check(t, w.steps[at].at > w.steps[at-1].at, "not in a step of its own: %s", w.sequence())
		last := len(w.steps)
		w.run(40 * time.Minute)
		assert.Check(t, is.Equal("", w.shedNow()))
		back := func(p Part) time.Duration {
			for _, s := range w.steps[last:] {
				if s.back && s.part == p {
					return s.at
				}
			}
			return 0
		}
		assert.Check(t, back(Part{Kind: Wakers}) < back(Part{Group, "sched"}), "%v", w.sequence())
	}
}

// TestAskers: before the rule on disks is shed, it is done without who asks for requests.
func TestAskers(t *testing.T) {
	for _, less := range []Kind{Askers, ""} {
		w := newWorld(t, 2, 0.01)
		w.less = less
		w.rules = w.rules[2:] // block alone
		w.prices["block_rq_issue"], w.prices["block_rq_complete"] = 20_000, 20_000
		w.load = func(at time.Duration) float64 {
			if at > 20*time.Minute {
				return 0.1
			}
			return 1
		}
		w.run(20 * time.Minute)
		want := "rule block"
		if less == Askers {
			want = "askers"
		}
		assert.Check(t, strings.HasSuffix(w.shedNow(), ", "+want), "shed %q", w.shedNow())
		assert.Check(t, w.share <= 0.01, "cost %g", w.share)
		w.run(60 * time.Minute)
		assert.Check(t, is.Equal("", w.shedNow()))
	}
}

// TestWrongPrices: prices that are wrong by ten times are put right where the
// kernel measures, before anything is shed for them. Where it does not, too much
// is shed for prices that are too high, the least worth first; too low ones
// cannot be known.
func TestWrongPrices(t *testing.T) {
	for _, tt := range []struct {
		name          string
		factor, load  float64
		measure, shed bool
	}{
		{"too high, measured", 10, 0.1, true, false},
		{"too high, assumed", 10, 0.08, false, true},
		{"too low, measured", 0.1, 0.5, true, true},
		{"too low, assumed", 0.1, 0.5, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 2, 0.01)
			w.measure, w.load = tt.measure, func(time.Duration) float64 { return tt.load }
			w.meter = newMeter(tt.measure)
			for _, p := range w.programs() {
				k := w.meter.price(&p)
				k.own *= tt.factor
				k.record *= tt.factor
			}
			w.meter.Advance(w.reading())
			w.run(6 * time.Minute)
			assert.Check(t, is.Equal(tt.shed, w.shedNow() != ""), "shed %q at %g", w.shedNow(), w.share)
			if tt.measure {
				assert.Check(t, !strings.Contains(w.shedNow(), "rule"), "shed %q", w.shedNow())
				assert.Check(t, w.share <= 0.01, "cost %g", w.share)
				believed := w.meter.Sample(w.controller.IsShed).Share()
				assert.Check(t, math.Abs(believed-w.share) < 0.2*w.share, "believed %g, true %g", believed, w.share)
			}
		})
	}
}

// TestPriceDrifts: a price that grows tenfold while tailcam runs, as with cold
// caches, is found within minutes.
func TestPriceDrifts(t *testing.T) {
	w := newWorld(t, 2, 0.01)
	w.load = func(time.Duration) float64 { return 0.2 }
	w.run(10 * time.Minute)
	assert.Check(t, is.Equal("", w.sequence()))
	for name := range w.prices {
		w.prices[name] *= 10
	}
	w.run(oldPrices + 4*Window)
	assert.Check(t, w.shedNow() != "" && w.share <= 0.01, "shed %q at %g", w.shedNow(), w.share)
}

// TestFlapping: a load that comes and goes at the worst moments moves parts ever
// more seldom.
func TestFlapping(t *testing.T) {
	w := newWorld(t, 2, 0.01)
	w.load = func(time.Duration) float64 {
		if w.shedNow() == "" {
			return 0.9
		}
		return 0.01
	}
	w.run(time.Hour)
	early := len(w.steps)
	w.run(11 * time.Hour)
	assert.Check(t, early <= 120, "%d steps in the first hour", early)
	assert.Check(t, len(w.steps)-early < 11*40, "%d steps in eleven hours", len(w.steps)-early)

	// A load at the limit does not move anything back and forth at all.
	w = newWorld(t, 2, 0.01)
	w.load = func(at time.Duration) float64 { return 0.48 + 0.05*float64(at/Window%2) }
	w.run(6 * time.Hour)
	for _, s := range w.steps {
		assert.Check(t, !s.back, "%+v", s)
	}
}

// TestNobodyCounts: nothing tells how often system calls would be recorded that are
// shed. They are tried again, ever more seldom, until they cost little enough.
func TestNobodyCounts(t *testing.T) {
	w := newWorld(t, 2, 0.01)
	w.calls = 20
	w.prices["sys_enter"] = 90
	w.load = func(time.Duration) float64 { return 0.1 }
	w.run(2 * time.Hour)
	assert.Check(t, w.steps[0].part == Part{Group, "syscall"}, w.sequence())
	tries := 0
	for _, s := range w.steps {
		assert.Check(t, s.part == Part{Group, "syscall"}, w.sequence())
		if s.back {
			tries++
		}
	}
	assert.Check(t, tries > 0 && tries < 10, "tried %d times", tries)
	w.calls = 0.1
	w.run(maxCalm + 10*time.Minute)
	assert.Check(t, is.Equal("", w.shedNow()))
}

// TestClockJumps: a clock that jumps sheds nothing and brings nothing back.
func TestClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Duration{"back": -time.Hour, "ahead": 3 * time.Hour, "by a day": 24 * time.Hour} {
		w := newWorld(t, 2, 0.01)
		w.at = 2 * time.Hour
		start := w.at
		w.load = func(at time.Duration) float64 {
			if at < start+10*time.Minute {
				return 0.9
			}
			return 0.01
		}
		w.jump = func(at time.Duration) time.Duration {
			if at > start+10*time.Minute {
				return at + jump
			}
			return at
		}
		w.run(10 * time.Minute)
		before := w.shedNow()
		assert.Check(t, before != "", name)
		w.run(calm - Window)
		assert.Check(t, is.Equal(before, w.shedNow()), name)
		w.run(15 * time.Minute)
		assert.Check(t, is.Equal("", w.shedNow()), name)
	}
}

// TestReload: a rule that is gone is forgotten, one that comes is not shed.
func TestReload(t *testing.T) {
	w := newWorld(t, 2, 0.001)
	w.load = func(time.Duration) float64 { return 1 }
	w.run(5 * time.Minute)
	assert.Check(t, is.Contains(w.shedNow(), "rule wakeup"))
	rules := w.rules
	w.rules = rules[1:]
	w.load = func(time.Duration) float64 { return 0.001 }
	w.run(Window)
	assert.Check(t, !strings.Contains(w.shedNow(), "rule wakeup"), w.shedNow())
	w.rules = rules
	w.run(Window)
	assert.Check(t, !strings.Contains(w.shedNow(), "rule wakeup"), w.shedNow())
}

func TestMemory(t *testing.T) {
	m := Memory{Limit: 100}
	assert.Check(t, !m.Step(0, 100))
	assert.Check(t, m.Step(Window, 101))
	assert.Check(t, !m.Step(2*Window, 1000))
	assert.Check(t, m.Step(Window+time.Minute, 1000))
	assert.Check(t, m.Step(0, 1000), "a clock that went back")
	assert.Check(t, is.Equal(uint64(3), m.Drops))
	none := Memory{}
	assert.Check(t, !none.Step(0, 1<<40))
	assert.Check(t, is.Equal(int64(0), HeapLimit(0, 5, 5)))
	assert.Check(t, is.Equal(int64(156<<20), HeapLimit(256<<20, 100<<20, 4<<20)))
	assert.Check(t, is.Equal(int64(leastHeap), HeapLimit(256<<20, 1<<30, 0)))
	assert.Check(t, is.Equal(int64(leastHeap+256<<20), HeapLimit(256<<20, 160<<20, 128<<20)))

	assert.Check(t, is.Equal(int64(0), MemoryLimit(0, 1<<40, 1<<30)))
	assert.Check(t, is.Equal(int64(64<<20), MemoryLimit(64<<20, 1<<40, 1<<30)))
	assert.Check(t, is.Equal(int64(256<<20), MemoryLimit(AutoMemory, 25<<20, 4<<20)))
	const rings, tables = 64 * 2 << 20, 20 << 20 // of 64 CPUs
	auto := MemoryLimit(AutoMemory, rings+tables, rings)
	assert.Check(t, is.Equal(int64(468<<20), auto))
	assert.Check(t, is.Equal(auto-rings-tables, HeapLimit(auto, rings+tables, rings)), "nothing to warn of")
}

// TestPrograms: what the programs cost is in the sample, adds up to the true cost, says
// whether it was measured, and lacks what is detached.
func TestPrograms(t *testing.T) {
	for _, measure := range []bool{true, false} {
		w := newWorld(t, 2, 0.01)
		w.measure = measure
		w.run(10 * time.Minute)
		s := w.meter.Sample(w.controller.IsShed)
		assert.Check(t, is.Len(s.Programs, len(w.programs())))
		assert.Check(t, is.Equal(Window, s.Length))
		sum := s.Own + s.Help
		for _, p := range s.Programs {
			sum += p.CPU
			if p.Name == "sched_switch" { // others are too rare for a price
				assert.Check(t, is.Equal(measure, p.Measured))
			}
		}
		assert.Check(t, math.Abs(sum-s.Total) < 1e-9, "%g in all, %g of programs, daemon and helpers", s.Total, sum)
	}

	w := newWorld(t, 2, 0.001)
	w.load = func(time.Duration) float64 { return 1 }
	w.run(5 * time.Minute)
	for _, p := range w.meter.Sample(w.controller.IsShed).Programs {
		assert.Check(t, p.Name != "softirq_exit" && p.Name != "irq_handler_exit", "%s is detached", p.Name)
	}
}

// TestScale: assumed prices follow the speed of a machine, and measured ones do not.
func TestScale(t *testing.T) {
	program := &Program{Name: "sched_switch"}
	own := func(s Speed) float64 {
		m := NewMeter(false)
		m.price(program)
		m.Scale(s)
		return m.price(program).own / assumed["sched_switch"].own
	}
	ref, switches := reference, assumed["sched_switch"].own
	for _, tt := range []struct {
		name  string
		speed Speed
		want  float64
	}{
		{"the same machine", ref, 1},
		{"half as fast", Speed{2 * ref.ClockNS, 2 * ref.WorkNS}, 2},
		{"a clock that is read from a device", Speed{ref.ClockNS + 1000, ref.WorkNS}, 1 + 1000/switches},
		{"not measured", Speed{}, 1},
		{"absurd", Speed{1e9, 1e9}, mostScale},
		{"too fast to be true", Speed{ref.ClockNS / 100, ref.WorkNS / 100}, leastScale},
	} {
		assert.Check(t, math.Abs(own(tt.speed)-tt.want) < 1e-6, "%s: %g, want %g", tt.name, own(tt.speed), tt.want)
	}
	m := NewMeter(true)
	assert.Equal(t, m.Scaled(), 1.0)
	m.Learn(0, time.Second, []Run{{"sched_switch", 1000, time.Millisecond}}, Events{Switches: 1000}, []Program{*program},
		func(Part) bool { return false })
	m.Scale(Speed{2 * ref.ClockNS, 2 * ref.WorkNS})
	assert.Equal(t, m.price(program).own, 1000.0)
	assert.Check(t, math.Abs(m.Scaled()-2) < 1e-6)
}

// TestBurst: what the daemon and its helpers take for a while, such as for the first
// outliers after the start, sheds nothing once it is over.
func TestBurst(t *testing.T) {
	w := newWorld(t, 2, 0.01)
	w.own = 0.05
	w.run(40 * time.Second)
	during := len(w.steps)
	w.own = 0.0002
	w.run(2 * Window) // by then, the average of a minute is still above the budget
	s := w.meter.Sample(w.controller.IsShed)
	assert.Check(t, s.Share() < 0.01, "cost %g", s.Share())
	for _, s := range w.steps[during:] {
		assert.Check(t, s.back, "%s was shed after the burst", s.part)
	}
	w = newWorld(t, 2, 0.01) // and a single window does not count in full
	w.run(10 * time.Minute)
	w.own = 0.03
	w.run(Window)
	w.own = 0.0002
	w.run(10 * time.Minute)
	assert.Equal(t, w.sequence(), "")
}
