package main

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/tailcam/tailcam/test/bench/stat"
)

// row is one line of the table and one element of the JSON.
type row struct {
	Name    string   `json:"name"`
	NsNet   float64  `json:"ns_net"`   // hackbench: what it took longer than with nothing
	NsGross float64  `json:"ns_gross"` // hackbench: of a whole run
	Events  uint64   `json:"events"`   // in all rounds; 0: not counted
	Ratio   *float64 `json:"ratio"`    // of the net costs, hackbench: of the gross ones
	Against string   `json:"against"`

	RatioMin *float64 `json:"ratio_min,omitempty"` // over the rounds
	RatioMax *float64 `json:"ratio_max,omitempty"`
	RatioLow *float64 `json:"ratio_low,omitempty"` // where the median lies, see package stat
	RatioHi  *float64 `json:"ratio_high,omitempty"`
	Rounds   int      `json:"rounds,omitempty"`
	Target   float64  `json:"target,omitempty"` // that Ratio is to stay at or below
	Verdict  string   `json:"verdict,omitempty"`
	Note     string   `json:"note,omitempty"`

	section string
	minor   bool // not in the table
	span    stat.Span
}

// Sections of the table.
const (
	secTargets   = "What was to be reached"
	secPrograms  = "Programs, nanoseconds an event"
	secHackbench = "hackbench, wall clock milliseconds; net: more than with nothing"
	secProcessor = "hackbench, CPU milliseconds; net: more than with nothing"
	secRecorded  = "A recorded event, nanoseconds: what getppid() takes longer with its entry and exit recorded, halved"
	secGetppid   = "getppid(), nanoseconds a call; net: more than with nothing"
)

// series is one number a round; NaN-free: a round that lacks it is left out by its index.
type series map[int]float64

func (s series) values() []float64 {
	var v []float64
	for _, x := range s {
		v = append(v, x)
	}
	sort.Float64s(v)
	return v
}

