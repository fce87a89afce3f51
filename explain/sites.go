package explain

import (
	"fmt"
	"sort"
	"strings"

	"github.com/tailcam/tailcam/explain/waitsites"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Site is where a task waited, or what it did while it ran.
type Site struct {
	Function string `json:"function"`        // of the kernel, or of the program; its file, where that has no symbols
	Words    string `json:"words,omitempty"` // what that means, if it is known
	NS       int64  `json:"ns,omitempty"`    // waits: of the part, that were there
	// Of samples: how many found it there, of how many.
	Samples int `json:"samples,omitempty"`
	Of      int `json:"of,omitempty"`
}

// text is what a verdict says of it; "": nothing.
func (s *Site) text() string {
	switch {
	case s.Function == "":
		return ""
	case s.Of == 0:
		return " (in " + s.Function + ": " + s.Words + ")"
	case s.Words == "":
		return fmt.Sprintf(" (in %s: %d of %d samples)", s.Function, s.Samples, s.Of)
	}
	return fmt.Sprintf(" (%s, in %s: %d of %d samples)", s.Words, s.Function, s.Samples, s.Of)
}

// stackAt is a stack of a task, when it gets a CPU after a wait, or while it runs.
type stackAt struct {
	at uint64
	trace.Stack
	outer [len(trace.Stack{}.Frames)]uint64 // frames further out
	run   bool                              // of a long run: shorter ones have none
}

// ingestStack keeps a stack of a task. A sample is taken within the interrupt of its timer,
// and tells what the task did until then.
func (m *model) ingestStack(t *task, c *cpu, ev *trace.Event, b *trace.Stack) {
	if ev.Time <= m.from || !m.reserve() {
		return
	}
	if ev.Type == trace.WaitStack {
		t.waited = append(t.waited, stackAt{at: ev.Time, Stack: *b})
		return
	}
	at := ev.Time
	if len(c.frames) > 0 {
		at = min(c.framesChanged, at)
	}
	if !b.Outer {
		t.samples = append(t.samples, stackAt{at: at, Stack: *b, run: ev.Type == trace.RunStack})
	} else if n := len(t.samples); n > 0 && t.samples[n-1].at == at {
		t.samples[n-1].outer = b.Frames
	}
}

// after returns the first stack of a list that is later than from, if it is not later than until.
func after(list []stackAt, from, until uint64) *stackAt {
	i := sort.Search(len(list), func(i int) bool { return list[i].at > from })
	if i < len(list) && list[i].at <= until {
		return &list[i]
	}
	return nil
}

// frames names a stack, the innermost frame first. Of user space, the innermost alone is
// sure: see userCallers.
func (m *model) frames(s *trace.Stack) []string {
	var list []string
	for _, address := range s.Frames {
		if address == 0 || s.User && len(list) > 0 {
			break
		}
		name := ""
		if s.User && m.names.Code != nil {
			name = m.names.Code(s.PID, address)
		} else if !s.User {
			name = m.function(address)
		}
		if name == "" {
			name = fmt.Sprintf("%#x", address)
		}
		list = append(list, name)
	}
	return list
}

// sampleFrames is frames of a sample, further out than one record has room for.
func (m *model) sampleFrames(s *stackAt) []string {
	return append(m.frames(&s.Stack), m.frames(&trace.Stack{PID: s.PID, Frames: s.outer})...)
}

// returnSlack is how much later than its switch a stack may be.
const returnSlack = 1000

// waitSite finds where a task waited: full is its wait. The stack is recorded when the task
// gets a CPU again, or belongs to the outlier.
func (w *walker) waitSite(t *task, p *piece, full *segment) {
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].from >= full.to })
	for ; i < len(t.segments) && t.segments[i].state == runnable; i++ {
	}
	if i < len(t.segments) && t.segments[i].state == running {
		if p.stack = after(t.waited, t.segments[i].from-1, t.segments[i].from+returnSlack); p.stack != nil {
			p.site = w.m.siteOf(&p.stack.Stack)
			return
		}
	}
	if len(w.stack) > 1 {
		return
	}
	for i := range w.outlier.Stacks {
		s := &w.outlier.Stacks[i]
		if !s.Waker && (s.At >= full.from && s.At < full.to || s.At == w.outlier.End && full.to >= s.At) {
			p.site, _ = waitsites.Wait(s.Frames)
		}
	}
}

