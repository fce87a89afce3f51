package explain

import (
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Limits of what is kept of earlier work.
const (
	maxPast       = 1024    // of a thread, a process, or requests or work of one kind
	maxWatched    = 64      // threads and processes
	maxPastKinds  = 128     // kinds of requests, and functions of work
	maxPastPieces = 1 << 16 // that all comparisons of a report may take
	maxExplained  = 1024    // of earlier work, for all outliers of a report
	recentEvents  = 8192    // events before the first outlier
)

// past is work that ended, as outliers do.
type past struct {
	from, to uint64
	tid      int
	call     int    // waits: the system call it was in; calls: which
	sector   uint64 // requests
	bytes    uint32
}

func (p *past) ns() int64 { return int64(p.to - p.from) }

// pasts are the latest ones of a kind.
type pasts struct {
	list []past
	next int // the oldest, once the list is full
}

func (p *pasts) add(x past) {
	if x.from >= x.to {
		return
	}
	if len(p.list) < maxPast {
		p.list = append(p.list, x)
		return
	}
	p.list[p.next] = x
	p.next = (p.next + 1) % maxPast
}

// threadPast is what the threads of one outlier did, or the other threads of its process.
type threadPast struct {
	comm                 trace.Comm // of a process: only threads of this name
	waits, wakeups, runs pasts      // runs are of system calls
}

// threadNow is what a thread is doing.
type threadNow struct {
	of          *threadPast
	out, woken  uint64 // since when it is off its CPU, and has been woken; 0: it is not
	call        int
	began       uint64 // its system call; 0: unknown
	nr          uint32
	holesBefore int // history.holes when it began to wait
}

type requestKind struct {
	dev uint32
	op  uint32
}

// history is what came before outliers in the same trace: how long earlier work of the same
// kind took, and the latest events, from which some of it can be explained.
type history struct {
	threads       map[int]*threadPast // by thread id
	processes     map[int]*threadPast // by process id
	requests      map[requestKind]*pasts
	works, queued map[uint64]*pasts // by function: how long it ran, how long it waited
	holes         int               // in the history of any CPU

	recent []trace.Event // a ring
	seen   int
	model  *model // of recent; nil: not made yet
	spent  int    // pieces of earlier work, for all outliers
}

// newHistory returns what outliers need; nil: none of them is compared with anything.
func newHistory(outliers []Outlier) *history {
	h := &history{threads: map[int]*threadPast{}, processes: map[int]*threadPast{}}
	for i := range outliers {
		switch o := &outliers[i]; {
		case o.Cause == "trigger" || o.Start >= o.End:
		case o.Track == "block":
			h.requests = map[requestKind]*pasts{}
		case o.Track == "workqueue":
			h.works, h.queued = map[uint64]*pasts{}, map[uint64]*pasts{}
		case o.Key != nil || o.Began != "" || o.TID <= 0 || o.Track == "irq" || o.Track == "softirq":
		default:
			if len(h.threads)+len(h.processes) < maxWatched && h.threads[o.TID] == nil {
				h.threads[o.TID] = &threadPast{}
			}
			if len(h.threads)+len(h.processes) < maxWatched && o.PID > 0 && h.processes[o.PID] == nil {
				h.processes[o.PID] = &threadPast{comm: trace.MakeComm(o.Comm)}
			}
		}
	}
	if len(h.threads) == 0 && h.requests == nil && h.works == nil {
		return nil
	}
	return h
}

// remember keeps an event for a while.
func (h *history) remember(ev *trace.Event) {
	if h == nil {
		return
	}
	if len(h.recent) < recentEvents {
		h.recent = append(h.recent, *ev)
	} else {
		h.recent[h.seen%recentEvents] = *ev
	}
	h.seen++
}

// since is from when on the latest events are all there.
func (h *history) since() uint64 {
	switch n := len(h.recent); {
	case n == 0:
		return forever
	case n < recentEvents:
		return h.recent[0].Time
	}
	return h.recent[h.seen%recentEvents].Time
}

// thread returns what a thread is doing, if earlier work of its process is of interest.
func (m *model) thread(t *task) *threadNow {
	if m.history == nil || t.askedPast == t.pid+1 {
		return t.past
	}
	t.askedPast = t.pid + 1
	h := m.history
	of := h.threads[t.tid]
	if p := h.processes[t.pid]; of == nil && p != nil && p.comm == t.comm {
		of = p
	}
	switch {
	case of == nil:
		t.past = nil
	case t.past == nil || t.past.of != of:
		t.past = &threadNow{of: of}
	}
	return t.past
}

// leave notes that the thread leaves its CPU.
func (n *threadNow) leave(m *model, at uint64, b *trace.Switch, blocks bool) {
	n.out, n.woken = 0, 0
	if blocks {
		n.out, n.call, n.holesBefore = at, b.Call, m.history.holes
	}
}

// enter notes that it has a CPU again.
func (n *threadNow) enter(m *model, tid int, at uint64) {
	if n.out > 0 && n.holesBefore == m.history.holes {
		n.of.waits.add(past{from: n.out, to: at, tid: tid, call: n.call})
		if n.woken > 0 {
			n.of.wakeups.add(past{from: n.woken, to: at, tid: tid})
		}
	}
	n.out, n.woken = 0, 0
}

// forget: what it has done meanwhile is not known.
func (n *threadNow) forget() {
	if n != nil {
		n.out, n.woken, n.began = 0, 0, 0
	}
}

// ingestCall notes a system call.
func (n *threadNow) ingestCall(tid int, ev *trace.Event, b *trace.Syscall) {
	switch {
	case ev.Type == trace.SyscallEntry:
		n.began, n.nr = ev.Time, b.NR
	case n.began > 0 && n.nr == b.NR:
		n.of.runs.add(past{from: n.began, to: ev.Time, tid: tid, call: int(b.NR)})
		fallthrough
	default:
		n.began = 0
	}
}

// noteRequest notes a request that has completed.
func (h *history) noteRequest(r *request) {
	if h != nil && h.requests != nil && r.started() > 0 {
		notePast(h.requests, requestKind{r.dev, requestOp(r)}, past{from: r.started(), to: r.complete, tid: r.tid, sector: r.sector, bytes: r.bytes})
	}
}

// requestOp is the operation of a request, as the kernel numbers it.
func requestOp(r *request) uint32 { return r.flags & 0xff }

// noteWork notes work that has ended.
func (h *history) noteWork(x *work) {
	if h == nil || h.works == nil || x.end == forever {
		return
	}
	notePast(h.works, x.function, past{from: x.start, to: x.end, tid: x.worker})
	if x.queued > 0 {
		notePast(h.queued, x.function, past{from: x.queued, to: x.start, tid: x.worker})
	}
}

func notePast[K comparable](kinds map[K]*pasts, kind K, x past) {
	p := kinds[kind]
	if p == nil {
		if len(kinds) >= maxPastKinds {
			return
		}
		p = &pasts{}
		kinds[kind] = p
	}
	p.add(x)
}

// until returns what had ended by then and is wanted, the latest last.
func (p *pasts) until(at uint64, wanted func(*past) bool) []past {
	var list []past
	for i := range p.list {
		if x := &p.list[(p.next+i)%len(p.list)]; x.to <= at && wanted(x) {
			list = append(list, *x)
		}
	}
	return list
}

// modelOf returns the model that holds all events of earlier work; nil: there is none.
func (m *model) modelOf(p *past) *model {
	h := m.history
	switch {
	case p.from > m.from:
		return m
	case p.to > m.from || p.from <= h.since():
		return nil
	case h.model == nil:
		h.model = h.recentModel(m)
	}
	return h.model
}

// recentModel makes a model of the latest events before that of the outliers.
func (h *history) recentModel(of *model) *model {
	names := of.names
	names.Covered = map[int][]Interval{}
	since := h.since()
	for cpu, list := range of.names.Covered {
		for _, c := range list {
			if c.From = max(c.From, since); c.From < c.To {
				names.Covered[cpu] = append(names.Covered[cpu], c)
			}
		}
	}
	m := newModel(nil, names)
	m.from, m.to, m.comms = since, of.from, of.comms
	m.socketsKnown, m.eventSeen = of.socketsKnown, of.eventSeen
	m.outlierTimes = []Interval{{m.from, m.to}}
	first := h.seen % recentEvents
	if len(h.recent) < recentEvents {
		first = 0
	}
	for _, list := range [][]trace.Event{h.recent[first:], h.recent[:first]} {
		for i := range list {
			m.ingest(&list[i])
		}
	}
	m.finish()
	return m
}

// median of a list that is not empty.
func median(list []int64) int64 {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[(len(list)-1)/2]
}