func median(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// over divides round by round, so that what disturbed a whole round cancels.
func (s series) over(d series) series {
	out := series{}
	for i, x := range s {
		if y, ok := d[i]; ok && y > 0 {
			out[i] = x / y
		}
	}
	return out
}

func (r *row) compare(ratio series, against string) {
	r.span = stat.Of(ratio.values())
	if r.span.N == 0 {
		return
	}
	s := r.span
	r.Ratio, r.RatioMin, r.RatioMax, r.RatioLow, r.RatioHi, r.Rounds = &s.Median, &s.Min, &s.Max, &s.Low, &s.High, s.N
	r.Against = against
}

func (r *row) judge(target float64) {
	r.Target, r.Verdict = target, r.span.Verdict(target)
}

// at collects one number of each round of a setup, the mean of its visits there.
func (b *bench) at(setup string, get func(v *visit) (float64, bool)) series {
	sum, visits := series{}, series{}
	if r := b.results[setup]; r != nil {
		for i := range r.visits {
			if x, ok := get(&r.visits[i]); ok {
				sum[r.visits[i].round] += x
				visits[r.visits[i].round]++
			}
		}
	}
	return sum.over(visits)
}

func (b *bench) gross(setup, hook string) series {
	return b.at(setup, func(v *visit) (float64, bool) {
		c := v.hooks[hook]
		return c.gross(), c.runs > 0
	})
}

// net is gross less an empty program on the same hook in the same round.
func (b *bench) net(setup, hook string) series {
	empty := b.gross(sEmpty, hook)
	if len(empty) == 0 {
		empty = b.gross(sEmpty, "sched_switch") // the statistics cost the same everywhere
	}
	out := series{}
	for i, x := range b.gross(setup, hook) {
		if e, ok := empty[i]; ok {
			out[i] = x - e
		}
	}
	return out
}

func (b *bench) events(setup, hook string) (n uint64) {
	if r := b.results[setup]; r != nil {
		for i := range r.visits {
			n += r.visits[i].hooks[hook].runs
		}
	}
	return n
}

// hooks lists what ran in a setup, the most expensive together first.
func (b *bench) hooks(setup string) []string {
	total := map[string]float64{}
	if r := b.results[setup]; r != nil {
		for _, v := range r.visits {
			for h, c := range v.hooks {
				if c.runs > 0 {
					total[h] += c.ns
				}
			}
		}
	}
	var list []string
	for h := range total {
		list = append(list, h)
	}
	slices.SortFunc(list, func(x, y string) int {
		if total[x] != total[y] && total[x] > total[y] {
			return -1
		}
		return strings.Compare(x, y)
	})
	return list
}

// rows makes the table.
func (b *bench) rows() []row {
	rows := b.targets()
	for i := range b.setups {
		s := &b.setups[i]
		if s.missing != "" {
			rows = append(rows, row{section: secPrograms, Name: s.name, Note: s.missing})
			continue
		}
		for _, h := range b.hooks(s.name) {
			r := row{
				section: secPrograms, Name: h + " " + s.name, Events: b.events(s.name, h),
				minor:   b.minor(s.name, h),
				NsGross: median(b.gross(s.name, h).values()), NsNet: median(b.net(s.name, h).values()),
			}
			if s.against != "" && s.name != sEmpty {
				r.compare(b.net(s.name, h).over(b.net(s.against, b.twin(s.against, h))), s.against)
			}
			rows = append(rows, r)
		}
	}
	rows = append(rows, b.histogramRows()...)
	rows = append(rows, b.hackbenchRows()...)
	rows = append(rows, b.recordedRows()...)
	return append(rows, b.getppidRows()...)
}

// minor: the table shows all hooks that matter once, with everything on, and
// elsewhere those of a comparison.
func (b *bench) minor(setup, hook string) bool {
	switch hook {
	case "sched_switch":
		return histogramSetup(setup) // it has a section of its own
	case "sched_waking", "sched_wakeup", "sys_enter", "sys_exit", "block_rq_issue", "block_rq_complete":
		return setup == sEmpty
	default:
		return setup != sAll || b.events(setup, hook) < uint64(100*b.opts.rounds)
	}
}

// twin is the hook at which another setup does what tailcam does at h.
func (b *bench) twin(setup, h string) string {
	if h == "sched_waking" && len(b.gross(setup, h)) == 0 {
		return "sched_wakeup"
	}
	return h
}

func (b *bench) hackbenchRows() []row {
	wall := func(name string) series {
		return b.at(name, func(v *visit) (float64, bool) { return float64(v.took.wall.Nanoseconds()), true })
	}
	cpu := func(name string) series {
		return b.at(name, func(v *visit) (float64, bool) { return float64(v.took.cpu.Nanoseconds()), true })
	}
	return append(b.wholeRows(secHackbench, "hackbench with ", wall), b.wholeRows(secProcessor, "hackbench CPU time with ", cpu)...)
}

// getppid is what a call took in each round of a setup.
func (b *bench) getppid(setup string) series {
	return b.at(setup, func(v *visit) (float64, bool) { return v.getppid, true })
}

// recorded is what each of the two events of a getppid() cost its caller, which
// is the same measure for what is a BPF program and for what is not.
func (b *bench) recorded(setup string) series {
	out, nothing := series{}, b.getppid(sNothing)
	for i, x := range b.getppid(setup) {
		if n, ok := nothing[i]; ok {
			out[i] = (x - n) / 2
		}
	}
	return out
}

// recordedRows compares each recorder with the one that users of perf have.
func (b *bench) recordedRows() []row {
	var rows []row
	for _, name := range []string{sRecCalls, sRecCallsP, sFtraceCall, sPerfCalls} {
		mine := b.recorded(name)
		if len(mine) == 0 {
			continue
		}
		r := row{section: secRecorded, Name: "event in " + name, NsNet: median(mine.values())}
		if name != sPerfCalls {
			r.compare(mine.over(b.recorded(sPerfCalls)), sPerfCalls)
		}
		rows = append(rows, r)
	}
	return rows
}

func (b *bench) getppidRows() []row {
	var rows []row
	for _, r := range b.wholeRows(secGetppid, "getppid with ", b.getppid) {
		switch strings.TrimPrefix(r.Name, "getppid with ") {
		case sNothing, sEmpty, sTasks, sCalls, sOtherCall, sAll, sAllUser, sBTSyscall, sPair:
			rows = append(rows, r)
		}
	}
	return rows
}

// wholeRows compares each setup with nothing.
func (b *bench) wholeRows(section, prefix string, get func(setup string) series) []row {
	var rows []row
	nothing := get(sNothing)
	for i := range b.setups {
		s := &b.setups[i]
		mine := get(s.name)
		if len(mine) == 0 || s.name == sNothing && i > 0 {
			continue
		}
		r := row{section: section, Name: prefix + s.name, NsGross: median(mine.values()), minor: histogramSetup(s.name)}
		if s.name != sNothing {
			more := series{}
			for i, x := range mine {
				more[i] = x - nothing[i]
			}
			r.NsNet = median(more.values())
			r.compare(mine.over(nothing), prefix+sNothing)
		}
		rows = append(rows, r)
	}
	return rows
}

// decisive are the setups that targets are about, and those that these are compared with.
var decisive = []string{
	sNothing, sEmpty, sWakeup, sBTRunq, sTasksRec, sRunqslower, sLBRunq, sAll, sManyRules,
	sRing, sRingPerf, sRecorder, sRecPerf, sRecCalls, sPerfCalls,
}

// targets are the rows that have something to reach.
func (b *bench) targets() []row {
	pair := b.sum(sWakeup, "sched_waking", "sched_switch")
	r1 := b.targetRow("wakeup pair (waking + switch)", sWakeup, pair)
	r1.compare(pair.over(b.sum(sBTRunq, "sched_waking", "sched_switch")), sBTRunq)
	r1.judge(0.5)

	three := b.net(sTasksRec, "sched_switch")
	r2 := b.targetRow("sched_switch wakeup+offcpu+recorder", sTasksRec, three)
	r2.compare(three.over(b.net(sRunqslower, "sched_switch")), sRunqslower)
	r2.judge(1)
	r3 := b.targetRow("sched_switch wakeup+offcpu+recorder", sTasksRec, three)
	r3.compare(three.over(b.net(sLBRunq, "sched_switch")), sLBRunq)
	r3.judge(1)

	many := b.mean(sManyRules)
	r4 := b.targetRow("mean event with 50 rules", sManyRules, many)
	r4.compare(many.over(b.mean(sAll)), "mean event with one rule a tracker")
	r4.judge(1.1)

	ring := b.net(sRing, "sched_switch")
	r5 := b.targetRow("a record's ring, plain memory", sRing, ring)
	r5.compare(ring.over(b.net(sRingPerf, "sched_switch")), sRingPerf)
	r5.judge(0.3)
	recorder := b.sum(sRecorder, "sched_waking", "sched_switch")
	r6 := b.targetRow("recorder, waking + switch", sRecorder, recorder)
	r6.compare(recorder.over(b.sum(sRecPerf, "sched_waking", "sched_switch")), sRecPerf)
	r6.judge(0.3)
	call := b.recorded(sRecCalls)
	r7 := b.targetRow("recorder, a system call's entry or exit", sRecCalls, call)
	r7.compare(call.over(b.recorded(sPerfCalls)), sPerfCalls)
	r7.judge(0.3)
	return []row{r1, r2, r3, r4, r5, r6, r7}
}

func (b *bench) targetRow(name, setup string, net series) row {
	r := row{section: secTargets, Name: name, NsNet: median(net.values())}
	if len(net) == 0 {
		r.Note = fmt.Sprintf("not measured: %s", setup)
	}
	return r
}

// sum adds the net costs of several hooks.
func (b *bench) sum(setup string, hooks ...string) series {
	out := b.net(setup, hooks[0])
	for _, h := range hooks[1:] {
		more := b.net(setup, h)
		for i := range out {
			out[i] += more[i]
		}
	}
	return out
}

// mean is the net cost of one event of the load, each hook weighted by how
// often it ran with one rule a tracker.
func (b *bench) mean(setup string) series {
	out, weight := series{}, series{}
	for _, h := range b.hooks(sAll) {
		w := float64(b.events(sAll, h))
		for i, x := range b.net(setup, h) {
			out[i] += x * w
			weight[i] += w
		}
	}
	return out.over(weight)
}
