package watch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/activities/breakdown"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

const ms = uint64(time.Millisecond)

// program is a process with maps in plain memory, which the test writes as clients and the
// kernel side do.
type program struct {
	maps      Maps
	key       uint64
	threshold uint64
	now       *uint64
}

func newProgram(key uint64, now *uint64, tokens int) *program {
	const threads, attributes = 4, 8
	p := &program{key: key, now: now}
	p.maps = Maps{Threads: threads, Tokens: tokens, Attributes: attributes}
	p.maps.Shared = make([]byte, (1+threads+tokens+attributes)*abi.ActivitySharedBytes)
	p.maps.Accounts = make([]byte, (1+threads+tokens)*abi.ActivityAccountBytes)
	return p
}

func (p *program) Key() uint64            { return p.key }
func (p *program) PID() int               { return 100 + int(p.key) }
func (p *program) UID() uint32            { return uint32(1000 + p.key) }
func (p *program) Opened() uint64         { return 1 }
func (p *program) Read(fn func(m *Maps))  { fn(&p.maps) }
func (p *program) SetThreshold(ns uint64) { p.threshold = ns }

func (p *program) token(i int) *abi.ActivityToken {
	return sharedAt[abi.ActivityToken](&p.maps, p.index(i))
}

func (p *program) index(i int) uint32 { return p.maps.first() + uint32(i) }

func (p *program) begin(i int, name string) {
	t := p.token(i)
	g := t.Generation
	*t = abi.ActivityToken{Generation: g + 1, BeginNs: *p.now}
	copy(t.Name[:], name)
}

func (p *program) end(i int) {
	t := p.token(i)
	t.EndNs = *p.now
	t.Generation++
}

// attribute writes the attribute of a number, and gives it to a token.
func (p *program) attribute(i, n, number int, key, value string) {
	a := sharedAt[abi.ActivityAttribute](&p.maps, p.index(p.maps.Tokens+number-1))
	*a = abi.ActivityAttribute{State: abi.ActivityAttributeReady}
	copy(a.Key[:], key)
	copy(a.Value[:], value)
	p.token(i).Attributes[n] = uint16(number)
}

// credit adds to the wall time and to one part.
func (p *program) credit(i, value int, ns uint64) {
	p.token(i).WallNs += ns
	if value == abi.ActivityCpuNs {
		p.token(i).CpuNs += ns
		return
	}
	v := accountsAt[abi.ActivityAccount](&p.maps, p.index(i))
	if g := p.token(i).Generation; v.Generation != g {
		*v = abi.ActivityAccount{Generation: g}
	}
	v.Value[value] += ns
	if value > abi.ActivityBlockedNs && value <= abi.ActivityBlockedOtherNs {
		v.Value[abi.ActivityBlockedNs] += ns
	}
}

// carry sets what a thread carries.
func (p *program) carry(slot, tid, i int) {
	th := sharedAt[abi.ActivityThread](&p.maps, uint32(slot)+1)
	th.Tid = uint32(tid)
	th.Half[(th.Seq+1)&1] = abi.ActivityHalf{}
	if i >= 0 {
		th.Half[(th.Seq+1)&1] = abi.ActivityHalf{Token: p.index(i), Generation: p.token(i).Generation, SinceNs: *p.now}
	}
	th.Seq++
}

type world struct {
	now   uint64
	list  []Process
	fired []*Firing
	*Watcher
}

func newWorld(t *testing.T, ruleFile string) *world {
	t.Helper()
	w := &world{now: 1000 * ms}
	w.Watcher = New(&Options{
		Processes: func() []Process { return w.list }, Fire: func(f *Firing) { w.fired = append(w.fired, f) },
		Identify: func(int) Identity { return Identity{Comm: "server", Place: rules.Place{Unit: "shop.service"}} },
		Now:      func() uint64 { return w.now },
	})
	if ruleFile != "" {
		list, err := rules.Parse("f", []byte(ruleFile), &rules.LocalMachine{})
		assert.NilError(t, err)
		w.Set(list)
	}
	return w
}

