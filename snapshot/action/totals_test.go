package action

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// together runs scripts as jobs of their own, each after the one before has made a file
// "here" in its directory, and returns their results in the order in which they ended. Before
// it waits for the end, it calls then.
func together(t *testing.T, o Options, then func(dirs []string, ended func() int), scripts ...string) (results []Result) {
	t.Helper()
	var mu sync.Mutex
	var dirs []string
	o.Concurrency, o.Supervisor = len(scripts), "/proc/self/exe"
	o.OnResult = func(r Result) {
		mu.Lock()
		defer mu.Unlock()
		results = append(results, r)
	}
	r := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(ctx) }()
	var all sync.WaitGroup
	for i, script := range scripts {
		dir := t.TempDir()
		dirs = append(dirs, dir)
		all.Add(1)
		assert.Assert(t, r.Submit(Job{ID: fmt.Sprint(i), Dir: dir, Items: []Item{item(long, sh(script)...)}, Done: all.Done}))
		wait(t, func() bool { _, err := os.Stat(filepath.Join(dir, "here")); return err == nil })
	}
	then(dirs, func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(results)
	})
	all.Wait()
	cancel()
	assert.NilError(t, <-stopped)
	return results
}

// wait waits for what must come.
func wait(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(end), "waited in vain")
	}
}

// TestTotalMemory: of three actions, each within its own limit, the newest is ended for what
// they have together; the others end by themselves.
func TestTotalMemory(t *testing.T) {
	hoard := "echo >here; (head -c 60000000 /dev/zero; until [ -e go ]; do sleep 0.05; done) | tail -n 2 >/dev/null"
	got := together(t, Options{MaxMemory: 120 << 20, TotalMemory: 150 << 20}, func(dirs []string, ended func() int) {
		wait(t, func() bool { return ended() == 1 })
		time.Sleep(5 * boundsPoll) // no other one
		assert.Check(t, is.Equal(ended(), 1))
		for _, dir := range dirs {
			assert.NilError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
		}
	}, hoard, hoard, hoard)
	assert.Assert(t, is.Len(got, 3))
	assert.Check(t, got[0].ID == "2" && got[0].Short().Result == "over_limit" && strings.HasSuffix(got[0].String(), "over its limit of memory of all actions"), "%s: %s", got[0].ID, got[0].String())
	assert.Check(t, got[1].OK() && got[2].OK(), "%s, %s", got[1].String(), got[2].String())
}

// TestTotalCPU: actions that use more CPU time than they may together are ended, the newest
// first, until the rest uses no more.
func TestTotalCPU(t *testing.T) {
	burn := "echo >here; while :; do :; done"
	got := together(t, Options{MaxCPU: time.Hour, TotalCPU: 0.01}, func(dirs []string, ended func() int) {
		wait(t, func() bool { return ended() == 2 })
		assert.NilError(t, os.WriteFile(filepath.Join(dirs[0], "go"), nil, 0o644))
	}, "echo >here; until [ -e go ]; do sleep 0.5; done", burn, burn)
	assert.Assert(t, is.Len(got, 3))
	for i, want := range []string{"2", "1"} {
		assert.Check(t, got[i].ID == want && strings.HasSuffix(got[i].String(), "over its limit of CPU time of all actions"), "%s: %s", got[i].ID, got[i].String())
	}
	assert.Check(t, got[2].OK(), "one that sleeps: %s", got[2].String())
}

// TestNoTotals: without a limit of all, nothing is reported and nobody is ended.
func TestNoTotals(t *testing.T) {
	var tot totals
	a, b := tot.begin(), tot.begin()
	now := time.Now()
	for i := range 100 {
		tot.uses(a, time.Duration(i)*time.Hour, 1<<50, now.Add(time.Duration(i)*time.Second))
	}
	assert.Check(t, !tot.limited() && len(a.over)+len(b.over) == 0)
	tot.set(0.5, 1<<30, "")
	tot.uses(b, 0, 1, now)
	assert.Check(t, is.Equal(<-b.over, overTotalMemory))
	tot.uses(b, 0, 1, now)
	assert.Check(t, len(a.over) == 1 && len(b.over) == 0, "the other one alone is over the limit")
	tot.uses(a, 0, 1, now)
	tot.uses(a, 0, 1<<50, now)
	assert.Check(t, len(a.over) == 1, "nobody is left to be ended")
}
