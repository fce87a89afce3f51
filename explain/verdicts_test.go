package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// judge compares explanations with the truth.
type judge struct {
	m       *machine
	horizon uint64
	seed    uint64

	machines, events            int
	slack                       uint64
	damaged                     bool
	asked, right, wrong, silent int // of culprits
	rootsRight, rootsWrong      int
	served, servedRight         int // waits for servers that serve many, and their roots
	servedSilent, servedGuess   int
	servedMistakes              []string
	seen                        int // steps that are said to be seen
	expected                    int // guesses about waits that have not ended: all, right by what ends them later,
	expectedRight, neverEnded   int // and of waits that never end
	bystanders, seenWrong       []string
	mistakes, rootMistakes      []string
	by                          map[string][2]int // right and all, by the true cause
}

// cause is a cause without what differs only in words.
func sameCause(c Cause, by *Who) Cause {
	switch {
	case c == RunningUser || c == RunningKernel:
		return Running
	case c == BlockQueue && by != nil && by.Kind == KindDevice:
		return BlockDevice
	}
	return c
}

// is reports whether a culprit is a task: any of its names will do.
func (t *actor) is(w *Who) bool {
	return t != nil && w != nil && w.TID == t.tid && (w.Comm == "" || slices.Contains(t.names, w.Comm))
}

// fits reports whether what is said of a time is what was. Whom a task had asked in vain is a guess
// beside the time limit that ended its wait: here, nobody owes an answer.
func (k key) fits(c Cause, by *Who, wait string) bool {
	if wait == waits[waitNoAnswer].name {
		return k.cause == Timer
	}
	if sameCause(c, by) != k.cause && k != (key{cause: WorkQueue}) {
		return false
	}
	switch k.cause {
	case Timer, Network, PageFault, Reclaim, Throttled, ProtocolTimer, Unexplained:
		return true
	case Limited:
		return wait == k.name
	case IRQ:
		for n, name := range irqNames {
			if name == k.name && by.Name == strconv.Itoa(n) {
				return true
			}
		}
	case Runnable:
		if k.task == nil {
			return by.Kind == KindSelf
		}
	}
	switch {
	case k.task != nil:
		return k.task.is(by)
	case k == key{cause: WorkQueue}: // it had nothing to do
		return true
	case k == key{cause: Task} || k == key{cause: Locked}: // by nobody yet
		return by.Kind == KindUnknown
	}
	return by.Name == k.name
}

// most returns the cause that took most, and its culprit that did, with the times of both.
func most(list []known) (causes map[Cause]uint64, keys map[key]uint64, cause, culprit uint64) {
	causes, keys = map[Cause]uint64{}, map[key]uint64{}
	for _, k := range list {
		causes[k.cause] += k.To - k.From
		keys[k.key] += k.To - k.From
	}
	for _, ns := range causes {
		cause = max(cause, ns)
	}
	for k, ns := range keys {
		if causes[k.cause] == cause {
			culprit = max(culprit, ns)
		}
	}
	return causes, keys, cause, culprit
}

// culprit reports whether a part is what took most, or nearly as much. Where records are lost
// that tell what was waited for, the task that ended the wait will do.
func (j *judge) culprit(list []known, p *Part) bool {
	causes, keys, cause, by := most(list)
	const nearly = 0.9
	for k, ns := range keys {
		if k.fits(p.Cause, p.By, p.Wait) && float64(causes[k.cause]) >= nearly*float64(cause) && float64(ns) >= nearly*float64(by) {
			return true
		}
	}
	var ended uint64
	for _, k := range list {
		if j.damaged && (k.below.is(p.By) || k.task.is(p.By) || k.plain.fits(p.Cause, p.By, p.Wait)) {
			ended += k.To - k.From
		}
	}
	return ended > 0 && float64(ended) >= nearly*float64(by)
}