func (w *world) add(tokens int) *program {
	p := newProgram(uint64(len(w.list)+1), &w.now, tokens)
	w.list = append(w.list, p)
	return p
}

func (w *world) pass(by uint64) { w.now += by }

// Accounts are those of the last use of an element, whether it was seen live or not.
func TestAccounts(t *testing.T) {
	w := newWorld(t, "")
	p := w.add(8)
	w.Scan()
	p.begin(0, "seen")
	p.carry(0, 7, 0)
	w.Scan()
	w.pass(10 * ms)
	p.credit(0, abi.ActivityBlockedDiskNs, 7*ms)
	p.credit(0, abi.ActivityCpuNs, 2*ms)
	p.credit(0, abi.ActivityRunnableNs, ms/2)
	p.token(0).WallNs += ms / 2
	p.carry(0, 7, -1)
	p.end(0)
	w.Scan()

	p.begin(0, "between")
	w.pass(3 * ms)
	p.credit(0, abi.ActivityBlockedLockNs, 3*ms)
	p.end(0)
	w.Scan()

	r := w.Report(true)
	assert.Equal(t, len(r.Ended), 2)
	assert.Equal(t, r.Counts, Counts{Ended: 2})
	between, seen := r.Ended[0], r.Ended[1]
	assert.DeepEqual(t, seen.Values.ByName(), breakdown.Values{
		"wall_ns": 10 * ms, "cpu_ns": 2 * ms, "runnable_ns": ms / 2, "blocked_ns": 7 * ms, "blocked_disk_ns": 7 * ms, "unexplained_ns": ms / 2,
	})
	assert.Equal(t, seen.Elapsed(), 10*ms)
	assert.DeepEqual(t, seen.Threads, []int{7})
	assert.DeepEqual(t, between.Values.ByName(), breakdown.Values{"wall_ns": 3 * ms, "blocked_ns": 3 * ms, "blocked_lock_ns": 3 * ms})
	assert.Equal(t, breakdown.Words(seen.Name, seen.Elapsed(), false, seen.Values.ByName()),
		"seen took 10.0ms: 7.00ms blocked on disk, 2.00ms on CPU, 500µs waiting for a CPU; 500µs unexplained")
}

// Of an element that was used several times between two scans, only the last one is seen.
func TestMissed(t *testing.T) {
	w := newWorld(t, "")
	p := w.add(8)
	w.Scan()
	for _, name := range []string{"one", "two", "three"} {
		p.begin(3, name)
		if name != "three" {
			p.credit(3, abi.ActivityBlockedDiskNs, ms)
		}
		p.end(3)
	}
	w.Scan()
	r := w.Report(true)
	assert.Equal(t, r.Counts, Counts{Ended: 1, Missed: 2})
	assert.Equal(t, r.Ended[0].Name, "three")
	assert.Equal(t, r.Ended[0].Values, Values{}, "what an earlier one has cost")

	p.begin(3, "live")
	w.Scan()
	p.end(3)
	p.begin(3, "next")
	w.Scan()
	r = w.Report(true)
	assert.Equal(t, r.Counts, Counts{Ended: 1, Missed: 3})
	assert.Equal(t, r.Live[0].Name, "next")
}

