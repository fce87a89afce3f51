package explain

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// TestMoments: what programs had published for tasks further down the critical path is told of those
// whose moment is the one that counts, and of no others.
func TestMoments(t *testing.T) {
	const span = "00f067aa0ba902b7"
	ofServer, ofBackend, ofBob := strings.Repeat("a", 32), strings.Repeat("b", 32), strings.Repeat("c", 32)
	at := func(us uint64) uint64 { return us * 1000 }
	for _, c := range []struct {
		name            string
		moments         []Moment
		server, backend string // traces of both
		why             string
		steps           []string // traces of the path's steps, in order
	}{
		{
			name: "who wakes the next one", server: ofServer, backend: ofBackend, why: asItWoke, steps: []string{ofBackend, ofServer},
			moments: []Moment{{Woken: victim, At: at(11000), TraceID: ofServer, SpanID: span}, {Woken: server, At: at(10950), TraceID: ofBackend, SpanID: span}},
		},
		{
			name:    "of other wake-ups",
			moments: []Moment{{Woken: server, At: at(2050), TraceID: ofBackend, SpanID: span}, {Woken: alice, At: at(10950), TraceID: ofBob, SpanID: span}, {Woken: 4711, At: at(11000), TraceID: ofBob, SpanID: span}},
		},
		{name: "who leaves its CPU later", moments: []Moment{{TID: backend, At: at(10960), TraceID: ofBackend, SpanID: span}}},
		{
			name: "who leaves its CPU", steps: []string{ofBackend},
			moments: []Moment{{TID: backend, At: at(10950), TraceID: ofBackend, SpanID: span}, {TID: bob, At: at(5000), TraceID: ofBob, SpanID: span}},
		},
		{name: "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &talk{}
			k.begin(recv)
			k.send(2050, server, backend)
			k.rest(2060, server, sleeps(recv))
			k.send(10950, backend, server)
			k.rest(10960, backend, sleeps(recv))
			k.end(server)
			names := servers(nil)
			names.Moments = func() []Moment { return slices.Clone(c.moments) }
			r := k.result(t, names)
			largestAre(t, r, []string{"task server", "task backend", "running backend"})
			traceOf := func(a *Activity) (trace, why string) {
				if a == nil {
					return "", ""
				}
				assert.Check(t, a.SpanID == span && a.Token == "" && !a.Same, "%+v", a)
				return a.TraceID, a.Evidence
			}
			trace, why := traceOf(r.Blame.Activity)
			assert.Check(t, trace == c.server && (trace == "" || why == c.why), "%s, %s", trace, why)
			trace, why = traceOf(r.Chain[0].Activity)
			assert.Check(t, trace == c.backend && (trace == "" || why == c.why), "%s, %s", trace, why)
			assert.Check(t, (c.server != "") == strings.Contains(r.Verdict, "trace "+ofServer+", as it woke it"), "%s", r.Verdict)
			var steps []string
			for i := range r.Path {
				if trace, _ := traceOf(r.Path[i].Activity); trace != "" {
					steps = append(steps, trace)
				}
			}
			assert.DeepEqual(t, steps, c.steps)
		})
	}
}

// TestMomentsOfWhoRuns: who has kept the CPU of a task further down the path.
func TestMomentsOfWhoRuns(t *testing.T) {
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	s := &script{}
	s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(0))
	s.swap(2000, 1, other, third, trace.Switch{}).swap(9000, 1, third, other, sleeps(0)).wake(11000, 1, other, victim, 0)
	names := caseNames
	names.Moments = func() []Moment { return []Moment{{TID: third, At: 9_000_000, TraceID: id, SpanID: span}} }
	r := explained(t, &s.list, []Outlier{{Rule: "r", Track: "offcpu", TID: victim, PID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000}}, names).Outliers[0]
	t.Log(r.Verdict)
	found := false
	for i := range r.Roots {
		a := r.Roots[i].Activity
		found = found || a != nil && a.TraceID == id && a.Evidence == asItLeft && r.Roots[i].By.TID == third
	}
	assert.Check(t, found, "%+v", r.Roots)
}