// siteOf finds the site of a recorded wait.
func (m *model) siteOf(s *trace.Stack) waitsites.Match {
	site, ok := m.sites[s.Frames]
	if !ok {
		site, _ = waitsites.Wait(m.frames(s))
		if m.sites == nil {
			m.sites = map[[len(s.Frames)]uint64]waitsites.Match{}
		}
		if len(m.sites) < maxOpen {
			m.sites[s.Frames] = site
		}
	}
	return site
}

// activity is where the time of a part went.
type activity struct {
	waits   map[waitsites.Match]uint64 // ns
	works   map[Site]int               // samples
	samples int
	within  map[*waitsites.Site]map[string]int // samples that have a site in their stack, by its function
	callers map[string]*caller                 // functions of the program that samples were called from
	clock   bool                               // samples are of all times, not of long runs alone
	known   uint64                             // ns of runs that have samples
}

// few reports whether samples say nothing of most of ns: runs that were too short for them.
func (a *activity) few(ns int64) bool { return !a.clock && 2*a.known < uint64(ns) }

// locate says of each part where its task waited, or what the task did that ran, if that is
// one place for half of it or more.
func (w *walker) locate(parts []Part, pieces []piece, roots bool) {
	found := map[partKey]*activity{}
	w.visit(pieces, roots, found)
	for i := range parts {
		p := &parts[i]
		a := found[p.key()]
		if a == nil {
			continue
		}
		for site, ns := range a.waits {
			if n := int64(ns); n*2 >= p.NS && (n > p.Site.NS || n == p.Site.NS && site.Function < p.Site.Function) {
				p.Site = Site{Function: site.Function, Words: site.Words, NS: int64(ns)}
			}
		}
		if a.few(p.NS) {
			continue
		}
		for site, n := range a.works {
			if n*2 >= a.samples && p.Site.NS == 0 && (n > p.Site.Samples || n == p.Site.Samples && site.Function < p.Site.Function) {
				p.Site = Site{Function: site.Function, Words: site.Words, Samples: n, Of: a.samples}
			}
		}
		if s, ok := a.around(); ok && (p.Site.Function == "" || p.Site.Of > 0 && waitsites.General(p.Site.Function)) {
			p.Site = s
		}
		if p.Site.Function == "" || p.Site.Words == noSymbolWords {
			if s := a.caller(); s.Function != "" {
				p.Site = s
			}
		}
	}
}

// visit adds up what pieces know, as sumInto does.
func (w *walker) visit(pieces []piece, roots bool, found map[partKey]*activity) {
	for i := range pieces {
		p := &pieces[i]
		if roots && len(p.below) > 0 {
			w.visit(p.below, true, found)
			continue
		}
		list, run := w.samples(p)
		if p.site.Site == nil && !run {
			continue
		}
		a := found[p.key()]
		if a == nil {
			a = &activity{waits: map[waitsites.Match]uint64{}, works: map[Site]int{}}
			found[p.key()] = a
		}
		if p.site.Site != nil {
			a.waits[p.site] += p.to - p.from
		}
		if run {
			a.known += p.to - p.from
		}
		for j := range list {
			a.samples++
			a.clock = a.clock || !list[j].run
			frames := w.m.sampleFrames(&list[j])
			if site := workSite(frames, list[j].User); site.Function != "" {
				a.works[site]++
			}
			a.enclose(frames, list[j].User)
			a.calls(w.m.userCallers(&list[j].Stack))
		}
	}
}

// enclose notes what a sampled stack of the kernel is within.
func (a *activity) enclose(frames []string, user bool) {
	if user {
		return
	}
	for _, site := range waitsites.Works(frames) {
		by := a.within[site.Site]
		if by == nil {
			if a.within == nil {
				a.within = map[*waitsites.Site]map[string]int{}
			}
			by = map[string]int{}
			a.within[site.Site] = by
		}
		by[site.Function]++
	}
}

// around is what half of the samples or more are within, such as a core dump, which is made
// of many things: of those that say the same, the function that most are in. What is general
// gives way.
func (a *activity) around() (best Site, ok bool) {
	for site, by := range a.within {
		s := Site{Words: site.Words, Of: a.samples}
		most := 0
		for function, n := range by {
			if s.Samples += n; n > most || n == most && function < s.Function {
				s.Function, most = function, n
			}
		}
		if s.Samples*2 >= a.samples && s.better(&best) {
			best, ok = s, true
		}
	}
	return best, ok
}

