package daemon

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
)

// mayBeEmpty has the queries of the dashboard that have no results on a healthy
// machine, by panel and number in it.
var mayBeEmpty = map[string]string{
	"Stored 1":                        "retention can remove every snapshot",
	"Records 1":                       "no record was refused",
	"Losses 0":                        "nothing was lost",
	"CPU time at a raised priority 1": "no snapshot has used up what it may",
	"Reloads that failed, panics, stuck helpers 1": "no panic",
}

// TestDashboardQueries: a real Prometheus, with native histograms and without, has
// results for each query of the shipped dashboard.
func TestDashboardQueries(t *testing.T) {
	needRoot(t)
	text, err := os.ReadFile("../../../configs/grafana/tailcam.json")
	assert.NilError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Query json.RawMessage }
		}
		Annotations struct {
			List []struct{ Expr string }
		}
	}
	assert.NilError(t, json.Unmarshal(text, &dashboard))

	uid := newUID()
	d := start(t, rulesFile(napRule("naps", uid, "histogram: true", "snapshot: {every: 100ms}", "actions: [{run: [/bin/true]}]"),
		fmt.Sprintf("  - {name: stuck, track: offcpu, timeout: 100ms, snapshot: false, when: {uid: %d, comm: sleep}}\n", uid)),
		"--metrics-listen", "127.0.0.1:0")
	all := map[string]*prometheus{"native": startPrometheus(t, d, nativeHistograms), "classic": startPrometheus(t, d)}
	for _, p := range all { // what is counted from here on is a rate
		p.becomes(`up`, func(v float64) bool { return v == 1 })
	}
	sleep := exec.CommandContext(t.Context(), "sleep", "600")
	sleep.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	assert.NilError(t, child.Start(sleep))
	defer func() {
		assert.Check(t, sleep.Process.Kill())
		sleep.Wait() // killed
	}()
	naps(t, uid, 20, 10*time.Millisecond, 4)
	settled(t, d, "naps", 20)

	excused := map[string]bool{}
	for _, panel := range dashboard.Panels {
		for i, q := range panel.Targets {
			name := fmt.Sprintf("%s %d", panel.Title, i)
			excused[name] = mayBeEmpty[name] != ""
			for kind, p := range all {
				expr := grafana(q.Expr)
				if excused[name] {
					p.values(expr) // it parses
					continue
				}
				eventually(t, fmt.Sprintf("%s has results with %s histograms: %s", name, kind, expr), func() bool {
					return slices.ContainsFunc(p.values(expr), func(v float64) bool { return !math.IsNaN(v) })
				})
			}
		}
	}
	for name, why := range mayBeEmpty {
		assert.Check(t, excused[name], "%q (%s) is not in the dashboard", name, why)
	}
	for _, a := range dashboard.Annotations.List {
		all["classic"].values(grafana(a.Expr))
	}
	for _, v := range dashboard.Templating.List {
		var q struct{ Query string }
		if json.Unmarshal(v.Query, &q) != nil {
			continue // the data source
		}
		selector, _, ok := strings.Cut(strings.TrimPrefix(q.Query, "label_values("), ", ")
		assert.Check(t, ok && len(all["classic"].values(grafana(selector))) > 0, q.Query)
	}
	all["native"].becomes(`sum(tailcam_stuck_work{rule="stuck"})`, func(v float64) bool { return v == 1 })
}

// grafana replaces the variables in a query as Grafana does.
func grafana(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$__interval", "1m", "$instance", ".*", "$rule", ".*").Replace(expr)
}
