package budget

import (
	"math"
	"slices"
	"time"
)

// Program is a program of the kernel side, attached or shed.
type Program struct {
	Name   string
	Groups []string // of the recorder that have its records
	Tracks []string // trackers that need it
	Stacks bool     // user stacks need it
	Less   Kind     // while this is shed it does less, or is detached: Wakers, Askers; "": neither
	Always bool     // it is never shed
}

// recorded reports whether the group of the recorder that has the events of Less is at work.
func (p *Program) recorded(shed func(Part) bool) bool {
	group := map[Kind]string{Wakers: "sched", Askers: "block"}[p.Less]
	return slices.Contains(p.Groups, group) && !shed(Part{Group, group})
}

// Reading is what is counted at one moment. Counters that go backwards, or a
// clock that does, cost one window.
type Reading struct {
	At       time.Duration // monotonic
	CPUs     int
	Events   Events
	Delays   uint64        // that histograms have counted or would have
	Own      time.Duration // CPU time of the daemon
	Helpers  time.Duration // and of its helpers
	Programs []Program
	Rules    []RuleInfo
}

// RuleInfo is a running rule.
type RuleInfo struct {
	Name, Track string
	Priority    int
}

// Meter knows what tailcam costs. It is not safe for concurrent use.
type Meter struct {
	// CanMeasure: Learn will be called when the controller asks for it.
	CanMeasure bool

	prices   map[string]*price
	assumed  map[string]price // until they are known
	learned  time.Duration    // when prices were measured last
	measured bool
	speed    Speed // of this machine; zero: as that of the assumed prices
	// Prices were learned with these on.
	histograms bool

	idle  map[string]time.Duration // since when programs are detached
	last  *Reading
	past  []*Reading // the last minute, oldest first
	rates rates
	help  float64 // CPU seconds per second of helpers while they read user stacks
}

// rates are per second of the last window; of the daemon and its helpers, of the last
// minute if that is less: a single snapshot takes them more CPU time than a small
// machine's budget for a window, and what is over needs no shedding.
type rates struct {
	events       [drivers]float64
	delays       float64
	own, helpers float64
	length       time.Duration // of the last window
}

const ownWindows = int(time.Minute / Window)

// NewMeter returns one with assumed prices.
func NewMeter(canMeasure bool) *Meter {
	return &Meter{CanMeasure: canMeasure, prices: map[string]*price{}, assumed: assumed, idle: map[string]time.Duration{}, histograms: true}
}

// Measured reports whether prices were measured, and when.
func (m *Meter) Measured() (at time.Duration, ok bool) { return m.learned, m.measured }

func (m *Meter) price(p *Program) *price {
	if k := m.prices[p.Name]; k != nil {
		return k
	}
	k, ok := m.assumed[p.Name]
	if !ok {
		k = unknown
	}
	k.own, k.light = m.speed.scale(k.own), m.speed.scale(k.light)
	if len(p.Groups) > 0 && (len(p.Tracks) > 0 || p.Stacks || p.Always) {
		k.own, k.record = k.own*(1-recordShare), k.own*recordShare
	}
	m.prices[p.Name] = &k
	return &k
}

// Scale makes the assumed prices fit a machine of this speed.
func (m *Meter) Scale(s Speed) {
	m.speed = s
	for name, k := range m.prices {
		if !k.measured {
			delete(m.prices, name) // to be assumed anew
		}
	}
}

// Scaled is what a price of 300 ns is multiplied by, as of a context switch; 1 without
// Scale.
func (m *Meter) Scaled() float64 { return m.speed.scale(300) / 300 }

// Learn takes over what programs did for a while until the moment at, and what
// drove them meanwhile.
func (m *Meter) Learn(at, took time.Duration, runs []Run, events Events, programs []Program, shed func(Part) bool) {
	const enough = 50 // runs for a price, and events for a rate
	m.learned, m.measured = at, true
	m.histograms = !shed(Part{Kind: Histograms})
	for _, r := range runs {
		i := slices.IndexFunc(programs, func(p Program) bool { return p.Name == r.Name })
		if i < 0 {
			continue
		}
		p := &programs[i]
		k := m.price(p)
		if r.Runs >= enough {
			k.measured = true
			ns := float64(r.Time.Nanoseconds()) / float64(r.Runs)
			switch {
			case p.Less != "" && shed(Part{Kind: p.Less}) && !p.recorded(shed):
				k.light = ns
			case k.record == 0:
				k.own = ns
			case slices.ContainsFunc(p.Groups, func(g string) bool { return !shed(Part{Group, g}) }):
				k.own, k.record = ns*(1-recordShare), ns*recordShare
			default:
				k.own = ns
			}
		}
		if k.driver == none {
			k.per = float64(r.Runs) / took.Seconds()
		} else if events[k.driver] >= enough {
			k.per = float64(r.Runs) / float64(events[k.driver])
		}
	}
}

