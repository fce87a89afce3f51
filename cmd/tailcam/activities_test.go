package main

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// contains checks that a command succeeds and prints all parts, and nothing that a terminal
// would not show as it is.
func contains(t *testing.T, args []string, parts ...string) string {
	t.Helper()
	status, stdout, stderr := invoke(t, args...)
	assert.Check(t, status == exitOK && stderr == "", "%v: status %d, stderr %q", args, status, stderr)
	for _, part := range parts {
		assert.Check(t, strings.Contains(stdout, part), "%v: no %q in\n%s", args, part, stdout)
	}
	assert.Check(t, !strings.ContainsAny(stdout, "\x1b\u202e"), "%v: %q", args, stdout)
	return stdout
}

func TestActivities(t *testing.T) {
	_, socket := serve(t)
	with := func(args ...string) []string {
		return append([]string{"activities"}, append(args, "--socket", socket)...)
	}
	out := contains(t, with(), "1 process, 1 live, 1,000 ended, 3 more not seen: their slots were used again within 100ms",
		"NAME ", "DISK", `live\x1b[2J`, "checkout", "300ms", "9.00s", "4.00s")
	assert.Check(t, strings.Index(out, "checkout") < strings.Index(out, `live\x1b`), "most time first:\n%s", out)
	contains(t, with(), "NOT OF ONE", "shared      writeback_bytes  2.0MiB", "shared      late                  5", "machine     machine_ns       3.00ms")
	contains(t, with("--by", "comm"), "COMM", `victim\x1b[31m  shared`)
	contains(t, with("-o", "json"), `"key":"shared"`, `"kind":"shared"`, `"kind":"machine"`)
	assert.Check(t, !strings.Contains(contains(t, with("--filter", "comm=other")), "NOT OF ONE"))
	contains(t, with("--by", "text", "--filter", "name=checkout", "--sort", "blocked_disk", "-n", "1"), "TEXT", "gold", "1 more")
	assert.Check(t, !strings.Contains(contains(t, with("--filter", "unit=nginx.service")), "checkout"))
	for _, format := range []string{"json", "yaml"} {
		contains(t, with("-o", format), "tailcam/activities/v1")
	}
	n := isJSONLines(t, contains(t, with("--by", "token", "-o", "json"), "1.300.1", `"cpu_ns"`))
	assert.Check(t, n == 4, "%d rows", n)
	for _, bad := range [][]string{
		{"--by", "colour"}, {"--filter", "colour=red"}, {"--count", "0"}, {"--interval", "1ms"}, {"--sort", "colour"}, {"never"},
	} {
		status, stdout, stderr := invoke(t, with(bad...)...)
		assert.Check(t, status == exitUsage && stdout == "" && stderr != "", "%v: status %d, %q", bad, status, stdout)
	}
}

func TestActivitiesSlow(t *testing.T) {
	_, socket := serve(t)
	with := func(args ...string) []string {
		return append([]string{"activities", "slow"}, append(args, "--socket", socket)...)
	}
	contains(t, with("--over", "100ms"),
		"checkout took 300ms, 30.9 times the median of 9.72ms: 288ms longer blocked on disk",
		"checkout took 300ms: 290ms blocked on disk, 10.0ms on CPU; nothing unexplained",
		`token 1.300.1, "gold", victim\x1b[31m[7], shop.service, trace t1.300.1`, "MEDIAN", "block_bytes", "276.6MiB")
	contains(t, with("--over", "1h"), "no activity above 1h is remembered")
	assert.Check(t, isJSONLines(t, contains(t, with("--over", "100ms", "-o", "json"), "tailcam/activity-slow/v1")) == 1)
	for _, bad := range [][]string{{"--over", "p200"}, {"--over", "fast"}, {"--filter", "x"}, {"--count", "0"}, {"never"}} {
		status, _, stderr := invoke(t, with(bad...)...)
		assert.Check(t, status == exitUsage && stderr != "", "%v: status %d", bad, status)
	}
}

func TestActivitiesDiff(t *testing.T) {
	_, socket := serve(t)
	with := func(args ...string) []string {
		return append([]string{"activities", "diff"}, append(args, "--socket", socket)...)
	}
	contains(t, with("1.301.1", "t1.300.1"), "A  checkout took 10.0ms", "B  checkout took 300ms", "DIFFERENCE", "blocked on disk", "+289ms")
	contains(t, with("1.301.1", "1.301.1"), "no value differs")
	contains(t, with("1.301.1", "1.302.1", "-o", "yaml"), "tailcam/activity-diff/v1")
	status, _, stderr := invoke(t, with("1.301.1", "99")...)
	assert.Check(t, status == exitError && strings.Contains(stderr, `no activity "99" is remembered: "tailcam activities --by token"`), "status %d: %s", status, stderr)
	status, _, _ = invoke(t, with("1.301.1")...)
	assert.Check(t, status == exitUsage)
}