// A live token has what its threads have not added yet.
func TestLive(t *testing.T) {
	w := newWorld(t, "")
	p := w.add(8)
	w.Scan()
	p.begin(1, "live")
	p.carry(0, 7, 1)
	p.carry(1, 8, 1)
	st := accountsAt[abi.ActivityThreadState](&p.maps, 2)
	w.pass(2 * ms)
	*st = abi.ActivityThreadState{Tid: 8, OutNs: w.now, Cause: abi.ActivityBlockedDiskNs}
	w.pass(4 * ms)
	r := w.Report(true)
	assert.Equal(t, len(r.Live), 1)
	v := r.Live[0].Values.ByName()
	assert.DeepEqual(t, v, breakdown.Values{"wall_ns": 12 * ms, "cpu_ns": 6 * ms, "blocked_ns": 4 * ms, "blocked_disk_ns": 4 * ms, "unexplained_ns": 2 * ms})
	assert.Assert(t, r.Live[0].Live)
	assert.DeepEqual(t, r.Live[0].Threads, []int{7, 8})
}

// The activity of a thread at an earlier time is told if its slot still shows that.
func TestCarried(t *testing.T) {
	w := newWorld(t, "")
	p := w.add(8)
	w.Scan()
	slot := func(tid int) int { // as clients find theirs
		return int(uint32(tid) * abi.ActivityHash >> 30)
	}
	p.begin(0, "first")
	p.begin(1, "second")
	from := w.now
	w.pass(ms)
	p.carry(slot(7), 7, 0)
	w.pass(ms)
	p.carry(slot(7), 7, 1)
	w.pass(ms)
	name := func(tid int, from, to uint64) string {
		if r := w.Carried(p.PID(), tid, from, to); r != nil {
			return r.Name
		}
		return ""
	}
	assert.Equal(t, name(7, from+ms, from+2*ms), "first")
	assert.Equal(t, name(7, from+2*ms, from+3*ms), "second")
	assert.Equal(t, name(7, from, from+2*ms), "", "it began before the first")
	assert.Equal(t, name(7, from+ms, from+3*ms), "", "both of them")
	assert.Equal(t, name(8, from+2*ms, from+3*ms), "", "no such thread")
	p.end(1)
	assert.Equal(t, name(7, from+2*ms, from+3*ms), "second", "ended, and not used again")
	p.begin(1, "third")
	assert.Equal(t, name(7, from+2*ms, from+3*ms), "")
	assert.Assert(t, w.Follows(p.PID()) && !w.Follows(1))
}

const checkoutRule = `
rules:
  - name: slow-checkout
    track: activity
    threshold: 20ms
    timeout: 100ms
    repeat: 50ms
    when: {name: ["check*"], not_name: [checked], unit: [shop.service]}
    overrides:
      - when: {name: [checkin]}
        threshold: 5ms
    snapshot: {every: 1s, burst: 1}
`

func TestRule(t *testing.T) {
	w := newWorld(t, checkoutRule)
	p := w.add(8)
	w.Scan()
	assert.Equal(t, p.threshold, 5*ms, "the lowest of all that may apply")
	for i, name := range []string{"checkout", "checkin", "checked", "other"} {
		p.begin(i, name)
	}
	w.pass(10 * ms)
	for i := range 4 {
		p.end(i)
	}
	w.Scan()
	assert.Equal(t, len(w.fired), 1)
	f := w.fired[0]
	assert.Equal(t, f.Name, "checkin")
	assert.Equal(t, f.Cause, events.CauseThreshold)
	assert.Equal(t, f.Limit, 5*time.Millisecond)
	assert.Assert(t, f.WantsSnapshot)

	// A message brings it at once, and the scan does not bring it again.
	p.begin(0, "checkout")
	w.pass(30 * ms)
	p.end(0)
	w.Slow(p.key, p.index(0))
	w.Slow(p.key, p.index(0))
	w.Scan()
	assert.Equal(t, len(w.fired), 2)
	assert.Assert(t, !w.fired[1].WantsSnapshot, "limited")
	s, ok := w.State("slow-checkout")
	assert.Assert(t, ok)
	assert.Equal(t, s, State{Seen: 3, Outliers: 2, Suppressed: 1, WorstNS: int64(30 * ms)})
	h, ok := w.Histogram("slow-checkout")
	assert.Assert(t, ok && h.Count == 3)
}

