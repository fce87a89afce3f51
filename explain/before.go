package explain

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Before compares an outlier with earlier work of the same kind, of which the same trace has
// the end and the begin.
type Before struct {
	// Of is what is compared: calls, waits, wakeups, requests or works. Waits are stretches
	// off the CPU in one system call; of an outlier that is something else, its longest.
	Of string `json:"of"`
	In string `json:"in,omitempty"` // the system call, operation and device, or function
	// Whose they were: thread: the same one's; process: other threads' of the same name in
	// its process; machine: anybody's.
	Whose    string `json:"whose"`
	NS       int64  `json:"ns"`    // this one
	Count    int    `json:"count"` // earlier ones, the latest 1024 at most
	MedianNS int64  `json:"median_ns"`
	MaxNS    int64  `json:"max_ns"`
	SpanNS   int64  `json:"span_ns"` // from the begin of the first to the end of the last
	// Compared is how many of them were explained as the outlier is: the latest of those that
	// took less than half of its time. 0: it is not unusual, or the history has too few.
	Compared int `json:"compared"`
	// Changes are the root causes that took longer now than in any of these, largest first.
	Changes []Change `json:"changes,omitempty"`
	// Confidence is that of the least sure change.
	Confidence Confidence `json:"confidence,omitempty"`
}

// Change is a root cause that took longer than before: NS now, BeforeNS at the median of what
// is compared.
type Change struct {
	Part
	BeforeNS int64 `json:"before_ns"`
	// New: it took no time before.
	New   bool   `json:"new"`
	Words string `json:"words"` // who did what now, and for how long
}

// Whose and Of of Before.
const (
	ofThread  = "thread"
	ofProcess = "process"
	ofMachine = "machine"

	pastCalls    = "calls"
	pastWaits    = "waits"
	pastWakeups  = "wakeups"
	pastRequests = "requests"
	pastWorks    = "works"
)

const (
	minPast     = 8  // fewer say nothing
	maxCompared = 16 // explained
	minCompared = 5
	maxChanges  = 3
)

// before compares an outlier with what came before it; nil: there is too little.
func (w *walker) before(r *Result, pieces []piece) *Before {
	if w.m.history == nil || len(pieces) == 0 {
		return nil
	}
	b, earlier, now := w.sameWork(pieces)
	if len(earlier) < minPast {
		return nil
	}
	b.NS, b.Count = int64(now.End-now.Start), len(earlier)
	first, last := uint64(forever), uint64(0)
	lengths := make([]int64, len(earlier))
	for i := range earlier {
		p := &earlier[i]
		lengths[i], first, last = p.ns(), min(first, p.from), max(last, p.to)
	}
	b.MedianNS, b.MaxNS, b.SpanNS = median(lengths), slices.Max(lengths), int64(last-first)
	ordinary := slices.DeleteFunc(earlier, func(p past) bool { return p.ns() >= b.NS/2 })
	if len(ordinary)*10 >= b.Count*9 {
		if now != w.outlier {
			w = &walker{m: w.m, outlier: now}
			pieces = w.all()
		}
		w.changes(b, pieces, ordinary)
	}
	return b
}

// sameWork finds earlier work of the same kind, in the order of its ends, and what of the
// outlier it is compared with.
func (w *walker) sameWork(pieces []piece) (*Before, []past, *Outlier) {
	switch w.outlier.Track {
	case "block":
		return w.sameRequests()
	case "workqueue":
		return w.sameWorks()
	case "wakeup":
		if w.wokenBy() == nil {
			return nil, nil, nil // it lost its CPU
		}
		return w.sameThread(pastWakeups, "", func(t *threadPast) *pasts { return &t.wakeups }, func(*past) bool { return true })
	case "syscall":
		named := func(p *past) bool { return w.outlier.Syscall != "" && w.m.syscall(p.call) == w.outlier.Syscall }
		if b, list, o := w.sameThread(pastCalls, w.outlier.Syscall, func(t *threadPast) *pasts { return &t.runs }, named); b != nil {
			return b, list, o
		}
	}
	return w.sameWaits(pieces)
}

// sameThread finds earlier work of the outlier's thread, or else of its process.
func (w *walker) sameThread(of, in string, list func(*threadPast) *pasts, wanted func(*past) bool) (*Before, []past, *Outlier) {
	h, o := w.m.history, w.outlier
	b := &Before{Of: of, In: in, Whose: ofThread}
	var found []past
	if t := h.threads[o.TID]; t != nil {
		found = list(t).until(o.Start, wanted)
	}
	if t := h.processes[o.PID]; t != nil && len(found) < minPast {
		b.Whose, found = ofProcess, list(t).until(o.Start, wanted)
	}
	if len(found) < minPast {
		return nil, nil, nil
	}
	return b, found, o
}

