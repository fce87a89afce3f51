package c

import (
	"cmp"
	"fmt"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/activitypeer"
)

// near is how exact accounts are: 1 %, or 50 us.
func near(got, want, unsure float64) bool {
	return max(got-want, want-got) <= max(0.01*want, 50_000)+unsure
}

// attempts is how often what is not exact is measured again: a machine may take the CPU at any
// time, also between two readings of clocks that are meant to be one.
const attempts = 10

// exact tells what any account promises and this one does not keep: its parts are its wall
// time, that is what the program has measured itself, and its CPU time is that of the thread's
// own clock. Of that, it may lack what is unexplained, and have too much of what was stolen in a
// slice in which it was not the only token: that is in unsure_ns.
func exact(a map[string]any) (wrong string) {
	ns := func(name string) float64 { return a[name].(float64) }
	cpu, unexplained, unsure := ns("cpu_ns"), ns("unexplained_ns"), ns("unsure_ns")
	parts := cpu + ns("runnable_ns") + ns("blocked_ns") + unexplained
	measured := fmt.Sprintf("%s: wall %.0f, measured %.0f, cpu %.0f, measured %.0f, unsure %.0f; "+
		"runnable %.0f (stolen %.0f), blocked %.0f, unexplained %.0f", a["name"], ns("wall_ns"), ns("true_wall_ns"), cpu,
		ns("true_cpu_ns"), unsure, ns("runnable_ns"), ns("runnable_stolen_ns"), ns("blocked_ns"), unexplained)
	switch {
	case parts != ns("wall_ns"):
		return "parts are not the whole: " + measured
	case !near(ns("wall_ns"), ns("true_wall_ns"), unsure):
		return "wall: " + measured
	case !near(cpu, ns("true_cpu_ns"), unsure+unexplained):
		return "cpu: " + measured
	}
	return ""
}

// TestExact: what a thread does and waits for is in its token's account.
func TestExact(t *testing.T) {
	p, program := activitypeer.StartKernel(t), client(t)
	wrong := "not measured"
	for n := 0; wrong != "" && n < attempts; n++ {
		lines, complaint := run(t, program, p.Path, "exact")
		assert.Equal(t, complaint, "")
		assert.Assert(t, is.Len(lines, 4))
		wrong = ""
		for i, part := range []string{"cpu_ns", "blocked_timer_ns", "blocked_lock_ns", "blocked_task_ns"} {
			wrong = cmp.Or(wrong, exactPart(lines[i], part))
		}
	}
	assert.Equal(t, wrong, "")
}

// exactPart tells what is wrong with an account of which that part is the most.
func exactPart(a map[string]any, part string) (wrong string) {
	ns := func(name string) float64 { return a[name].(float64) }
	if wrong = exact(a); wrong != "" {
		return wrong
	}
	rest := ns("runnable_ns") + ns("unexplained_ns")
	if part != "cpu_ns" {
		rest += ns("cpu_ns")
	}
	if !near(ns(part)+rest, ns("wall_ns"), 0) {
		return fmt.Sprintf("%s: %v", part, a)
	}
	return ""
}

// TestChurn: 64 threads that work for a token for 10 us each time, and hand it over to
// another, while the kernel switches them; and the same without a pause, so that it does so
// within a switch of tokens, too.
func TestChurn(t *testing.T) {
	p, program := activitypeer.StartKernel(t), client(t)
	for _, step := range []string{"10", "0"} {
		wrong := "not measured"
		for n := 0; wrong != "" && n < attempts; n++ {
			lines, complaint := run(t, program, p.Path, "churn", "64", "1000", step)
			assert.Equal(t, complaint, "")
			wrong = exactTogether(lines[:len(lines)-1], lines[len(lines)-1])
		}
		assert.Equal(t, wrong, "")
	}
}

// exactTogether tells what is wrong with accounts, given what was measured of all threads.
func exactTogether(lines []map[string]any, sum map[string]any) (wrong string) {
	all := func(name string) float64 { return sum[name].(float64) }
	cpu, unexplained := 0.0, 0.0
	for _, line := range lines {
		line["unsure_ns"] = line["unsure_ns"].(float64) + all("stolen_ns")
		wrong = cmp.Or(wrong, exact(line))
		cpu += line["cpu_ns"].(float64)
		unexplained += line["unexplained_ns"].(float64)
	}
	switch {
	case wrong != "":
	case !near(cpu-all("stolen_ns"), all("all_cpu_ns"), unexplained):
		wrong = "cpu of all"
	case all("unseen") > 2+0.02*all("arrivals"): // some machines keep a switch in some thousand from every tracer
		wrong = "too many switches were not seen"
	case all("unseen") == 0 && unexplained >= 0.001*cpu:
		wrong = "unexplained, although all was seen"
	case all("stolen_ns") > 0.01*cpu:
		wrong = "nobody knows whom too much was taken from"
	default:
		return ""
	}
	return fmt.Sprintf("%s: cpu %.0f, unexplained %.0f, %v", wrong, cpu, unexplained, sum)
}

// TestForkAccounts: what a child does is in the account, if it inherits.
func TestForkAccounts(t *testing.T) {
	p, program := activitypeer.StartKernel(t), client(t)
	cpu := map[string]float64{}
	for _, inherit := range []string{"0", "1"} {
		lines, _ := run(t, program, p.Path, "fork", inherit)
		assert.Assert(t, is.Len(lines, 1))
		cpu[inherit] = lines[0]["cpu_ns"].(float64)
	}
	assert.Check(t, cpu["1"]-cpu["0"] > 18e6 && cpu["0"] < 10e6, "%v", cpu)
}

// TestShared: what was done for the process, and not for which of its tokens, is its own: the
// writeback of a file that two have written to, and what came for one that had ended.
func TestShared(t *testing.T) {
	lines, complaint := run(t, client(t), activitypeer.StartKernel(t).Path, "shared", t.TempDir())
	assert.Equal(t, complaint, "")
	assert.Assert(t, is.Len(lines, 1))
	assert.Check(t, lines[0]["writeback_bytes"].(float64) >= 2<<20, "%v", lines[0])
	assert.Check(t, lines[0]["late"].(float64) >= 1, "%v", lines[0])
	assert.Check(t, is.Equal(lines[0]["cpu_ns"], 0.0))
}