func TestTimeout(t *testing.T) {
	w := newWorld(t, checkoutRule)
	p := w.add(8)
	p.begin(0, "checkout")
	var causes []events.Cause
	for range 20 {
		w.Scan()
		w.pass(10 * ms)
	}
	p.end(0)
	w.Scan()
	w.Scan()
	for _, f := range w.fired {
		causes = append(causes, f.Cause)
	}
	assert.DeepEqual(t, causes, []events.Cause{events.CauseTimeout, events.CauseTimeout, events.CauseAfterTimeout})
	assert.Equal(t, w.fired[2].Elapsed(), 200*ms)
}

// A threshold that follows the load needs samples, and is told to the process.
func TestAdaptive(t *testing.T) {
	w := newWorld(t, "rules: [{name: a, track: activity, threshold: {quantile: 0.9, times: 2, floor: 1ms, min_samples: 50}}]")
	p := w.add(8)
	w.Scan()
	assert.Equal(t, p.threshold, uint64(0))
	for range 60 {
		p.begin(0, "work")
		w.pass(10 * ms)
		p.end(0)
		w.Scan()
	}
	w.pass(1000 * ms)
	w.Scan()
	assert.Assert(t, p.threshold > 15*ms && p.threshold < 25*ms, "%d", p.threshold)
	p.begin(0, "work")
	w.pass(40 * ms)
	p.end(0)
	w.Scan()
	assert.Equal(t, len(w.fired), 1)
	s, ok := w.Adaptive("a", 0)
	assert.Assert(t, ok && s.Samples >= 60)
}

// A process may write anything at any time. Times stay within the process's life, memory
// within its bounds, and text is valid.
func TestHostile(t *testing.T) {
	w := newWorld(t, checkoutRule)
	p := w.add(64)
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		for i := range p.maps.Shared {
			if random.IntN(40) == 0 {
				p.maps.Shared[i] = byte(random.Uint32())
			}
		}
		w.pass(ms)
		w.Scan()
		w.Slow(p.key, random.Uint32())
		w.Slow(p.key, p.index(random.IntN(64)))
		r := w.Report(true)
		for _, list := range [][]*Record{r.Live, r.Ended} {
			for _, a := range list {
				assert.Assert(t, a.Begin <= a.End && a.End <= w.now, "%+v", a)
				assert.Equal(t, a.Name, strings.ToValidUTF8(a.Name, "?"))
				assert.Assert(t, a.Values[unexplained] <= a.Values[wall])
			}
		}
	}
	p.maps.Shared = p.maps.Shared[:100] // as after a failed map
	w.Scan()
	w.list = nil
	w.Scan()
	assert.Equal(t, len(w.processes), 0)
}

// Messages are limited.
func TestMessages(t *testing.T) {
	w := newWorld(t, "")
	p := w.add(8)
	w.Scan()
	for range 3 * messages {
		w.Slow(p.key, p.index(0))
	}
	counts, _ := w.Counts()
	assert.Equal(t, counts.Limited, uint64(2*messages))
}

// The names of one user do not crowd out those of others, and what is remembered is bounded.
func TestBounds(t *testing.T) {
	s := newStore()
	for i := range 3 * recordsInAll {
		s.add(&Record{ID: fmt.Sprint(i), UID: 1, Name: fmt.Sprint("name ", i%1000), Begin: 1, End: uint64(i + 2)})
	}
	s.add(&Record{UID: 2, Name: "rare", Begin: 1, End: 2})
	assert.Equal(t, len(s.names), namesPerUser+2)
	var all uint64
	for _, of := range s.names {
		all += of.Histogram.Count
	}
	assert.Equal(t, all, uint64(3*recordsInAll+1))
	assert.Assert(t, s.names[nameKey{noUser, Other}].Histogram.Count > 2*recordsInAll)
	assert.Assert(t, s.names[nameKey{2, "rare"}].Histogram.Count == 1)
	assert.Assert(t, s.count <= recordsInAll)
	n := 0
	for _, of := range s.names {
		n += len(of.latest) + len(of.slowest)
	}
	assert.Equal(t, n, s.count)
}

