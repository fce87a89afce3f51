package budget

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// world is a machine whose counters and true prices are known.
type world struct {
	t       *testing.T
	cpus    int
	load    func(at time.Duration) float64 // of each CPU, 1: busy
	measure bool                           // the kernel measures
	prices  map[string]float64             // true ones in ns, without the record
	calls   float64                        // system calls recorded per switch
	less    Kind                           // Wakers or Askers: can be shed
	rules   []RuleInfo
	own     float64 // of the daemon, CPU seconds per second and CPU
	stacks  float64 // of its helpers, when all CPUs are busy
	jump    func(at time.Duration) time.Duration

	meter      *Meter
	controller Controller
	at         time.Duration
	events     [drivers]float64
	delays     float64
	used, help time.Duration
	log        []string
	steps      []step
	share      float64 // true cost of the last window
}

type step struct {
	at   time.Duration
	part Part
	back bool
}

const (
	trueRecord = 130 // ns
	trueLight  = 70  // of a switch without wakers, and of a completion without askers
)

// made are the prices of a world, whatever real ones are.
var made = map[string]price{
	"sched_switch":         {own: 340, light: trueLight, driver: Switches, per: 1},
	"sched_waking":         {own: 260, driver: Switches, per: 0.6},
	"sched_migrate_task":   {own: 170, driver: Switches, per: 0.1},
	"sched_process_fork":   {own: 250, driver: Forks, per: 1},
	"sys_enter":            {own: 90, driver: Switches, per: 5, loose: true},
	"block_rq_issue":       {own: 350, driver: Requests, per: 1},
	"block_rq_complete":    {own: 350, light: trueLight, driver: Requests, per: 1},
	"irq_handler_entry":    {own: 190, driver: Interrupts, per: 0.3},
	"irq_handler_exit":     {own: 170, driver: Interrupts, per: 0.3},
	"softirq_entry":        {own: 170, driver: Softirqs, per: 1},
	"softirq_exit":         {own: 180, driver: Softirqs, per: 1},
	"hrtimer_expire_entry": {own: 170, driver: Interrupts, per: 0.5},
	"hrtimer_expire_exit":  {own: 170, driver: Interrupts, per: 0.5},
}

// newMeter is one that assumes the prices of a world.
func newMeter(measure bool) *Meter {
	m := NewMeter(measure)
	m.assumed = made
	return m
}

// rates per second of a busy CPU.
var busy = [drivers]float64{Switches: 50_000, Softirqs: 2_000, Interrupts: 3_000, Forks: 20, Requests: 500}

func newWorld(t *testing.T, cpus int, limit float64) *world {
	w := &world{
		t: t, cpus: cpus, load: func(time.Duration) float64 { return 0.1 }, measure: true, prices: map[string]float64{}, calls: -1,
		rules:      []RuleInfo{{"wakeup", "wakeup", 50}, {"offcpu", "offcpu", 60}, {"block", "block", 50}},
		controller: Controller{CPU: limit}, own: 0.0002, stacks: 0.0005,
		jump: func(at time.Duration) time.Duration { return at },
	}
	for _, p := range w.programs() {
		w.prices[p.Name] = made[p.Name].own
		if len(p.Groups) > 0 {
			w.prices[p.Name] -= trueRecord
		}
	}
	return w
}

func (w *world) programs() []Program {
	sched := []string{"wakeup", "offcpu"}
	list := []Program{
		{Name: "sched_switch", Groups: []string{"sched"}, Tracks: sched},
		{Name: "sched_waking", Groups: []string{"sched"}, Tracks: sched},
		{Name: "sched_migrate_task", Groups: []string{"sched"}, Tracks: sched},
		{Name: "sched_process_fork", Groups: []string{"process"}},
		{Name: "block_rq_issue", Groups: []string{"block"}, Tracks: []string{"block"}},
		{Name: "block_rq_complete", Groups: []string{"block"}, Tracks: []string{"block"}},
		{Name: "irq_handler_entry", Groups: []string{"irq"}},
		{Name: "irq_handler_exit", Groups: []string{"irq"}},
		{Name: "softirq_entry", Groups: []string{"irq"}},
		{Name: "softirq_exit", Groups: []string{"irq"}},
		{Name: "hrtimer_expire_entry", Groups: []string{"timer"}, Always: true},
		{Name: "hrtimer_expire_exit", Groups: []string{"timer"}},
	}
	group := map[Kind]string{Wakers: "sched", Askers: "block"}[w.less]
	for i := range list {
		if list[i].Groups[0] == group {
			list[i].Less = w.less
		}
	}
	if w.calls >= 0 {
		list = append(list, Program{Name: "sys_enter", Groups: []string{"syscall"}})
	}
	return list
}

