package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/flight"
)

// made is a run of nine rounds, each slower than the one before, in which
// tailcam takes a tenth more and perf a half, and of one that was dropped.
func made() *report {
	b := &bench{loads: loads[:1], variants: []variant{
		{name: vNothing, title: "nothing"}, {name: vTailcam, title: "tailcam as shipped", ours: true}, {name: vPerf, title: "perf"},
		{name: vBudget, title: "tailcam within its budget", ours: true},
	}}
	for i := range 10 {
		slow := 1000 * float64(i+1)
		b.rounds = append(b.rounds, round{Steal: 0.005, Samples: map[string]map[string]sample{
			vNothing: {"redis": {NS: slow, P99: 10 * slow, CPU: slow}},
			vTailcam: {"redis": {NS: 1.1 * slow, P99: 10 * slow, CPU: 1.2 * slow, history: history{Coverage: 0.25, Bytes: 55.6},
				daemonWork: daemonWork{Daemon: 0.001 * float64(i), Snapshots: float64(i % 2)}}},
			vBudget: {"redis": {NS: 1.05 * slow, Cost: 0.008, Shed: []string{"group irq", "histograms"}[:i%2+1]}},
			vPerf:   {"redis": {NS: 1.5 * slow, P99: 20 * slow, CPU: 1.5 * slow}},
		}})
	}
	b.rounds[9].Dropped, b.rounds[9].Samples[vTailcam]["redis"] = true, sample{NS: 1e9}
	r := &report{Machine: machine{Kernel: "6.1", CPUs: 2}}
	r.fill(b)
	return r
}

func TestRatiosAreWithinARound(t *testing.T) {
	res := made().result("redis", vTailcam)
	assert.Check(t, res.Ratio.N == 9 && res.Ratio.Min >= 1.0999 && res.Ratio.Max <= 1.1001,
		"ratio %+v of rounds that are all 1.1", res.Ratio)
	assert.Check(t, res.Verdict == "missed" && res.Target == 1.02,
		"verdict %s of target %v", res.Verdict, res.Target)
	assert.Check(t, res.P99To.Median == 1 && res.CPUTo.Median == 1.2, "p99 %+v, CPU %+v", res.P99To, res.CPUTo)
	s := res.Against[vPerf]
	assert.Check(t, s.N == 9 && s.High <= 0.734 && s.Low >= 0.733, "against perf: %+v", s)
	_, ok := res.Against[vFtrace]
	assert.Check(t, !ok, "compared with what was not measured")
}

func TestPrint(t *testing.T) {
	var out bytes.Buffer
	made().print(&out)
	for _, want := range []string{
		"2 CPUs: 9 rounds, 1 more dropped for their steal; steal at most 0.5 %",
		"| nothing | 5 us |", "| tailcam as shipped | 1.10 (1.10 to 1.10) |",
		"hold of the busiest CPU, and bytes of an event:\n\n| | redis GET, 20 clients |\n|---|---:|\n" +
			"| tailcam as shipped | 0.25 (0.25 to 0.25) s, 56 B |\n| tailcam within its budget | |\n",
		"at the mean of the runs:\n\n| | redis GET, 20 clients |\n|---|---:|\n| tailcam as shipped | 0.4 %, 0.44 |\n",
		"| redis GET, 20 clients | 0.80 % (0.80 to 0.80) | group irq, histograms |",
		"| redis GET, 20 clients, budget | 1.02 | **missed** 1.05 (1.05 to 1.05) |",
		"| redis GET, 20 clients | 1.02 | **missed** 1.10 (1.10 to 1.10) |  | **met** 0.73 (0.73 to 0.73) | **met** 1.00 (1.00 to 1.00) | 1.20 (1.20 to 1.20) |",
	} {
		assert.Check(t, strings.Contains(out.String(), want), "no %q in\n%s", want, out.String())
	}
	for table := range strings.SplitSeq(out.String(), "\n\n") {
		if !strings.HasPrefix(table, "|") {
			continue
		}
		lines := strings.Split(strings.TrimSpace(table), "\n")
		for _, l := range lines {
			assert.Check(t, strings.Count(l, "|") == strings.Count(lines[0], "|"), "columns of %q", l)
		}
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "service.json")
	assert.NilError(t, made().write(path))
	b, err := os.ReadFile(path)
	assert.NilError(t, err)
	var r report
	assert.NilError(t, json.Unmarshal(b, &r))
	assert.Check(t, len(r.Rounds) == 10 && r.Rounds[9].Dropped && len(r.Results) == 4 &&
		r.Results[1].Verdict == "missed", "%s", b)
}