// better reports whether a place of samples says more than another, or as much of more.
func (s *Site) better(than *Site) bool {
	if mine, theirs := waitsites.General(s.Function), waitsites.General(than.Function); mine != theirs || than.Function == "" {
		return than.Function == "" || theirs
	}
	return s.Samples > than.Samples || s.Samples == than.Samples && s.Function < than.Function
}

// samples lists those of the task that ran in a piece: itself, or the one that it waited
// behind. run: there are some of this run, from one switch to the next.
func (w *walker) samples(p *piece) (list []stackAt, run bool) {
	switch p.cause {
	case Running, RunningUser, RunningKernel, Preempted, Runnable, Misplaced:
	default:
		return nil, false
	}
	if p.by == nil || p.by.Kind != KindTask {
		return nil, false
	}
	t := w.m.tasks[p.by.TID]
	if t == nil || len(t.samples) == 0 {
		return nil, false
	}
	if list = t.sampled(p.from, p.to); len(list) > 0 {
		return list, true
	}
	i := t.segmentAt(p.from)
	return nil, i < len(t.segments) && t.segments[i].state == running && len(t.sampled(t.segments[i].from, t.segments[i].to)) > 0
}

// sampled lists the samples of a task after from, until to.
func (t *task) sampled(from, to uint64) []stackAt {
	i := sort.Search(len(t.samples), func(i int) bool { return t.samples[i].at > from })
	j := sort.Search(len(t.samples), func(i int) bool { return t.samples[i].at > to })
	return t.samples[i:max(i, j)]
}

// workSite says what a task did whose sampled stack has these frames, in user space or in the kernel;
// no function: nothing is known.
func workSite(frames []string, user bool) Site {
	if len(frames) == 0 {
		return Site{}
	}
	if file := unnamed(frames[0]); user && file != "" {
		return Site{Function: file, Words: noSymbolWords}
	}
	if user {
		return Site{Function: userFunction(frames[0])}
	}
	if site, ok := waitsites.Work(frames); ok {
		return Site{Function: site.Function, Words: site.Words}
	}
	return Site{Function: waitsites.Function(frames[0])}
}

// userFunction is the function of a frame of a program, without the offset: dots are part of
// names there, as in "main.(*server).handle" of Go.
func userFunction(frame string) string {
	if i := strings.LastIndex(frame, "+0x"); i > 0 {
		frame = frame[:i]
	}
	if strings.HasPrefix(frame, "0x") || strings.HasPrefix(frame, noSymbol) {
		return ""
	}
	return frame
}

// noSymbol is what frames of programs begin with that have no name: "[unknown] (FILE+0xOFFSET)".
const noSymbol = "[unknown] "

const noSymbolWords = "code without symbols"

// unnamed is the file of such a frame; "" of others.
func unnamed(frame string) string {
	rest, ok := strings.CutPrefix(frame, noSymbol+"(")
	i := strings.LastIndex(rest, "+0x")
	if !ok || i < 0 {
		return ""
	}
	return rest[:i]
}

// siteText is what a verdict says of the place of a group of parts, if one has most of it.
func (g *group) siteText() string {
	first := &g.parts[0]
	if first.NS*10 < g.ns*6 || g.obvious() {
		return ""
	}
	return first.Site.text()
}

// obvious reports whether the place says no more than the system call, as for poll.
func (g *group) obvious() bool {
	s := &g.parts[0].Site
	if s.Of > 0 {
		return false
	}
	site, ok := waitsites.Wait([]string{s.Function})
	return ok && site.Obvious
}

// siteAdvice is what to check where the task of the largest part waited, or what it did.
func siteAdvice(r *Result) string {
	s := &r.Blame.Site
	find := waitsites.Wait
	if s.Of > 0 {
		if find = waitsites.Work; s.Of < 2 {
			return "" // of a single sample
		}
	}
	site, ok := find([]string{s.Function})
	if !ok || s.Function == "" || site.Whose && r.Blame.By != nil && r.Blame.By.Kind == KindTask {
		return ""
	}
	return site.Advice
}
