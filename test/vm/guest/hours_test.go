package guest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/test/support/inject"
)

// hoursRules stand beside the shipped ones. Their only outliers are injected, a few or hundreds at once.
const hoursRules = `
  - {name: calm, track: syscall, threshold: 1ms, when: {uid: 70001, comm: inj-syscall, syscall: clock_nanosleep}, histogram: true, snapshot: {every: 5m}}
  - {name: hasty, track: syscall, threshold: 1ms, when: {uid: 70002, comm: inj-syscall, syscall: clock_nanosleep}, stacks: [kernel, user], snapshot: {every: 10m}}
`

// holding is what the daemon holds of the machine, by what it is.
type holding map[string]int

// TestHours runs the daemon for six hours of the guest's clock, which jumps while it idles: with the
// shipped rules, some latencies each minute, snapshots, and a reload each quarter of an hour. In the end
// each latency is told, limited or counted as lost, and what the daemon holds has not grown.
func TestHours(t *testing.T) {
	inGuest(t)
	needIdle(t)
	assert.NilError(t, loopbackUp())
	const minutes = 6 * 60
	d := startDaemon(t, "rules:"+hoursRules, "--rules", "../../../configs/rules.d", "--budget-softirqs", "off", "--budget-locks", "off", "--snapshots-keep-count", "20",
		"--metrics-listen", hoursMetrics)
	injected := map[string]int{}
	round := func(rule string, uid, n, threads int) {
		t.Helper()
		injected[rule] += len(inject.RunWith(t, inject.As(uid), "syscall", "sleep", strconv.Itoa(n), "2000", "0", "1", strconv.Itoa(threads)))
	}
	status := func() (s api.Status) {
		t.Helper()
		assert.NilError(t, json.Unmarshal([]byte(d.tailcam(t, "status", "-o", "json")), &s))
		return s
	}
	pid := status().PID
	var quarters [4]holding
	begin := time.Now()
	for minute := range minutes {
		round("calm", 70001, 20, 4)
		round("hasty", 70002, 300, 16)
		if minute%15 == 14 {
			d.tailcam(t, "reload")
		}
		time.Sleep(time.Until(begin.Add(time.Duration(minute+1) * time.Minute)))
		now := holds(t, pid)
		least := &quarters[minute*4/minutes]
		if *least == nil {
			*least = now
		}
		for what, n := range now {
			(*least)[what] = min((*least)[what], n)
		}
	}

	s := status()
	for rule, want := range injected {
		r := s.Rules[slices.IndexFunc(s.Rules, func(r api.RuleInfo) bool { return r.Name == rule })]
		t.Logf("%s: %d injected: %d told, %d limited, %d lost", rule, want, r.Outliers, r.Limited, r.Lost)
		assert.Check(t, r.Outliers+r.Limited+r.Lost == uint64(want), "%s: %d injected, %+v", rule, want, r)
	}
	t.Logf("after %v: %d snapshots are kept; the least that was held, by quarter: %v", time.Since(begin).Round(time.Second), s.Snapshots.Count, quarters)
	for what, slack := range (holding{"KiB resident": 24 << 10, "KiB of heap": 16 << 10, "goroutines": 16, "descriptors": 16, "threads": 8}) {
		before := max(quarters[0][what], quarters[1][what], quarters[2][what])
		assert.Check(t, quarters[3][what] <= before+slack, "%s: %v", what, quarters)
	}
}

// hoursMetrics is where the daemon's metrics are.
const hoursMetrics = "127.0.0.1:9464"

var heldNumber = regexp.MustCompile(`(?m)^(go_memstats_heap_alloc_bytes|go_goroutines) (\S+)$`)

var statusNumber = regexp.MustCompile(`(?m)^(VmRSS|Threads):\s+(\d+)`)

// holds asks the kernel and the daemon.
func holds(t *testing.T, pid int) holding {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d", pid)
	text, err := os.ReadFile(filepath.Join(proc, "status"))
	assert.NilError(t, err)
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	assert.NilError(t, err)
	of := map[string]int{}
	for _, m := range statusNumber.FindAllSubmatch(bytes.TrimSpace(text), -1) {
		n, err := strconv.Atoi(string(m[2]))
		assert.NilError(t, err)
		of[string(m[1])] = n
	}
	reply, err := http.Get("http://" + hoursMetrics + "/metrics")
	assert.NilError(t, err)
	defer reply.Body.Close()
	text, err = io.ReadAll(reply.Body)
	assert.NilError(t, err)
	for _, m := range heldNumber.FindAllSubmatch(text, -1) {
		n, err := strconv.ParseFloat(string(m[2]), 64)
		assert.NilError(t, err)
		of[string(m[1])] = int(n)
	}
	return holding{
		"KiB resident": of["VmRSS"], "threads": of["Threads"], "descriptors": len(files),
		"KiB of heap": of["go_memstats_heap_alloc_bytes"] >> 10, "goroutines": of["go_goroutines"],
	}
}