func TestKeepTakesTheLeastStealWhereTooFewAreGood(t *testing.T) {
	rounds := []round{{Steal: 0.05, Dropped: true}, {Steal: 0.001}, {Steal: 0.02, Dropped: true}, {Steal: 0.03, Dropped: true}}
	keep(rounds, 3)
	assert.Check(t, !rounds[1].Dropped && !rounds[2].Dropped && !rounds[3].Dropped && rounds[0].Dropped,
		"kept %+v", rounds)
}

func TestSelection(t *testing.T) {
	l, err := selectLoads([]string{"getppid"})
	assert.Check(t, err == nil && len(l) == 1, "%v, %v", l, err)
	_, err = selectLoads([]string{"mysql"})
	assert.Check(t, err != nil, "a load that is none")
	_, _, err = selectVariants(&options{variants: []string{"dtrace"}})
	assert.Check(t, err != nil, "a variant that is none")
	v, _, err := selectVariants(&options{variants: []string{vFtrace}})
	assert.Check(t, err == nil && len(v) == 2 && v[0].name == vNothing && v[1].name == vFtrace, "%v, %v", v, err)
}

func TestCount(t *testing.T) {
	n, err := count(2, 100, func(n int) (float64, error) { return float64(n) * 0.01, nil })
	assert.Check(t, err == nil && n == 200, "%d units of 10 ms take 2 s, %v", n, err)
}

// TestHistory: the busiest CPU decides how long the history is.
func TestHistory(t *testing.T) {
	state := func(cpus ...snapshot.Coverage) *api.Status {
		return &api.Status{Recorder: api.RecorderStatus{Backend: flight.BackendMmap, CPUs: cpus}}
	}
	cpu := func(n int, records, bytes uint64) snapshot.Coverage {
		return snapshot.Coverage{CPU: n, Records: records, BytesWritten: bytes}
	}
	r := observation{before: state(cpu(0, 1000, 64_000)), after: state(cpu(0, 2000, 128_000), cpu(1, 50_000, 2<<20)), took: 2 * time.Second}
	h := r.history()
	assert.Check(t, math.Abs(h.Coverage-2*15.0/16) < 1e-6 && math.Abs(h.Bytes-41.94304) < 1e-3, "%+v", h)
	for _, after := range []*api.Status{state(cpu(0, 1000, 0)), state()} { // a daemon that does not count bytes
		r := observation{before: state(), after: after, took: 2 * time.Second}
		assert.Equal(t, r.history(), history{})
	}
}

// TestWork: of two CPUs and two seconds, and what retention has removed was written, too.
func TestWork(t *testing.T) {
	state := func(stored int, removed uint64) *api.Status {
		return &api.Status{Snapshots: api.SnapshotsStatus{Count: stored, Removed: map[string]uint64{"count": removed}}}
	}
	r := observation{before: state(3, 0), after: state(3, 2), took: 2 * time.Second, cpu: 200 * time.Millisecond}
	w := r.work()
	assert.Check(t, w.Snapshots == 2 && math.Abs(w.Daemon*float64(runtime.NumCPU())-0.1) < 1e-9, "%+v", w)
}

// TestBudgetIsOff unless it is asked for, or the program has none.
func TestBudgetIsOff(t *testing.T) {
	program := func(help string) string {
		path := filepath.Join(t.TempDir(), "tailcam")
		assert.NilError(t, os.WriteFile(path, []byte("#!/bin/sh\necho '"+help+"'\n"), 0o755))
		return path
	}
	with, without := program("  --budget-cpu share"), program("  --recorder-size size")
	for _, tt := range []struct{ given, want string }{
		{"a=" + with, "--budget-cpu off"},
		{"a=" + with + " --recorder-size 1MiB", "--recorder-size 1MiB --budget-cpu off"},
		{"a=" + with + " --budget-cpu=2%", "--budget-cpu=2%"},
		{"a=" + with + " --budget-cpu 2%", "--budget-cpu 2%"},
		{"a=" + without, ""},
	} {
		v, err := parseTailcam(tt.given)
		assert.NilError(t, err)
		assert.NilError(t, v.unlimited())
		assert.Equal(t, strings.Join(v.flags, " "), tt.want)
	}
	_, err := parseTailcam("budget=" + with)
	assert.Check(t, err != nil, "the name is taken")
}
