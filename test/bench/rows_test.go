package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// made is a run in which every program cost as much as it is told.
func made(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		opts:    &options{rounds: 2, only: regexp.MustCompile("")},
		setups:  []setup{{name: sNothing}, {name: sEmpty}, {name: sWakeup, against: sBTRunq}, {name: sBTRunq}, {name: sPerfAll, missing: "not measured: no perf"}},
		results: map[string]*result{},
	}
	for _, c := range []struct {
		setup           string
		waking, switch_ float64
		wall            time.Duration
	}{{sNothing, 0, 0, time.Second}, {sEmpty, 50, 50, time.Second}, {sWakeup, 150, 250, 1500 * time.Millisecond}, {sBTRunq, 350, 650, 3 * time.Second}} {
		r := &result{}
		for round := range 2 {
			slow := float64(round + 1) // the second round is slower for all
			v := visit{round: round, took: took{wall: c.wall * time.Duration(round+1)}, hooks: map[string]cost{}}
			if c.waking > 0 {
				v.hooks["sched_waking"] = cost{1000, 1000 * c.waking * slow}
				v.hooks["sched_switch"] = cost{2000, 2000 * c.switch_ * slow}
			}
			r.visits = append(r.visits, v)
		}
		b.results[c.setup] = r
	}
	return b
}

func find(t *testing.T, rows []row, name string) row {
	t.Helper()
	for _, r := range rows {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no row %q", name)
	return row{}
}

func TestRatiosAreOfNetCostsWithinARound(t *testing.T) {
	rows := made(t).rows()
	pair := find(t, rows, "wakeup pair (waking + switch)")
	assert.Check(t, pair.Ratio != nil && *pair.Ratio == (100.0+200)/(300+600), "ratio of the pair: %v", pair.Ratio)
	if *pair.RatioMin != *pair.RatioMax {
		t.Errorf("a slow round changed the ratio: %v to %v", *pair.RatioMin, *pair.RatioMax)
	}
	assert.Check(t, pair.Verdict == "undecided" && pair.NsNet == 450, "pair: %+v", pair)
	sw := find(t, rows, "sched_switch wakeup")
	assert.Check(t, sw.NsGross == 375 && sw.NsNet == 300 && sw.Events == 4000 && sw.Against == sBTRunq,
		"sched_switch: %+v", sw)
	hb := find(t, rows, "hackbench with bpftrace run queue")
	assert.Check(t, *hb.Ratio == 3 && hb.NsNet == 3e9, "hackbench: %+v", hb)
}

func TestRecordedEvents(t *testing.T) {
	b := made(t)
	for name, ns := range map[string]float64{sNothing: 100, sRecCalls: 200, sPerfCalls: 900} {
		r := &result{}
		for round := range 2 {
			r.visits = append(r.visits, visit{round: round, getppid: ns * float64(round+1)})
		}
		b.results[name] = r
	}
	rows := b.rows()
	r := find(t, rows, "event in "+sRecCalls)
	assert.Check(t, r.NsNet == 75 && r.Ratio != nil && *r.Ratio == 0.125 && *r.RatioMin == *r.RatioMax,
		"two events of 50 and of 100 ns each, against 400 and 800: %+v", r)
	if r := find(t, rows, "recorder, a system call's entry or exit"); r.Verdict != "undecided" {
		t.Errorf("two rounds decided a target: %+v", r)
	}
	assert.Check(t, !slices.ContainsFunc(rows, func(r row) bool { return r.Name == "event in "+sFtraceCall }),
		"a row of what was not measured")
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		ratio series
		want  string
	}{
		{series{0: 0.4}, "undecided"},
		{series{0: 0.4, 1: 0.5, 2: 0.3, 3: 0.2, 4: 0.5}, "met"},
		{series{0: 0.6, 1: 0.7, 2: 0.6, 3: 0.9, 4: 0.6}, "missed"},
		{series{0: 0.4, 1: 0.4, 2: 0.4, 3: 0.4, 4: 0.6}, "undecided"},
		{nil, "not measured"},
	} {
		var r row
		r.compare(c.ratio, "peer")
		r.judge(0.5)
		assert.Check(t, is.Equal(r.Verdict, c.want), "ratios %v", c.ratio)
	}
}

func TestMissingPeersAreNamed(t *testing.T) {
	b := made(t)
	rows := b.rows()
	r := find(t, rows, sPerfAll)
	assert.Check(t, r.Note == "not measured: no perf", "note %q", r.Note)
	r = find(t, rows, "sched_switch wakeup+offcpu+recorder")
	assert.Check(t, r.Verdict == "not measured", "verdict %q of what did not run", r.Verdict)
	assert.Check(t, b.failed(), "a tool that is not installed is no failure")
}

func TestJSONAndTable(t *testing.T) {
	rows := made(t).rows()
	path := t.TempDir() + "/bench.json"
	assert.NilError(t, writeJSON(path, rows))
	b, err := json.Marshal(rows[0])
	assert.NilError(t, err)
	for _, key := range []string{"name", "ns_net", "ns_gross", "events", "ratio", "against"} {
		assert.Check(t, strings.Contains(string(b), `"`+key+`":`), "no key %s in %s", key, b)
	}
	var out bytes.Buffer
	printTable(&out, rows)
	for section := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n\n") {
		lines := strings.Split(section, "\n")
		for _, l := range lines {
			assert.Check(t, len(l) == len(lines[0]), "not aligned: %q", l)
		}
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		assert.Check(t, is.Equal(number(x), want), "%v", x)
	}
}

// TestPlanned: on a machine on which a round takes long, it is one of the decisive
// setups as long as these fit.
func TestPlanned(t *testing.T) {
	last := map[bool]time.Duration{}
	const allTakes, decisiveTakes = 190 * time.Second, 80 * time.Second
	left, rounds, ofAll := 9*time.Minute, 0, 0
	for ; rounds < 9; rounds++ {
		all, fits := planned(rounds, left, last)
		if !fits {
			break
		}
		took := decisiveTakes
		if all {
			took = allTakes
			ofAll++
		}
		last[all] = took
		left -= took
	}
	assert.Check(t, rounds == 5 && ofAll == 1 && left >= 0, "%d rounds, %d of all, %s left", rounds, ofAll, left)
}