// Advance takes the counters at the end of a window. False: there is no window
// yet, because these are the first, or a clock or counter jumped.
func (m *Meter) Advance(r *Reading) bool {
	was := m.last
	m.last = r
	if was == nil {
		return false
	}
	took := (r.At - was.At).Seconds()
	if took <= 0 || r.At-was.At > 3*Window || r.Own < was.Own || r.Helpers < was.Helpers || r.Delays < was.Delays {
		m.past = nil
		return false
	}
	for i := range r.Events {
		if r.Events[i] < was.Events[i] {
			m.past = nil
			return false
		}
		m.rates.events[i] = float64(r.Events[i]-was.Events[i]) / took
	}
	m.rates.delays = float64(r.Delays-was.Delays) / took
	m.rates.length = r.At - was.At
	m.past = append(m.past[max(len(m.past)-ownWindows+1, 0):], was)
	oldest := m.past[0]
	minute := (r.At - oldest.At).Seconds()
	m.rates.own = min((r.Own-oldest.Own).Seconds()/minute, (r.Own-was.Own).Seconds()/took)
	m.help *= 0.9 // while they read none, nobody knows what they would cost
	m.rates.helpers = min((r.Helpers-oldest.Helpers).Seconds()/minute, (r.Helpers-was.Helpers).Seconds()/took)
	return true
}

// Sample is the last window with the prices of now. shed tells what is shed
// and was during the window.
func (m *Meter) Sample(shed func(Part) bool) *Sample {
	r := m.last
	s := &Sample{
		At: r.At, CPUs: r.CPUs, PriceAge: r.At - m.learned, CanMeasure: m.CanMeasure,
		Own: m.rates.own, Help: m.rates.helpers, Total: m.rates.own + m.rates.helpers, Length: m.rates.length,
	}
	if !m.measured {
		s.PriceAge = oldPrices
	}
	view := newView(m, r, shed)
	for i := range view.list {
		u := &view.list[i]
		s.Total += u.cost()
		if u.groups > 0 || u.others() {
			s.Programs = append(s.Programs, ProgramCost{u.Name, u.cost(), m.price(u.Program).measured})
		}
	}
	delays := m.rates.delays * delayPrice / 1e9
	if off := shed(Part{Kind: Histograms}); off && m.histograms {
		s.Total = max(s.Total-delays, 0)
	} else if !off && !m.histograms {
		s.Total += delays
	}
	s.Parts = view.groups()
	s.Parts = append(s.Parts,
		Cost{Part: Part{Kind: Histograms}, CPU: delays}, Cost{Part: Part{Kind: UserStacks}, CPU: view.stacks()},
		Cost{Part: Part{Kind: Wakers}, CPU: view.without(Wakers)}, Cost{Part: Part{Kind: Askers}, CPU: view.without(Askers)})
	s.Parts = append(s.Parts, view.rules()...)
	return s
}

// use is a program in the last window: what it costs, and who needs it.
type use struct {
	*Program
	full, record float64 // CPU seconds per second: with its record, and that alone
	light        float64 // while what it has Less of is shed
	less         bool    // it is
	groups       int     // that are not shed
	tracks       int     // rules that are not shed
	stacks       bool    // needed, and not shed
	gated        bool    // a gate has detached it
}

// tracking is what it costs without the recorder.
func (u *use) tracking() float64 {
	if u.less {
		return u.light
	}
	return u.full - u.record
}

// others reports whether anybody but the recorder needs the program.
func (u *use) others() bool { return u.Always || u.stacks || u.tracks > 0 }

func (u *use) cost() float64 {
	switch {
	case u.groups > 0:
		return u.full
	case u.others():
		return u.tracking()
	}
	return 0
}

// has reports whether a group's records make the program dearer. Who runs since when, which
// stacks of those that run for long need, is what trackers of tasks note anyway.
func (u *use) has(group string) bool {
	return slices.Contains(u.Groups, group) && !(group == "run" && u.Less == Wakers && u.tracks > 0)
}