// Each condition on the process of an activity decides whether a rule applies to it.
func TestConditions(t *testing.T) {
	is := map[string][2]string{ // what holds, and what does not
		"comm": {"serv*", "client"}, "pid": {"101", "102"}, "uid": {"1001", "1002"}, "cgroup": {"/shop/**", "/other/**"},
		"unit": {"shop.service", "x.service"}, "container": {"web", "db"}, "pod": {"web-*", "db-*"},
		"namespace": {"prod", "test"}, "name": {"check*", "pay*"},
	}
	for _, key := range rules.WhenKeys(rules.Activity) {
		key, not := strings.CutPrefix(key, "not_")
		values, ok := is[key]
		assert.Check(t, ok, "nothing is known of %s", key)
		for i, value := range values {
			when := fmt.Sprintf("%s: [%q]", key, value)
			if key == "pid" || key == "uid" {
				when = key + ": [" + value + "]"
			}
			if not {
				when = "not_" + when
			}
			w := newWorld(t, "rules: [{name: slow, track: activity, threshold: 1ms, when: {"+when+"}}]")
			w.opts.Identify = func(int) Identity {
				return Identity{Comm: "server", Place: rules.Place{
					Cgroup: "/shop/web", Unit: "shop.service", ContainerName: "web", Pod: "web-1", Namespace: "prod",
				}}
			}
			p := w.add(8)
			w.Scan()
			p.begin(0, "checkout")
			w.pass(10 * ms)
			p.end(0)
			w.Scan()
			assert.Check(t, (len(w.fired) == 1) == ((i == 0) != not), "%s: fired %d times", when, len(w.fired))
			assert.Check(t, (p.threshold == ms) == (len(w.fired) == 1 || key == "name"), "%s: the process is told %d", when, p.threshold)
		}
	}
}

// Attributes are those that a program has set, and what others have told; what makes no sense is left out.
func TestAttributes(t *testing.T) {
	w := newWorld(t, "")
	p := w.add(8)
	w.Scan()
	p.begin(0, "checkout")
	p.attribute(0, 0, 1, "http.route", "/cart")
	p.attribute(0, 1, 8, "tenant", "gold\xff")
	p.token(0).Attributes[2] = 9 // there is none
	p.attribute(0, 3, 3, "", "nothing")
	p.begin(1, "search")
	p.attribute(1, 0, 4, "half", "written")
	sharedAt[abi.ActivityAttribute](&p.maps, p.index(8+3)).State = abi.ActivityAttributeClaimed
	want := map[string]string{"http.route": "/cart", "tenant": "gold\uFFFD"}
	w.Scan()
	live := w.Report(true).Live
	assert.DeepEqual(t, live[0].Attributes, want)
	assert.Assert(t, live[1].Attributes == nil)
	w.pass(ms)
	p.end(0)
	w.Scan()
	ended := w.Report(true).Ended[0]
	assert.DeepEqual(t, ended.Attributes, want)

	w.Learn(ended.ID, map[string]string{"http.route": "of its thread"})
	w.Learn(ended.ID, map[string]string{"method": "GET"})
	w.Learn("nobody", map[string]string{"method": "PUT"})
	want["method"] = "GET"
	assert.DeepEqual(t, w.Report(true).Ended[0].Attributes, want)
	assert.Equal(t, len(ended.Attributes), 2, "a report does not change any more")
	for i := range 2 * maxLearned {
		w.Learn(fmt.Sprint(i), want)
	}
	assert.Equal(t, len(w.learned.of), maxLearned)
	assert.Equal(t, len(w.Report(true).Ended[0].Attributes), 2, "forgotten")
	assert.Equal(t, len(w.learned.oldest), maxLearned)
}
