package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// output of the real tools, as Debian 12 has them.
func printed(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	assert.NilError(t, err)
	return b
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		file  string
		parse func([]byte) (sample, error)
		want  sample
	}{
		{"redis-benchmark.csv", parseRedis, sample{NS: 1e9 / 14534.88, P99: 6.863e6}},
		{"wrk.txt", parseWrk, sample{NS: 1e9 / 6859.15, P99: 38.16e6, requests: 7143}},
		{"pgbench.txt", parsePgbench, sample{NS: 1e9 / 10930.238648, requests: 10852}},
		{"hackbench.txt", parseHackbench, sample{NS: 21e6, requests: 1}},
		{"fio.json", parseFio, fioSample},
	} {
		s, err := c.parse(printed(t, c.file))
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		assert.Check(t, math.Abs(s.NS-c.want.NS) <= 1 && math.Abs(s.P99-c.want.P99) <= 1 &&
			s.requests == c.want.requests, "%s: %+v, want %+v", c.file, s, c.want)
		for _, bad := range []string{"", "no such tool\n", strings.ReplaceAll(string(printed(t, c.file)), "1", "x")} {
			s, err := c.parse([]byte(bad))
			assert.Check(t, err != nil, "%s: %q was read as %+v", c.file, bad, s)
		}
	}
}

func TestParseWrkErrors(t *testing.T) {
	s, err := parseWrk(printed(t, "wrk-errors.txt"))
	assert.Check(t, is.ErrorContains(err, "19548"), "answers of 404 were measured as %+v", s)
}

func TestParsePgbenchLog(t *testing.T) {
	list, err := parsePgbenchLog(printed(t, "pgbench.log"))
	assert.Check(t, err == nil && len(list) == 4 && list[0].took == 99_000 && list[3].took == 39_000, "got %v, %v", list, err)
	list, err = parsePgbenchLog([]byte("0 156 71 0 1795341810 11952\n0 157 84 0 17953"))
	assert.Check(t, err == nil && len(list) == 1 && list[0].end.Equal(time.Unix(1795341810, 11952000)), "got %v, %v", list, err)
	for _, bad := range []string{"0 156 x 0 1795341810 11952\n", "0 156 71 0 y 11952\n", "0 156 71 0 1795341810 z\n", "0 156\n"} {
		_, err = parsePgbenchLog([]byte(bad))
		assert.Check(t, err != nil, "%q", bad)
	}
}

func TestSteal(t *testing.T) {
	c, err := parseCPU(printed(t, "stat"))
	assert.Assert(t, err == nil && c[0] != 0 && c[7] != 0, "%v, %v", c, err)
	later := c
	later[0] += 60 // user
	later[3] += 30 // idle
	later[4] += 5  // waiting for a disk
	later[7] += 5  // steal
	if steal, busy := later.steal(c), later.busy(c); steal != 0.05 || busy != 0.65 {
		t.Errorf("steal %v, busy %v", steal, busy)
	}
	_, err = parseCPU([]byte("cpu0 1 2 3 4 5 6 7 8\n"))
	assert.Check(t, err != nil, "one CPU was taken for all")
}

func TestParseTailcam(t *testing.T) {
	c, err := parseTailcam("old=/opt/old/bin/tailcam --rules my.yaml --recorder-events sched")
	assert.Assert(t, err == nil && c.name == "old" && c.program == "/opt/old/bin/tailcam", "%+v, %v", c, err)
	args := strings.Join(c.args("/d"), " ")
	if !strings.HasPrefix(args, "run ") || !strings.HasSuffix(args, " --rules my.yaml --recorder-events sched") ||
		strings.Count(args, "--rules") != 1 || !strings.Contains(args, "--config configs/tailcam.yaml") {
		t.Errorf("arguments: %s", args)
	}
	for _, bad := range []string{"", "old", "=x", "old=", "nothing=x", "a,b=x"} {
		_, err := parseTailcam(bad)
		assert.Check(t, err != nil, "%q was accepted", bad)
	}
}

var fioSample = sample{NS: 1e9 / 19243.756244, P99: 103936, requests: 19263}
