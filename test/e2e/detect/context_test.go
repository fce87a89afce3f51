package detect

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/contexts"
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

// traces are the outliers of sleeps, with their contexts as the daemon learns them. A few may
// be missing: a kernel that hides switches hides the sleeps, and the context after a switch
// comes by an interrupt, which may be late. What there is must be right.
type traces struct {
	t    *testing.T
	list []*events.Outlier
	seen map[string]int // good ones, by rule
}

// of returns what each rule has reported for a sleep.
func (x *traces) of(s *threadctx.Sleep) map[string]*events.Outlier {
	found := map[string]*events.Outlier{}
	for _, o := range x.list {
		if o.Task.TID != s.TID || o.EndMono <= s.Start || o.StartMono >= s.End {
			continue
		}
		if o.Context != nil {
			o.SetTrace(o.Context.Wait(time.Second))
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
		case s.Kind == "good" && rule == "sleep" && o.TraceID == "":
		default:
			assert.Check(x.t, o.TraceID == s.TraceID && o.SpanID == s.SpanID, "%s, rule %s: %q, %q; %+v", s.Kind, rule, o.TraceID, o.SpanID, s)
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

// publish runs a program that publishes, and checks what was reported of it.
func (c *camera) publish(t *testing.T, p *threadctx.Program, seen map[string]int, args ...string) {
	t.Helper()
	running := p.Start(t, args...)
	before := len(c.settle())
	place, err := contexts.Find(reading{c.names}, running.PID())
	assert.NilError(t, err)
	assert.NilError(t, c.kernel.SetContext(running.PID(), &place))
	running.Go()
	sleeps := running.Wait()
	assert.Assert(t, len(sleeps) > 1)
	x := &traces{t: t, list: c.since(before), seen: seen}
	for i := range sleeps {
		x.check(&sleeps[i])
	}
}

// Every slow call and sleep has the context that its thread had, however the program is linked.
func TestContexts(t *testing.T) {
	needRoot(t)
	c := watch(t, contextRules(t), &tracker.Options{Contexts: true})
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
	c := watch(t, contextRules(t), &tracker.Options{Contexts: true})
	way := threadctx.Ways()[3]
	p := way.Build(t)
	for _, args := range [][]string{{"hostile", micros(contextSleep)}, {"torn", "40", micros(contextSleep)}, {"fork", micros(contextSleep)}} {
		t.Run(args[0], func(t *testing.T) {
			seen := map[string]int{}
			c.publish(t, p, seen, args...)
			assert.Check(t, args[0] == "torn" || seen["call"] == 1, "%v", seen)
		})
	}
}