type view struct {
	meter   *Meter
	reading *Reading
	shed    func(Part) bool
	list    []use
}

func newView(m *Meter, r *Reading, shed func(Part) bool) *view {
	v := &view{meter: m, reading: r, shed: shed}
	for i := range r.Programs {
		p := &r.Programs[i]
		k := m.price(p)
		rate := k.per
		if k.driver != none {
			rate *= m.rates.events[k.driver]
		}
		u := use{
			Program: p, full: rate * k.total() / 1e9, record: rate * k.record / 1e9, light: rate * k.light / 1e9,
			less:   p.Less != "" && shed(Part{Kind: p.Less}),
			stacks: p.Stacks && !shed(Part{Kind: UserStacks}),
		}
		gate := p.behind()
		u.gated = gate != "" && shed(Part{Kind: gate}) && !Needed(gate, r.Rules)
		for _, rule := range r.Rules {
			if !u.gated && slices.Contains(p.Tracks, rule.Track) && !shed(Part{Rule, rule.Name}) {
				u.tracks++
			}
		}
		for _, g := range p.Groups {
			if !u.gated && u.has(g) && !shed(Part{Group, g}) {
				u.groups++
			}
		}
		v.fade(&u, k)
		v.list = append(v.list, u)
	}
	return v
}

// fading is by how much less a detached program would cost, window by window, if
// nothing tells how often it would run: so it is tried again in the end.
const fading = 0.9

func (v *view) fade(u *use, k *price) {
	m, now := v.meter, v.reading.At
	if u.groups > 0 || u.others() {
		delete(m.idle, u.Name)
		return
	}
	since, ok := m.idle[u.Name]
	if !ok || since > now {
		m.idle[u.Name], since = now, now
	}
	if k.loose {
		factor := math.Pow(fading, float64((now-since)/Window))
		u.full, u.record = u.full*factor, u.record*factor
	}
}

// groups lists what each group costs, or would.
func (v *view) groups() (list []Cost) {
	for i := range v.list {
		u := &v.list[i]
		if u.gated {
			continue
		}
		for _, g := range u.Groups {
			at := slices.IndexFunc(list, func(c Cost) bool { return c.Part.Name == g })
			if at < 0 {
				at = len(list)
				list = append(list, Cost{Part: Part{Group, g}})
			}
			if !u.has(g) {
				continue
			}
			rest := u.groups // groups that have the record without this one
			if !v.shed(Part{Group, g}) {
				rest--
			}
			switch {
			case rest > 0:
			case u.others():
				list[at].CPU += u.full - u.tracking() // with it, they are whole again
			default:
				list[at].CPU += u.full
			}
		}
	}
	return list
}

// stacks is what user stacks cost, or would.
func (v *view) stacks() (cpu float64) {
	m := v.meter
	if !v.shed(Part{Kind: UserStacks}) {
		m.help = m.rates.helpers
	}
	for i := range v.list {
		if u := &v.list[i]; u.Stacks && !u.Always && u.tracks == 0 && u.groups == 0 {
			cpu += u.full
		}
	}
	return cpu + m.help
}

// without is what shedding Wakers or Askers saves, or would. Neither can be shed while the recorder
// has the same events, or a program needs no tracker.
func (v *view) without(kind Kind) (cpu float64) {
	for i := range v.list {
		if u := &v.list[i]; u.Less == kind && u.groups == 0 && u.tracks > 0 {
			cpu += u.full - u.record - u.light
		}
	}
	return cpu
}

// rules lists what each rule costs: its part of the programs that only trackers
// need, and of the daemon's own time. A rule that is shed would cost the programs
// that are detached without it.
func (v *view) rules() (list []Cost) {
	active := 0
	for _, r := range v.reading.Rules {
		if !v.shed(Part{Rule, r.Name}) {
			active++
		}
	}
	for _, r := range v.reading.Rules {
		k := Cost{Part: Part{Rule, r.Name}, Priority: r.Priority}
		off := v.shed(k.Part)
		if !off {
			k.CPU = v.meter.rates.own / float64(active)
		}
		for i := range v.list {
			u := &v.list[i]
			if u.Always || u.stacks || u.groups > 0 || u.gated || !slices.Contains(u.Tracks, r.Track) {
				continue
			}
			if off && u.tracks == 0 {
				k.CPU += u.tracking()
			} else if !off {
				k.CPU += u.tracking() / float64(u.tracks)
			}
		}
		list = append(list, k)
	}
	return list
}
