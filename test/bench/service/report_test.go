package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// made is a run of nine rounds, each slower than the one before, in which
// tailcam takes a tenth more and perf a half, and of one that was dropped.
func made() *report {
	b := &bench{loads: loads[:1], variants: []variant{
		{name: vNothing, title: "nothing"}, {name: vTailcam, title: "tailcam as shipped", ours: true}, {name: vPerf, title: "perf"},
	}}
	for i := range 10 {
		slow := 1000 * float64(i+1)
		b.rounds = append(b.rounds, round{Steal: 0.005, Samples: map[string]map[string]sample{
			vNothing: {"redis": {NS: slow, P99: 10 * slow, CPU: slow}},
			vTailcam: {"redis": {NS: 1.1 * slow, P99: 10 * slow, CPU: 1.2 * slow}},
			vPerf:    {"redis": {NS: 1.5 * slow, P99: 20 * slow, CPU: 1.5 * slow}},
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
	assert.Check(t, len(r.Rounds) == 10 && r.Rounds[9].Dropped && len(r.Results) == 3 &&
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
