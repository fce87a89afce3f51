package daemon

import (
	"encoding/hex"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	asked "github.com/tailcam/tailcam/internal/activities/ask"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/collector"
	"github.com/tailcam/tailcam/test/support/threadctx"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestActivities: the trace, the span and the route that a program publishes for its threads are in
// events, in snapshots, in the records and exemplars of OTLP; of a program that ran before
// the daemon started, and of one that began later, whose first outlier makes it known.
func TestActivities(t *testing.T) {
	needRoot(t)
	c := &collector.Collector{}
	s := httptest.NewServer(c)
	defer s.Close()
	c.URL = s.URL
	ways := threadctx.Ways()
	before := ways[3].Build(t).Start(t, "work", "3", "20000")
	d := start(t, rulesFile(
		entry("calls", "syscall", "10ms", "{comm: threadctx, syscall: nanosleep}", "snapshot: {after: 10ms, every: 1ms}"),
		entry("sleeps", "offcpu", "10ms", "{comm: threadctx, syscall: nanosleep}", "snapshot: false"),
	), "--activities-enabled", "true", "--activities-attributes", "http.route", "--otlp-endpoint", c.URL, "--otlp-interval", "1s")
	eventually(t, "it is known", func() bool {
		text := d.ok("status")
		return strings.Contains(text, "contexts can be read: ") && !strings.Contains(text, "contexts can be read: 0")
	})
	before.Go()
	sleeps := before.Wait()
	outliers := settled(t, d, "calls", 8)
	for i := range sleeps {
		o := outliers[i]
		assert.Check(t, o.TraceID == sleeps[i].TraceID && o.SpanID == sleeps[i].SpanID, "%q, %q; %+v", o.TraceID, o.SpanID, sleeps[i])
		assert.Check(t, o.Attributes["http.route"] == sleeps[i].Route, "%q; %+v", o.Attributes, sleeps[i])
	}
	seen := 0
	for _, o := range d.events("sleeps") { // an interrupt may be late
		for _, s := range sleeps {
			if o.Task.TID == s.TID && o.EndMono > s.Start && o.StartMono < s.End && o.TraceID != "" {
				assert.Check(t, o.TraceID == s.TraceID && o.SpanID == s.SpanID, "%q, %q; %+v", o.TraceID, o.SpanID, s)
				seen++
			}
		}
	}
	assert.Check(t, seen > 0)
	inSnapshots(t, d, outliers)
	inOTLP(t, c, outliers)

	later := ways[8].Build(t).Start(t, "work", "500", "20000")
	later.Go()
	eventually(t, "its contexts are known", func() bool {
		list := d.events("calls")
		return list[len(list)-1].Task.PID == later.PID() && list[len(list)-1].TraceID != ""
	})
	eventually(t, "an exemplar names a trace", func() bool { return exemplar(d, c) })
	later.Kill()
}

// inSnapshots checks that outliers are in snapshots with their traces.
func inSnapshots(t *testing.T, d *running, outliers []events.Outlier) {
	t.Helper()
	want := map[string]string{}
	for _, o := range outliers {
		if o.Snapshot != nil {
			want[o.ID] = o.TraceID + o.Attributes["http.route"]
		}
	}
	assert.Assert(t, len(want) > 0)
	eventually(t, "the snapshots are written", func() bool {
		got := map[string]string{}
		for _, s := range d.list() {
			m, err := snapshot.ReadMeta(filepath.Join(d.snaps, s.ID))
			if err != nil {
				return false
			}
			for _, o := range m.Outliers {
				got[o.ID] = o.TraceID + o.Attributes["http.route"]
			}
		}
		for id, trace := range want {
			if got[id] != trace {
				return false
			}
		}
		return true
	})
}

// inOTLP checks that outliers have arrived with their traces.
func inOTLP(t *testing.T, c *collector.Collector, outliers []events.Outlier) {
	t.Helper()
	for _, o := range outliers {
		eventually(t, "it has arrived", func() bool {
			for _, r := range c.Records() {
				if r.Attributes["log.record.uid"] == o.ID {
					route, _ := r.Attributes["http.route"].(string)
					return route == o.Attributes["http.route"] && is.Equal(o.TraceID+o.SpanID, hex.EncodeToString(r.GetTraceId())+hex.EncodeToString(r.GetSpanId()))().Success()
				}
			}
			return false
		})
	}
}

// exemplar reports whether the latest metrics have the trace of an outlier as exemplar.
func exemplar(d *running, c *collector.Collector) bool {
	traces := map[string]bool{}
	for _, o := range d.events("calls") {
		traces[o.TraceID] = o.TraceID != ""
	}
	metrics, _ := c.Metrics()
	for _, p := range metrics["tailcam_outliers_total"].GetSum().GetDataPoints() {
		for _, x := range p.GetExemplars() {
			if traces[hex.EncodeToString(x.GetTraceId())] {
				return true
			}
		}
	}
	return false
}

// TestContextsOfTimeouts: what lasts is reported with the context of its thread, which sleeps.
func TestContextsOfTimeouts(t *testing.T) {
	needRoot(t)
	p := threadctx.Ways()[3].Build(t).Start(t, "work", "3", "300000")
	d := start(t, rulesFile(
		entry("calls", "syscall", "20ms", "{comm: threadctx, syscall: nanosleep}", "timeout: 20ms", "snapshot: false"),
		entry("sleeps", "offcpu", "20ms", "{comm: threadctx, syscall: nanosleep}", "timeout: 20ms", "snapshot: false"),
	), "--activities-enabled", "true")
	eventually(t, "it is known", func() bool {
		text := d.ok("status")
		return strings.Contains(text, "contexts can be read: ") && !strings.Contains(text, "contexts can be read: 0")
	})
	p.Go()
	sleeps := p.Wait()
	for _, rule := range []string{"calls", "sleeps"} {
		seen := 0
		for _, o := range d.events(rule) {
			for _, s := range sleeps {
				if o.Cause != events.CauseTimeout || o.Task.TID != s.TID || o.EndMono <= s.Start || o.StartMono >= s.End || o.TraceID == "" {
					continue
				}
				assert.Check(t, o.TraceID == s.TraceID && o.SpanID == s.SpanID, "%s: %q, %q; %+v", rule, o.TraceID, o.SpanID, s)
				seen++
			}
		}
		t.Logf("%s: %d of %d", rule, seen, len(sleeps))
		assert.Check(t, seen >= 3, "%s: %d of %d sleeps have their context", rule, seen, len(sleeps))
	}
}

// TestAttributesOfActivities: what an OpenTelemetry SDK publishes of a thread beside its context is
// an attribute of the activity that the thread had an outlier in.
func TestAttributesOfActivities(t *testing.T) {
	needRoot(t)
	const rounds = 4
	d := start(t, rulesFile(entry("calls", "syscall", "10ms", "{comm: threadctx, syscall: nanosleep}", "snapshot: false")),
		"--activities-enabled", "true", "--activities-attributes", "http.route")
	p := threadctx.Ways()[3].Build(t).Start(t, "tokens", d.socket, strconv.Itoa(rounds), "20000")
	eventually(t, "it is known", func() bool {
		text := d.ok("status")
		return strings.Contains(text, "contexts can be read: ") && !strings.Contains(text, "contexts can be read: 0")
	})
	p.Go()
	sleeps := p.Sleeps(rounds)
	var rows map[string]asked.Row
	settled(t, d, "calls", rounds)
	eventually(t, "all have ended", func() bool {
		rows = byKey(t, d, "name")
		return rows["request"].Count == rounds
	})
	eventually(t, "some are known by their route", func() bool {
		rows = byKey(t, d, "http.route")
		delete(rows, "") // of outliers that the daemon heard of late
		return len(rows) > 0
	})
	for route, r := range rows {
		ours := slices.ContainsFunc(sleeps, func(s threadctx.Sleep) bool { return s.Route == route })
		assert.Check(t, ours && r.Count == 1 && r.MaxNS >= 20_000_000, "%s: %+v", route, r)
	}
	t.Logf("%d of %d", len(rows), rounds)
	p.End()
}

// byKey groups activities.
func byKey(t *testing.T, d *running, key string, args ...string) map[string]asked.Row {
	t.Helper()
	rows := map[string]asked.Row{}
	for _, r := range lines[asked.Row](t, d.ok(append([]string{"activities", "--by", key, "-o", "json"}, args...)...)) {
		rows[r.Key] = r
	}
	return rows
}
