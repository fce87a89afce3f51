package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/activitypeer"
)

// fromRoot has a test run where the program does.
func fromRoot(t *testing.T) { t.Chdir("../../..") }

// TestTokens: a real program's messages have tokens, one each, and it ends if there is no daemon.
func TestTokens(t *testing.T) {
	l, err := selectLoads([]string{"hackbench"})
	if err != nil || find("gcc") == "" {
		t.Skip("needs hackbench and gcc (apt install rt-tests gcc libc6-dev)")
	}
	p := activitypeer.Start(t)
	fromRoot(t)
	e := &env{dir: t.TempDir(), seconds: 0.01}
	assert.NilError(t, compileTokens(t.Context(), e))
	c, err := l[0].start(t.Context(), e)
	assert.NilError(t, err)
	d := &daemon{dir: t.TempDir()}
	_, err = carried{on: true}.give(t.Context(), e, d, c)
	assert.NilError(t, err)
	_, err = c.run(t.Context())
	assert.Check(t, is.ErrorContains(err, "tokens: daemon not reachable"))

	assert.NilError(t, os.Symlink(p.Path, filepath.Join(d.dir, activitySocket)))
	take, err := carried{on: true, live: 10}.give(t.Context(), e, d, c)
	assert.NilError(t, err)
	_, err = c.run(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Equal(<-p.Requests, "POST /v1/activities?threads=256&tokens=1034&inherit=1"))
	// 4 groups of 20 that send to 20 each: at least one message of each pair, and the other ten.
	assert.Check(t, p.Client(t).NextToken >= 10+4*20*20, "%d tokens", p.Client(t).NextToken)
	assert.NilError(t, take())
	_, err = c.run(t.Context())
	assert.NilError(t, err)
	assert.Check(t, len(p.Requests) == 0, "asked again without the library")
}

// TestDeclared: the rules of the page of examples are those of both programs.
func TestDeclared(t *testing.T) {
	fromRoot(t)
	text, err := declaredRules()
	assert.NilError(t, err)
	list, err := rules.Parse("f", []byte(text), &rules.LocalMachine{})
	assert.NilError(t, err)
	var names []string
	for i := range list {
		names = append(names, list[i].Name)
	}
	assert.DeepEqual(t, names, []string{"postgres-activity", "nginx-activity"})
}

func TestTogether(t *testing.T) {
	var got []string
	for _, group := range together([]variant{{name: "a"}, {name: "b"}, {name: "c", host: "1"}, {name: "d", host: "1"}, {name: "e", host: "2"}}) {
		names := ""
		for i := range group {
			names += group[i].name
		}
		got = append(got, names)
	}
	assert.DeepEqual(t, got, []string{"a", "b", "cd", "e"})
	assert.Check(t, is.Len(together(nil), 0))
}

func TestSpread(t *testing.T) {
	times := []float64{1000, 1000, 3000, 4000, 4000}
	spread(times)
	assert.DeepEqual(t, times, []float64{1250, 1750, 3500, 4250, 4750})
	spread(nil)
}

// TestActivitiesTable: against nothing with verdicts, against others without, and not against itself.
func TestActivitiesTable(t *testing.T) {
	b := &bench{loads: loads[:1], variants: []variant{
		{name: vNothing}, {name: vTailcam, ours: true}, {name: vActivities, ours: true, host: "a"}, {name: vTokens, ours: true, host: "a"},
	}}
	for range 9 {
		b.rounds = append(b.rounds, round{Samples: map[string]map[string]sample{
			vNothing:    {"redis": {NS: 100, P50: 100, P99: 100}},
			vTailcam:    {"redis": {NS: 102, P50: 102, P99: 104}},
			vActivities: {"redis": {NS: 101, P50: 101, P99: 103}},
			vTokens:     {"redis": {NS: 125, P50: 102, P99: 102}},
		}})
	}
	r := &report{Machine: machine{Kernel: "6.1", CPUs: 2}}
	r.fill(b)
	var out bytes.Buffer
	r.print(&out)
	_, table, _ := strings.Cut(out.String(), "\nActivities: ")
	table, shipped, _ := strings.Cut(table, "\nTargets; ")
	parts := strings.Split(table, "\nThe same, to ")
	assert.Check(t, is.Len(parts, 3))
	const head = "| | median | p99 | throughput |\n|---|---|---|---|\n"
	assert.Check(t, is.Contains(parts[0], "Targets are 1.01, 1.02 and 0.98:\n\n"+head+
		"| redis GET, 20 clients, activities | **met** 1.01 (1.01 to 1.01) | **missed** 1.03 (1.03 to 1.03) | **met** 0.99 (0.99 to 0.99) |\n"+
		"| redis GET, 20 clients, tokens | **missed** 1.02 (1.02 to 1.02) | **met** 1.02 (1.02 to 1.02) | **missed** 0.80 (0.80 to 0.80) |\n"))
	assert.Check(t, is.Contains(parts[1], "tailcam:\n\n"+head+"| redis GET, 20 clients, activities | 0.99 (0.99 to 0.99) |"))
	assert.Check(t, is.Equal(parts[2], "activities:\n\n"+head+
		"| redis GET, 20 clients, tokens | 1.01 (1.01 to 1.01) | 0.99 (0.99 to 0.99) | 0.81 (0.81 to 0.81) |\n"))
	assert.Check(t, strings.Contains(shipped, "| redis GET, 20 clients | 1.02 | ") && !strings.Contains(shipped, "tokens"), "%s", shipped)
	assert.Equal(t, r.result("redis", vTokens).Verdict, "missed")
}

// TestAsked: variants with activities are not measured unless they are asked for.
func TestAsked(t *testing.T) {
	program := filepath.Join(t.TempDir(), "tailcam")
	assert.NilError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	o := &options{tailcams: []tailcam{{name: vTailcam, program: program}}}
	list, _, err := selectVariants(o)
	assert.NilError(t, err)
	for i := range list {
		assert.Check(t, list[i].host == "", "%s is measured", list[i].name)
	}
	_, err = parseTailcam("tokens=" + program)
	assert.Check(t, err != nil, "the name is taken")
	args := strings.Join((&tailcam{program: program, flags: []string{"--activities-enabled", "true"}}).args("/d"), " ")
	assert.Check(t, is.Contains(args, "--activities-socket /d/activities.sock"))
}