// result judges one explanation of what a task did.
func (j *judge) result(t *actor, o *Outlier, r *Result) {
	horizon := j.horizon
	if e := r.Blame.Evidence; e == evidences[byUsual].words || e == evidences[byAsked].words { // it says who will end the wait
		horizon = forever
		j.expected++
	}
	told := t.story(o.Start, o.End, horizon)
	causes, _, most, _ := most(told)
	if horizon == forever && causes[Unexplained] == most {
		j.neverEnded++
		j.took(t, o, r)
		j.steps(r)
		return
	}
	name := ""
	for c, ns := range causes {
		if ns == most {
			name = string(c)
		}
	}
	j.asked++
	n := j.by[name]
	n[1]++
	switch {
	case j.culprit(told, &r.Blame):
		j.right++
		n[0]++
		if horizon == forever {
			j.expectedRight++
		}
	case r.Blame.Cause == Unexplained:
		j.silent++
	default:
		j.wrong++
		j.mistake(t, o, r, told)
	}
	j.by[name] = n
	roots := t.roots(o.Start, o.End, horizon, nil)
	ok := len(r.Roots) > 0 && j.culprit(roots, &groupByCause(r.Roots)[0].parts[0])
	if onBehalf(told) {
		if r.Confidence == Guess {
			j.servedGuess++
		}
		switch j.served++; {
		case ok:
			j.servedRight++
		case len(r.Roots) > 0 && r.Roots[0].Cause == Unexplained:
			j.servedSilent++
		default:
			j.servedMistakes = append(j.servedMistakes, fmt.Sprintf("SERVED seed %d, %v, %s [%d, %d] %s: %s\n  %+v by %+v\n  truth %v", j.seed, t, o.Track, o.Start, o.End, r.Confidence, r.Verdict, r.Roots[0], r.Roots[0].By, sums(roots)))
		}
	}
	if ok {
		j.rootsRight++
	} else {
		j.rootsWrong++
		j.rootMistakes = append(j.rootMistakes, fmt.Sprintf("ROOT seed %d, %v, %s [%d, %d]: %s\n  %+v by %+v\n  truth %v", j.seed, t, o.Track, o.Start, o.End, r.Verdict, r.Roots[0], r.Roots[0].By, sums(roots)))
	}
	j.took(t, o, r)
	j.steps(r)
}

func (j *judge) mistake(t *actor, o *Outlier, r *Result, told []known) {
	j.mistakes = append(j.mistakes, fmt.Sprintf("seed %d, %v, %s [%d, %d]: %s\n  %+v\n  truth %v", j.seed, t, o.Track, o.Start, o.End, r.Verdict, r.Blame, sums(told)))
}

// sums adds up what took longest.
func sums(list []known) []string {
	_, keys, _, _ := most(list)
	order := slices.SortedFunc(maps.Keys(keys), func(a, b key) int { return int(keys[b]) - int(keys[a]) })
	var out []string
	for _, k := range order[:min(len(order), 5)] {
		out = append(out, fmt.Sprintf("%d us %v", keys[k]/1000, k))
	}
	return out
}

// took finds tasks that are named and took no part.
func (j *judge) took(t *actor, o *Outlier, r *Result) {
	c := cast{map[*actor]bool{}, map[scene]bool{}}
	c.follow(t, o.Start, o.End, 0)
	for w, where := range j.namedIn(r) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(c.in)), func(a *actor) bool { return a.is(&w) }) {
			j.bystanders = append(j.bystanders, fmt.Sprintf("seed %d, %v, %s [%d, %d]: %s %d (%s): %s %s\n  truth %v", j.seed, t, o.Track, o.Start, o.End, w.Comm, w.TID, where, r.Confidence, r.Verdict, sums(t.roots(o.Start, o.End, j.horizon, nil))))
		}
	}
}

