package detect

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/contexts"
	"github.com/tailcam/tailcam/internal/contexts/published"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/threadctx"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

const contextSleep = 20 * time.Millisecond

// contextRules see each sleep of a process twice: as a system call, and off its CPU.
func contextRules(t *testing.T) []rules.Rule {
	t.Helper()
	when := rules.Match{Comm: []string{"threadctx"}, Syscall: calls(t, "nanosleep")}
	return []rules.Rule{
		{Name: "call", Track: rules.Syscall, Threshold: contextSleep / 2, When: when, Attach: rules.AttachAll},
		{Name: "sleep", Track: rules.OffCPU, Threshold: contextSleep / 2, When: when},
	}
}

// reading reads files and memory of processes in this process: see contexts.Source.
type reading struct{ *symbols.Resolver }

func (reading) Words(pid int, addrs ...uint64) ([]uint64, process.Image, error) {
	return process.Words(pid, addrs...)
}

// routes names attributes as the daemon does, but reads memory in this process.
func routes() *contexts.Attributes {
	wanted := []string{"http.route"}
	return contexts.NewAttributes(wanted, func(pid int, wanted []string) ([]string, process.Image, error) {
		keys, image, err := published.Keys(pid)
		for i, key := range keys {
			if !slices.Contains(wanted, key) {
				keys[i] = ""
			}
		}
		return keys, image, err
	})
}

// traces are the outliers of sleeps, with their contexts as the daemon learns them. A few may
// be missing: a kernel that hides switches hides the sleeps, and the context after a switch
// comes by an interrupt, which may be late. What there is must be right.
type traces struct {
	t    *testing.T
	list []*events.Outlier
	seen map[string]int // good ones, by rule
	keys *contexts.Attributes
	pid  int // whose keys could be read: a child is gone
}

// of returns what each rule has reported for a sleep.
func (x *traces) of(s *threadctx.Sleep) map[string]*events.Outlier {
	found := map[string]*events.Outlier{}
	for _, o := range x.list {
		if o.Task.TID != s.TID || o.EndMono <= s.Start || o.StartMono >= s.End {
			continue
		}
		if o.Context != nil {
			trace := o.Context.Wait(time.Second)
			o.SetTrace(trace)
			if raw := trace.Attributes; raw != nil {
				image := process.Image{StartCode: raw.StartCode, StartStack: raw.StartStack}
				o.Attributes = x.keys.Named(raw.PID, image, raw.Data)
			}
		}
		found[o.Rule] = o
	}
	return found
}

// check holds the outliers of a sleep against what its thread has published.
func (x *traces) check(s *threadctx.Sleep) {
	x.t.Helper()
	for rule, o := range x.of(s) {
		switch {
		case s.Kind == "torn":
			assert.Check(x.t, isWhole(o.TraceID+o.SpanID), "rule %s believes %s, %s", rule, o.TraceID, o.SpanID)
			assert.Check(x.t, isOf(o.Attributes["http.route"], o.TraceID), "rule %s believes %q of %s", rule, o.Attributes, o.TraceID)
		case rule != "call" && o.TraceID == "":
		default:
			assert.Check(x.t, o.TraceID == s.TraceID && o.SpanID == s.SpanID, "%s, rule %s: %q, %q; %+v", s.Kind, rule, o.TraceID, o.SpanID, s)
			assert.Check(x.t, o.Attributes["http.route"] == s.Route || s.PID != x.pid, "%s, rule %s: %q; %+v", s.Kind, rule, o.Attributes, s)
			if s.Kind == "good" {
				x.seen[rule]++
			}
		}
	}
}

// isWhole reports whether all bytes are of one writing: see tear in threadctx's main.c.
func isWhole(id string) bool {
	return id == "" || len(id) == 48 && strings.Repeat(id[:2], 24) == id
}