// sameWaits finds earlier waits in the system call in which the outlier waited longest, for
// half of its time or more.
func (w *walker) sameWaits(pieces []piece) (*Before, []past, *Outlier) {
	o := w.outlier
	t := w.m.tasks[o.TID]
	if o.Key != nil || o.Began != "" || t == nil {
		return nil, nil, nil
	}
	best := *o
	best.Track, best.Start, best.End, best.Loose, best.Stacks = "offcpu", 0, 0, false, nil
	call := trace.CallNone
	var at uint64 // when the wait began
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].to > o.Start })
	for ; i < len(t.segments) && t.segments[i].from < o.End; i++ {
		s := &t.segments[i]
		from, to := max(s.from, o.Start), min(s.to, o.End)
		switch {
		case to <= from || s.state == running || s.state == unknown:
			at = 0
			continue
		case s.state == blocked:
			at, call = from, int(s.call)
		case at == 0:
			continue // preempted
		}
		if to-at > best.End-best.Start {
			best.Start, best.End, best.Call = at, to, call
		}
	}
	if wait := best.End - best.Start; wait == 0 || wait*2 < o.End-o.Start {
		return nil, nil, nil
	}
	call, best.Syscall = best.Call, w.m.callName(best.Call)
	b, found, _ := w.sameThread(pastWaits, best.Syscall, func(t *threadPast) *pasts { return &t.waits }, func(p *past) bool { return p.call == call })
	if o.Track == "offcpu" {
		return b, found, o
	}
	return b, found, &best
}

// callName is callText without its preposition.
func (m *model) callName(nr int) string { return strings.TrimPrefix(m.callText(nr, ""), "in ") }

// sameRequests finds earlier requests of the same device and operation, and of about the
// same size.
func (w *walker) sameRequests() (*Before, []past, *Outlier) {
	r := w.m.requestOf(w.outlier)
	if r == nil {
		return nil, nil, nil
	}
	p := w.m.history.requests[requestKind{r.dev, requestOp(r)}]
	if p == nil {
		return nil, nil, nil
	}
	found := p.until(w.outlier.Start, func(x *past) bool { return x.bytes/4 <= r.bytes && r.bytes/4 <= x.bytes })
	return &Before{Of: pastRequests, In: w.m.requestText(r) + " on " + w.outlier.Device, Whose: ofMachine}, found, w.outlier
}

// sameWorks finds earlier work of the same function.
func (w *walker) sameWorks() (*Before, []past, *Outlier) {
	h, o := w.m.history, w.outlier
	of := h.works
	if o.Waiting {
		of = h.queued
	}
	var found []past
	for function, p := range of {
		if w.m.function(function) == o.Name && o.Name != "" {
			found = append(found, p.until(o.Start, func(*past) bool { return true })...)
		}
	}
	slices.SortFunc(found, func(a, b past) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.from, b.from)) })
	return &Before{Of: pastWorks, In: o.Name, Whose: ofMachine}, found, o
}

// changeKey is a root cause, whoever of one name it is by.
type changeKey struct {
	cause      Cause
	kind, name string
	wait       string
}

func (m *model) changeKey(p *Part, self int) changeKey {
	k := changeKey{cause: p.Cause, wait: p.Wait}
	if p.By == nil {
		return k
	}
	k.kind, k.name = p.By.Kind, p.By.Name
	if p.By.Kind == KindTask {
		k.name = cmp.Or(p.By.Comm, p.By.Name)
		switch {
		case p.By.TID == self:
			k.kind, k.name = KindSelf, ""
		case strings.HasPrefix(k.name, "kworker/"):
			k.name = "kworker"
		}
	}
	return k
}

// sumChanges adds up root causes.
func (m *model) sumChanges(parts []Part, self int) map[changeKey]int64 {
	sums := map[changeKey]int64{}
	for i := range parts {
		sums[m.changeKey(&parts[i], self)] += parts[i].NS
	}
	return sums
}

// explainPast returns the root causes of earlier work; nil: not enough of it is known.
func (w *walker) explainPast(p *past) map[changeKey]int64 {
	h := w.m.history
	m := w.m.modelOf(p)
	if m == nil || h.spent > maxPastPieces {
		return nil
	}
	o := *w.outlier
	o.Start, o.End, o.TID, o.Sector, o.Cause, o.Stacks, o.User = p.from, p.to, p.tid, p.sector, "", nil, nil
	x := &walker{m: m, outlier: &o}
	parts := sumParts(x.all(), true)
	h.spent += x.pieces + x.below + maxPastPieces/maxExplained
	for i := range parts {
		if parts[i].Cause == Unexplained && parts[i].NS*10 > p.ns() {
			return nil
		}
	}
	return m.sumChanges(parts, p.tid)
}