// namedIn returns the tasks that an explanation names, and where. It leaves out short steps, if
// those do not matter, and what is said to depend on records that are missing.
func (j *judge) namedIn(r *Result) map[Who]string {
	names := map[Who]string{}
	var who func(w *Who, where string)
	who = func(w *Who, where string) {
		if w == nil {
			return
		}
		if w.TID != 0 {
			names[Who{TID: w.TID, Comm: w.Comm}] = where
		}
		who(w.For, where)
	}
	for where, list := range map[string][]Part{"part": r.Parts, "root": r.Roots, "chain": r.Chain} {
		for i := range list {
			if !j.damaged && r.Confidence != Guess && list[i].Confidence != Guess {
				who(list[i].By, where)
			}
		}
	}
	unsure := len(r.Path) // from this depth on
	for i := range r.Path {
		p := &r.Path[i]
		if p.Depth <= unsure {
			unsure = len(r.Path)
		}
		if j.damaged && p.Evidence == evidences[byGap].words || p.Confidence == Guess {
			unsure = min(unsure, p.Depth)
		}
		if p.Depth >= unsure || p.ToMonoNS-p.FromMonoNS < j.slack {
			continue
		}
		who(p.By, fmt.Sprintf("step %d %s", p.Depth, p.Cause))
		who(p.Waker, "waker")
		who(&p.Task, "task of a step")
	}
	return names
}

// steps finds steps that are said to be seen, and were otherwise.
func (j *judge) steps(r *Result) {
	for i := range r.Path {
		s := &r.Path[i]
		if s.Confidence != Seen || s.Merged { // when those were is not told
			continue
		}
		var wrong []known
		matched := false
		for _, t := range j.m.actors {
			if !t.is(&s.Task) {
				continue
			}
			for _, k := range t.story(s.FromMonoNS, s.ToMonoNS, j.horizon) {
				if matched = true; s.Cause == Misplaced && k.cause == Runnable || s.Cause == Runnable && k.cause == Misplaced {
					k.cause = s.Cause // times of 10 us and less that another CPU was idle do not count
				}
				if !j.small(k) && !j.lost(k, s) && !k.fits(s.Cause, s.By, s.Wait) && !k.inner.fits(s.Cause, s.By, s.Wait) && !k.plain.fits(s.Cause, s.By, s.Wait) {
					wrong = append(wrong, k)
				}
			}
		}
		if j.seen++; len(wrong) > 0 || !matched {
			j.seenWrong = append(j.seenWrong, fmt.Sprintf("seed %d: depth %d %s [%d, %d] %s %s by %v (%s): truth %v: %s", j.seed, s.Depth, s.Task.Name, s.FromMonoNS, s.ToMonoNS, s.State, s.Cause, s.By, s.Why, wrong, r.Verdict))
		}
	}
}

// small reports whether a time is too short to matter where switches are missing.
func (j *judge) small(k known) bool { return k.To-k.From < j.slack }

// lost reports whether a step does not say what it was for, as the record that began this is
// lost: a wait for a lock is then one for a task, or work.
func (j *judge) lost(k known, s *Step) bool {
	switch k.cause {
	case Throttled:
		return j.damaged && s.State == "runnable"
	case IRQ, Softirq:
		return j.damaged && k.To-k.From < 100_000
	case Reclaim, Locked:
		return j.damaged && (s.State == "running" || k.task.is(s.By))
	}
	return false
}

// outliers returns waits of ordinary tasks, and other times of them.
func (m *machine) outliers(n int) (list []Outlier, of []*actor) {
	const margin = 8_000_000 // what has not ended is not known
	for tries := 0; len(list) < n && tries < 50*n; tries++ {
		t := m.actors[m.rnd.IntN(len(m.actors))]
		if t.kernel || len(t.truth) < 4 || m.front != nil && (t == m.front.t || t == m.back.t) {
			continue
		}
		end := m.now - margin
		if t.dies > 0 {
			end = min(end, t.dies)
		}
		s := t.truth[m.rnd.IntN(len(t.truth))]
		o := Outlier{Rule: "r", Track: "pair", TID: t.tid, Comm: t.names[len(t.names)-1], Start: s.From, End: s.To}
		switch k := m.rnd.IntN(4); {
		case k == 0:
			first := t.truth[0].From
			if first >= end {
				continue
			}
			o.Start = first + m.rnd.Uint64N(end-first)
			o.End = min(o.Start+m.us(10, 10000), end)
		case s.To-s.From < 50_000 || s.To >= m.now-margin || s.To > end:
			continue
		case s.state == blocked:
			o.Track = "offcpu"
		case s.state == runnable:
			o.Track = "wakeup"
		}
		if o.Start < o.End && o.End <= end {
			list, of = append(list, o), append(of, t)
		}
	}
	return list, of
}