// isOf reports whether a route is whole, and of the same writing as the ids.
func isOf(route, trace string) bool {
	if route == "" {
		return true
	}
	seed, err := strconv.ParseUint(trace[:2], 16, 8)
	return err == nil && route == strings.Repeat(string(rune('a'+seed%26)), 250)
}

// publish runs a program that publishes, and checks what was reported of it.
func (c *camera) publish(t *testing.T, p *threadctx.Program, seen map[string]int, args ...string) []threadctx.Sleep {
	t.Helper()
	running := p.Start(t, args...)
	before := len(c.settle())
	place, err := contexts.Find(reading{c.names}, running.PID())
	assert.NilError(t, err)
	assert.NilError(t, c.kernel.SetContext(running.PID(), &place))
	keys := routes()
	keys.Named(running.PID(), process.Image{StartCode: place.StartCode, StartStack: place.StartStack}, []byte{2, 0}) // while it lives
	running.Go()
	sleeps := running.Wait()
	assert.Assert(t, len(sleeps) > 1)
	x := &traces{t: t, list: c.since(before), seen: seen, keys: keys, pid: running.PID()}
	for i := range sleeps {
		x.check(&sleeps[i])
	}
	return sleeps
}

// Every slow call and sleep has the context that its thread had, however the program is linked.
func TestContexts(t *testing.T) {
	needRoot(t)
	c := watch(t, contextRules(t), &tracker.Options{Contexts: true, Attributes: true})
	seen := map[string]int{}
	for _, way := range threadctx.Ways() {
		t.Run(way.Name, func(t *testing.T) {
			before := seen["call"]
			c.publish(t, way.Build(t), seen, "work", "3", micros(contextSleep))
			assert.Check(t, is.Equal(seen["call"], before+6), "two threads, 3 times each")
		})
	}
	assert.Check(t, seen["sleep"] > 0, "%v", seen)
	t.Log(seen)
}

// What a process makes up is not believed, and no record is reported that nobody wrote.
func TestHostileContexts(t *testing.T) {
	needRoot(t)
	c := watch(t, contextRules(t), &tracker.Options{Contexts: true, Attributes: true})
	way := threadctx.Ways()[3]
	p := way.Build(t)
	good := map[string]int{"hostile": 7, "fork": 1} // records
	for _, args := range [][]string{{"hostile", micros(contextSleep)}, {"torn", "40", micros(contextSleep)}, {"fork", micros(contextSleep)}} {
		t.Run(args[0], func(t *testing.T) {
			seen := map[string]int{}
			c.publish(t, p, seen, args...)
			assert.Check(t, args[0] == "torn" || seen["call"] == good[args[0]], "%v", seen)
		})
	}
}

// Who woke a thread after a long sleep, and who had its CPU, have their own contexts.
func TestContextsOfOthers(t *testing.T) {
	needRoot(t)
	comm := rules.Match{Comm: []string{"threadctx"}}
	read := rules.Match{Comm: comm.Comm, Syscall: calls(t, "read")}
	c := watch(t, []rules.Rule{
		{Name: "woken", Track: rules.OffCPU, Threshold: contextSleep / 2, When: read},
		{Name: "behind", Track: rules.Wakeup, Threshold: contextSleep / 2, When: comm},
	}, &tracker.Options{Contexts: true, Groups: []string{"sched", "irq", "timer"}})
	way := threadctx.Ways()[3]
	p := way.Build(t)
	for kind, other := range map[string]func(o *events.Outlier) string{
		"woken": func(o *events.Outlier) string {
			if o.Waker == nil { // this kernel has hidden the wake-up
				return ""
			}
			return o.Waker.TraceID
		},
		"behind": func(o *events.Outlier) string {
			if o.OnCPU == nil || o.OnCPU.Comm != "threadctx" || o.OnCPU.TID == o.Task.TID { // this machine has others to run
				return ""
			}
			return o.OnCPU.TraceID
		},
	} {
		t.Run(kind, func(t *testing.T) {
			seen := map[string]int{}
			waits := c.publish(t, p, seen, kind, "15", micros(contextSleep))
			found := 0
			for _, o := range c.settle() {
				i := slices.IndexFunc(waits, func(s threadctx.Sleep) bool {
					return o.Rule == kind && o.Task.TID == s.TID && o.EndMono > s.Start && o.StartMono < s.End
				})
				if i < 0 {
					continue
				}
				if id := other(o); id != "" {
					assert.Check(t, is.Equal(id, waits[i].Other))
					found++
				}
			}
			assert.Check(t, found > 0, "%+v", waits)
			t.Log(found, "of", len(waits))
			if kind == "woken" {
				c.checkKept(t, waits)
			}
		})
	}
}

