package daemon

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

const (
	soakRound = 10 * time.Second
	// soakLeast are the rounds from which a trend can be told.
	soakLeast = 12
)

// usage is what the daemon holds of the machine.
type usage struct{ rss, heap, descriptors, goroutines int }

// TestSoak runs for the duration in SOAK: `make soak`; SOAK_TIMES is how many bursts there
// are in each round. Latencies are injected, calm and in
// bursts above the limit of outliers, beside load, snapshots and reloads. In the end each is
// told, limited or counted as lost; and what the daemon holds has not grown.
func TestSoak(t *testing.T) {
	needRoot(t)
	length, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil || length <= 0 {
		t.Skip("runs for as long as SOAK says: make soak TIME=3m")
	}
	times := 1
	if text := os.Getenv("SOAK_TIMES"); text != "" {
		times, err = strconv.Atoi(text)
		assert.NilError(t, err, "SOAK_TIMES")
	}
	calm, hasty := newUID(), newUID()
	d := start(t, rulesFile(
		napRule("calm", calm, "histogram: true", "snapshot: {every: 2s, burst: 3}"),
		napRule("hasty", hasty, "stacks: [kernel, user]", "snapshot: {every: 5s, burst: 2}")),
		"--metrics-listen", "127.0.0.1:0", "--snapshots-keep-count", "20")
	injected := map[string]int{}
	inject := func(rule string, uid, n, threads int) {
		injected[rule] += len(naps(t, uid, n, 2*time.Millisecond, threads))
	}
	var used []usage
	begin := time.Now()
	for round := 0; time.Since(begin) < length; round++ {
		next := time.Now().Add(soakRound)
		stop := func() {}
		if round%3 == 1 {
			stop = load(t)
		}
		inject("calm", calm, 200, 4)
		for n := range times {
			if n > 0 {
				time.Sleep(soakRound / time.Duration(2*times)) // one that never rests is paused
			}
			inject("hasty", hasty, 900, 16) // 500 may come at once
		}
		inject("calm", calm, 200, 8)
		stop()
		if round%6 == 5 {
			d.reload(reloaded)
		}
		d.ok("status")
		time.Sleep(time.Until(next))
		used = append(used, d.usage())
	}

	s := d.status()
	for name, want := range injected {
		r := s.rule(name)
		lost := uint64(0)
		for _, cause := range []string{"ring_buffer_full", "outlier_dropped"} {
			lost += s.loss(cause, name)
		}
		t.Logf("%s: %d injected: %d told, %d limited, %d lost", name, want, r.Outliers, r.Limited, lost)
		assert.Check(t, r.Outliers+r.Limited+lost == uint64(want), "%s: %d are not accounted for; losses: %v",
			name, int64(want)-int64(r.Outliers+r.Limited+lost), s.lost())
	}
	calmly := s.rule("calm")
	assert.Check(t, calmly.Limited == 0, "the other rule's bursts have limited this one: %d times", calmly.Limited)
	t.Logf("%d rounds in %v", len(used), time.Since(begin).Round(time.Second))
	if len(used) < soakLeast {
		return
	}
	for _, of := range []struct {
		name  string
		value func(usage) int
		slack int
	}{
		{"KiB of resident memory", func(u usage) int { return u.rss }, 24 << 10},
		{"KiB of heap", func(u usage) int { return u.heap }, 24 << 10},
		{"descriptors", func(u usage) int { return u.descriptors }, 16},
		{"goroutines", func(u usage) int { return u.goroutines }, 16},
	} {
		var quarters [4]int
		for i := range quarters {
			quarters[i] = least(used[len(used)*i/4:len(used)*(i+1)/4], of.value)
		}
		t.Logf("least %s by quarter: %d", of.name, quarters)
		// One in which caches were dropped says nothing: the budget does that, beside whoever
		// keeps the machine busy.
		before := slices.Max(quarters[:3])
		assert.Check(t, quarters[3] <= before+of.slack, "%s have grown from %d to %d", of.name, before, quarters[3])
	}
}

// least is what stays: how much more there is depends on what was just being done.
func least(list []usage, value func(usage) int) int {
	return value(slices.MinFunc(list, func(a, b usage) int { return cmp.Compare(value(a), value(b)) }))
}

var (
	residentSize  = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)
	goroutineLine = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)
	heapLine      = regexp.MustCompile(`(?m)^go_memstats_heap_alloc_bytes (\S+)$`)
)

func (d *running) usage() usage {
	d.t.Helper()
	proc := fmt.Sprintf("/proc/%d", d.status().PID)
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	assert.NilError(d.t, err)
	metrics := d.scrape()
	number := func(re *regexp.Regexp, text string) int {
		m := re.FindStringSubmatch(text)
		assert.Assert(d.t, m != nil, "%s is not in\n%s", re, text)
		n, err := strconv.ParseFloat(m[1], 64)
		assert.NilError(d.t, err)
		return int(n)
	}
	return usage{
		rss: number(residentSize, readText(d.t, filepath.Join(proc, "status"))), heap: number(heapLine, metrics) >> 10,
		descriptors: len(files), goroutines: number(goroutineLine, metrics),
	}
}