// truth is what a program runs and costs: runs per second, ns per run.
func (w *world) truth(p *Program, load float64) (runs, ns float64) {
	in := func(kind Kind, list []string) bool {
		return slices.ContainsFunc(list, func(n string) bool { return !w.controller.IsShed(Part{kind, n}) })
	}
	group := in(Group, p.Groups)
	var rules []string
	for _, r := range w.rules {
		if slices.Contains(p.Tracks, r.Track) {
			rules = append(rules, r.Name)
		}
	}
	if !group && !p.Always && !in(Rule, rules) {
		return 0, 0
	}
	k := made[p.Name]
	if p.Less != "" && !group && w.controller.IsShed(Part{Kind: p.Less}) {
		if p.Name != "sched_switch" && p.Name != "block_rq_complete" {
			return 0, 0
		}
		return k.per * busy[k.driver] * load * float64(w.cpus), trueLight
	}
	if p.Name == "sys_enter" {
		k.per = w.calls
	}
	ns = w.prices[p.Name]
	if group {
		ns += trueRecord
	}
	if len(p.Tracks) > 0 && !w.controller.IsShed(Part{Kind: Histograms}) {
		ns += delayPrice
	}
	return k.per * busy[k.driver] * load * float64(w.cpus), ns
}

// spend lets time pass, and returns what the programs did.
func (w *world) spend(d time.Duration) (runs []Run, events Events) {
	load, total := w.load(w.at), w.own*float64(w.cpus)
	programs := w.programs()
	for i := range programs {
		n, ns := w.truth(&programs[i], load)
		total += n * ns / 1e9
		if n > 0 {
			done := n * d.Seconds()
			runs = append(runs, Run{programs[i].Name, uint64(done), time.Duration(done * ns)})
		}
	}
	if !w.controller.IsShed(Part{Kind: UserStacks}) {
		n := w.stacks * load * float64(w.cpus)
		total += n
		w.help += time.Duration(n * float64(d))
	}
	w.share = total / float64(w.cpus)
	for i, rate := range busy {
		n := rate * load * float64(w.cpus) * d.Seconds()
		w.events[i] += n
		events[i] = uint64(n)
	}
	if !w.controller.IsShed(Part{Rule, "wakeup"}) || !w.controller.IsShed(Part{Rule, "offcpu"}) {
		w.delays += 2 * busy[Switches] * load * float64(w.cpus) * d.Seconds()
	}
	w.used += time.Duration(w.own * float64(w.cpus) * float64(d))
	w.at += d
	return runs, events
}

func (w *world) reading() *Reading {
	r := &Reading{
		At: w.jump(w.at), CPUs: w.cpus, Delays: uint64(w.delays), Own: w.used, Helpers: w.help,
		Programs: w.programs(), Rules: w.rules,
	}
	for i, n := range w.events {
		r.Events[i] = uint64(n)
	}
	return r
}

// run lets windows pass, as the daemon does.
func (w *world) run(d time.Duration) {
	shed := w.controller.IsShed
	if w.meter == nil {
		w.meter = newMeter(w.measure)
		w.meter.Advance(w.reading())
	}
	for end := w.at + d; w.at < end; {
		w.spend(Window)
		r := w.reading()
		if !w.meter.Advance(r) {
			continue
		}
		decision := w.controller.Step(w.meter.Sample(shed))
		if decision.Measure {
			const length = 200 * time.Millisecond
			runs, events := w.spend(length)
			w.at -= length
			w.meter.Learn(r.At, length, runs, events, r.Programs, shed)
			decision = w.controller.Step(w.meter.Sample(shed))
			if decision.Measure {
				w.t.Fatalf("at %s: measured twice", w.at)
			}
		}
		share := w.meter.Sample(shed).Share()
		for _, k := range decision.Shed {
			w.note(step{w.at, k.Part, false}, fmt.Sprintf("%s: cost %.2f%%: shed %s, saves %.2f%%",
				w.at, 100*w.share, k.Part, 100*k.CPU/float64(w.cpus)))
		}
		for _, k := range decision.Return {
			w.note(step{w.at, k.Part, true}, fmt.Sprintf("%s: cost %.2f%%: back %s, costs %.2f%%",
				w.at, 100*share, k.Part, 100*k.CPU/float64(w.cpus)))
		}
		if decision.Over {
			w.log = append(w.log, fmt.Sprintf("%s: cost %.2f%%: nothing is left to shed", w.at, 100*w.share))
		}
	}
}

func (w *world) note(s step, line string) {
	if len(w.steps) < 40 {
		w.t.Log(line)
	}
	w.steps = append(w.steps, s)
	w.log = append(w.log, line)
}

// sequence is what was shed and what came back, in order: "-group irq +group irq".
func (w *world) sequence() string {
	var list []string
	for _, s := range w.steps {
		list = append(list, map[bool]string{false: "-", true: "+"}[s.back]+s.part.String())
	}
	return strings.Join(list, " ")
}

// shedNow lists the parts that are shed, in the order of shedding.
func (w *world) shedNow() string {
	var list []string
	for _, s := range w.controller.Shedding() {
		list = append(list, s.Part.String())
	}
	return strings.Join(list, ", ")
}