// checkKept checks that of the last sleep of each thread the context of who ended it is kept, for
// snapshots, and of no time when there was none.
func (c *camera) checkKept(t *testing.T, waits []threadctx.Sleep) {
	t.Helper()
	last := map[int]threadctx.Sleep{}
	for _, s := range waits {
		if s.End > last[s.TID].End {
			last[s.TID] = s
		}
	}
	found := 0
	for tid, s := range last {
		kept, err := c.kernel.KeptContexts(s.Start, s.End)
		assert.NilError(t, err)
		for _, k := range kept {
			if k.Of == tid && !k.Ran {
				assert.Check(t, is.Equal(hex.EncodeToString(k.TraceID[:]), s.Other))
				found++
			}
		}
		kept, err = c.kernel.KeptContexts(0, 1)
		assert.Check(t, err == nil && len(kept) == 0, "%v, %+v", err, kept)
	}
	assert.Check(t, found > 0, "%+v", last)
}

// The contexts of threads are read while they sleep, by whoever asks.
func TestContextsNow(t *testing.T) {
	needRoot(t)
	c := watch(t, contextRules(t), &tracker.Options{Contexts: true})
	from := reading{c.names}
	for _, way := range []threadctx.Way{threadctx.Ways()[3], threadctx.Ways()[5]} {
		p := way.Build(t).Start(t, "work", "3", micros(10*contextSleep))
		place, err := contexts.Find(from, p.PID())
		assert.NilError(t, err)
		assert.NilError(t, c.kernel.SetContext(p.PID(), &place))
		p.Go()
		var found []contexts.Thread
		for end := time.Now().Add(10 * time.Second); len(found) == 0 && time.Now().Before(end); {
			threads, err := c.kernel.ContextThreads()
			assert.NilError(t, err)
			found = contexts.Read(from, threads, time.Now().Add(time.Second))
		}
		sleeps := p.Wait()
		assert.Assert(t, len(found) > 0, way.Name)
		for _, now := range found {
			var o events.Outlier
			o.SetTrace(now.Trace)
			assert.Check(t, slices.ContainsFunc(sleeps, func(s threadctx.Sleep) bool {
				return now.PID == s.PID && now.TID == s.TID && o.TraceID == s.TraceID && o.SpanID == s.SpanID
			}), "nobody had %+v", now)
		}
	}
}

// Requests to a disk have the context that their thread had when it submitted them, though they
// complete while another one runs.
func TestContextsOfRequests(t *testing.T) {
	needRoot(t)
	file := newOrdinary(t, 1<<20)
	c := watch(t, []rules.Rule{{
		Name: "request", Track: rules.Block, Threshold: time.Nanosecond, When: rules.Match{Comm: []string{"threadctx"}},
	}}, &tracker.Options{Contexts: true})
	way := threadctx.Ways()[3]
	seen := map[string]int{}
	c.publish(t, way.Build(t), seen, "reads", "50", file.path)
	// The kernel may have a worker submit what finds no room in the disk's queue.
	assert.Check(t, seen["request"] > 50, "%d of 100 have their context", seen["request"])
	t.Log(seen)
}