// changes finds what took longer than in any of the latest of earlier work, as far as the
// history holds that as a whole.
func (w *walker) changes(b *Before, pieces []piece, earlier []past) {
	var old []map[changeKey]int64
	for i := len(earlier) - 1; i >= 0 && i >= len(earlier)-2*maxCompared && len(old) < maxCompared; i-- {
		if sums := w.explainPast(&earlier[i]); sums != nil {
			old = append(old, sums)
		}
	}
	if len(old) < minCompared {
		return
	}
	b.Compared = len(old)
	parts := sumParts(pieces, true)
	for key, ns := range w.m.sumChanges(parts, w.outlier.TID) {
		each := make([]int64, len(old))
		for i := range old {
			each[i] = old[i][key]
		}
		c := Change{BeforeNS: median(each), New: slices.Max(each) == 0}
		if key.cause == Unexplained || ns <= slices.Max(each) || (ns-c.BeforeNS)*10 < b.NS-b.MedianNS {
			continue
		}
		w.describeChange(&c, key, parts, pieces)
		b.Changes = append(b.Changes, c)
	}
	slices.SortFunc(b.Changes, func(x, y Change) int {
		return cmp.Or(cmp.Compare(y.NS-y.BeforeNS, x.NS-x.BeforeNS), cmp.Compare(x.Words, y.Words))
	})
	b.Changes = b.Changes[:min(len(b.Changes), maxChanges)]
	for i := range b.Changes {
		if c := b.Changes[i].Confidence; b.Confidence == "" || c.rank() > b.Confidence.rank() {
			b.Confidence = c
		}
	}
}

// describeChange sums up the parts of a change.
func (w *walker) describeChange(c *Change, key changeKey, parts []Part, pieces []piece) {
	l := link{group: group{cause: key.cause}}
	for i := range parts {
		p := &parts[i]
		if w.m.changeKey(p, w.outlier.TID) != key {
			continue
		}
		l.ns += p.NS
		l.parts = append(l.parts, *p)
		if p.Confidence.rank() > c.Confidence.rank() || c.Confidence == "" {
			c.Confidence, c.Evidence = p.Confidence, p.Evidence
		}
		c.Count += p.Count
	}
	first := l.parts[0]
	c.Cause, c.By, c.NS, c.Wait = first.Cause, first.By, l.ns, first.Wait
	var longest piece
	leaves(pieces, func(p *piece) {
		if p.key() == first.key() && p.ns() > longest.ns() {
			longest = *p
		}
	})
	who := "it"
	if longest.task != w.outlier.TID {
		who = describe(w.m.whoIs(longest.task))
	}
	c.Words = printable(who + " " + l.words())
}

// Text says it in two sentences at most, about a delay with this cause.
func (b *Before) Text(cause string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "Within %s before: %d %s took %s at the median and %s at most; this one ", duration(b.SpanNS), b.Count,
		b.what(), duration(b.MedianNS), duration(b.MaxNS))
	if cause == "timeout" {
		s.WriteString("has taken " + duration(b.NS) + " so far.")
	} else {
		s.WriteString("took " + duration(b.NS) + ".")
	}
	for i := range b.Changes {
		c := &b.Changes[i]
		switch {
		case i == 0:
			fmt.Fprintf(&s, " Unlike in the last %d that took less than half of that, ", b.Compared)
		case i == len(b.Changes)-1:
			s.WriteString(", and ")
		default:
			s.WriteString(", ")
		}
		s.WriteString(c.Words)
		if !c.New {
			s.WriteString(" (" + duration(c.BeforeNS) + " at their median)")
		}
		if c.Confidence == Guess {
			s.WriteString(" (a guess: " + c.Evidence + ")")
		}
	}
	if len(b.Changes) > 0 {
		s.WriteString(".")
	}
	return printable(s.String())
}

// what names the earlier work.
func (b *Before) what() string {
	whose := " of this thread"
	if b.Whose == ofProcess {
		whose = " of other threads of its process and name"
	}
	switch b.Of {
	case pastCalls:
		return "calls of " + b.In + strings.Replace(whose, " of", " by", 1)
	case pastWakeups:
		return "wake-ups" + whose
	case pastRequests:
		return "requests such as this " + b.In
	case pastWorks:
		return "executions of " + b.In
	}
	if b.In != "" {
		whose += " in " + b.In
	}
	return "waits" + whose
}
