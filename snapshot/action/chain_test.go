package action

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

func TestIf(t *testing.T) {
	lock := events.Explained{Cause: "lock", By: "mariadbd (7)", ByKind: "task", NS: 15_000_000}
	is := func(c rules.Condition) rules.Action {
		return rules.Action{Run: []string{"/a"}, On: rules.OnSnapshot, If: &c}
	}
	rule := &rules.Rule{Name: "x", Actions: []rules.Action{
		is(rules.Condition{Cause: []string{"lock"}, MinShare: 0.7}), is(rules.Condition{MinShare: 0.8}),
	}}
	shared := []rules.SharedAction{
		{Action: is(rules.Condition{Rule: []string{"y"}, MinDelay: time.Second})},
		{Action: is(rules.Condition{NotRule: []string{"x"}})},
		{Action: rules.Action{Run: []string{"/b"}, On: rules.OnTrigger}},
	}
	outliers := []events.Outlier{
		{Rule: "x", CPU: 1, DelayNS: 20_000_000},
		{Rule: "x", CPU: 2, DelayNS: 20_000_000, Explained: &lock},
		{Rule: "y", CPU: 3, DelayNS: 20_000_000},
	}
	find := func(name string) *rules.Rule { return map[string]*rules.Rule{"x": rule}[name] }
	items, unmatched := Select(rules.OnSnapshot, outliers, find, shared)
	assert.Assert(t, len(items) == 2, "got %+v", items)
	assert.Check(t, items[0].Outlier.CPU == 2 && items[0].Owner == "x", "not the outlier that the if is for: %+v", items[0])
	assert.Check(t, items[1].Outlier.CPU == 3 && items[1].Owner == "", "got %+v", items[1])
	assert.DeepEqual(t, unmatched, []string{"x", "x"})

	items, unmatched = Select(rules.OnTrigger, []events.Outlier{{Rule: "manual"}}, find, shared)
	assert.Check(t, len(items) == 1 && items[0].Action.Run[0] == "/b" && unmatched == nil, "got %+v, %v", items, unmatched)
}

func TestChainStopsAtAFailure(t *testing.T) {
	dir := t.TempDir()
	var items []Item
	for i, owner := range []string{"a", "a", "b", "a"} {
		it := item(long, sh("touch ran-$1; exit $2", fmt.Sprint(i), fmt.Sprint(1-i%2))...)
		it.Owner, it.Action.StopOnFailure = owner, i == 0
		items = append(items, it)
	}
	got := runJob(t, Options{}, Job{ID: "the-id", Dir: dir, Items: items})
	var words []string
	for i := range got {
		words = append(words, got[i].Short().Result)
	}
	assert.DeepEqual(t, words, []string{"failed", "not_run", "failed", "not_run"})
	for i, ran := range []bool{true, false, true, false} {
		_, err := os.Stat(filepath.Join(dir, fmt.Sprintf("ran-%d", i)))
		assert.Check(t, (err == nil) == ran, "action %d ran: %v", i, err == nil)
	}
	log := read(t, dir, "action-1.log")
	assert.Check(t, strings.Contains(log, "# not run: action 0 failed"), "log:\n%s", log)

	var file struct {
		Version int                   `json:"version"`
		Actions []events.ActionResult `json:"actions"`
	}
	text := read(t, dir, ResultsFile)
	assert.NilError(t, json.Unmarshal([]byte(text), &file))
	assert.Check(t, file.Version == 1 && len(file.Actions) == 4 && file.Actions[0].Program == "/bin/sh" &&
		file.Actions[3].Result == "not_run" && *file.Actions[2].Snapshot == "the-id", "%s: %+v", ResultsFile, file)
	assert.Check(t, !strings.Contains(text, "touch"), "it has the arguments of actions: %s", text)
}

// TestResultsReplaceNoDirectory: an action may take the name of the results, which then
// must not be written elsewhere.
func TestResultsReplaceNoDirectory(t *testing.T) {
	dir := t.TempDir()
	got := runJob(t, Options{}, Job{Dir: dir, Items: []Item{item(long, sh("mkdir actions.json")...)}})
	assert.Check(t, got[0].OK())
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	assert.Check(t, len(entries) == 2, "files are left over: %v", entries) // the log, and the directory
	assert.NilError(t, os.Remove(filepath.Join(dir, ResultsFile)))
	assert.NilError(t, os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, ResultsFile)))
	runJob(t, Options{}, Job{Dir: dir, Items: []Item{item(long, "/bin/true")}})
	_, err = os.Stat(filepath.Join(dir, "elsewhere"))
	assert.Check(t, os.IsNotExist(err), "it wrote through a link")
}

func TestLimitPerCulprit(t *testing.T) {
	limited := item(long, sh("echo ran >>log")...)
	limited.Action.Limit = &rules.ActionLimit{Every: time.Hour, Burst: 1, Per: []rules.ActionKey{rules.PerCulprit}}
	by := func(name string) Item {
		it := limited
		it.Outlier.Explained = &events.Explained{Cause: "lock", By: name, ByKind: "task"}
		return it
	}
	dir := t.TempDir()
	r := New(Options{Supervisor: "/proc/self/exe", Concurrency: 1})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for _, it := range []Item{by("db-1"), by("db-2"), by("web"), by("db-3"), limited, limited} {
		done := make(chan struct{})
		assert.Assert(t, r.Submit(Job{Dir: dir, Items: []Item{it}, Done: func() { close(done) }}))
		<-done
	}
	// Both are queued before either could run: the second learns late that it may not.
	done := make(chan struct{})
	assert.Assert(t, r.Submit(Job{Dir: dir, Items: []Item{by("late"), by("late")}, Done: func() { close(done) }}))
	<-done
	cancel()
	assert.NilError(t, <-ended)
	s := r.Stats()
	assert.Check(t, s.Succeeded["wakeup"] == 4 && s.Limited["wakeup"] == 4 && s.Failed["wakeup"] == 0 && s.NotRun["wakeup"] == 0, "got %+v", s)
	assert.Check(t, read(t, dir, "log") == strings.Repeat("ran\n", 4))
	assert.Check(t, len(r.Last()) == 4, "got %+v", r.Last())
	log := read(t, dir, "action-1.log")
	assert.Check(t, strings.Contains(log, "# not run: it ran for the same key"), "log:\n%s", log)
}

// TestLimiterIsBounded: whoever makes up keys does not make it grow, nor does he get
// past the limit.
func TestLimiterIsBounded(t *testing.T) {
	it := item(long, "/bin/true")
	it.Action.Limit = &rules.ActionLimit{Every: time.Hour, Burst: 1, Per: []rules.ActionKey{rules.PerComm, rules.PerCgroup}}
	l, now, ran := limiter{}, time.Now(), 0
	for i := range 3 * maxLimited {
		it.Outlier.Task.Comm, it.Outlier.Task.Cgroup = fmt.Sprint(i), strings.Repeat("x", 10*maxKeyPart)
		if l.allow(&it, now, false) {
			ran++
		}
	}
	assert.Check(t, ran == maxLimited+1 && len(l) == maxLimited+1, "%d ran, %d keys", ran, len(l))
	for key := range l {
		assert.Assert(t, len(key) < 1024, "a key of %d bytes", len(key))
	}
	it.Outlier.Task.Comm = "0"
	assert.Check(t, !l.allow(&it, now.Add(time.Minute), false), "it was forgotten before its time")
	assert.Check(t, l.allow(&it, now.Add(61*time.Minute), true) && l.allow(&it, now.Add(61*time.Minute), false))
	it.Outlier.Task.Comm = "new"
	assert.Check(t, l.allow(&it, now.Add(2*time.Hour), false))
	assert.Check(t, len(l) < 3, "%d keys after their time", len(l))
}

// TestBounds: CPU time and memory are those of everything that an action starts.
func TestBounds(t *testing.T) {
	burn := "(while :; do :; done) & (while :; do :; done) & wait"
	// tail keeps a last line of any length in memory.
	hoard := "for i in 1 2 3; do (head -c 30000000 /dev/zero; sleep 1000) | tail -n 1 & done; wait"
	for _, c := range []struct {
		name, script, text string
		cpu                time.Duration
		memory             int64
	}{
		{"cpu", burn, "over its limit of CPU time", time.Second, 0},
		{"memory", hoard, "over its limit of memory", 0, 64 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			mark := fmt.Sprintf("TAILCAM_TEST=%s-%d", c.name, os.Getpid())
			it := item(long, sh("export "+mark+"; "+c.script)...)
			it.Action.MaxCPU, it.Action.MaxMemory = c.cpu, c.memory
			res := runJob(t, Options{MaxCPU: time.Hour, MaxMemory: 1 << 40}, Job{Dir: dir, Items: []Item{it}})[0]
			assert.Check(t, !res.OK() && strings.Contains(res.String(), c.text) && res.Short().Result == "over_limit", "got %+v: %s", res, res.String())
			assert.Check(t, c.cpu == 0 || res.CPU >= c.cpu, "it took %v of CPU time", res.CPU)
			assert.Check(t, len(marked(t, mark)) == 0, "processes are left")
		})
	}
	// One process cannot pass the limit by far between two looks.
	it := item(long, sh("exec head -c 1000000000000 /dev/zero | tail -n 1")...)
	it.Action.MaxMemory = 16 << 20
	res := runJob(t, Options{}, Job{Dir: t.TempDir(), Items: []Item{it}})[0]
	assert.Check(t, !res.OK(), "got %+v", res)
	// Ordinary programs have room.
	it = item(long, "/proc/self/exe", "-test.run=^$")
	it.Action.MaxMemory = 64 << 20
	res = runJob(t, Options{}, Job{Dir: t.TempDir(), Items: []Item{it}})[0]
	assert.Check(t, res.OK(), "a Go program: %s", res.String())
}

func TestOwnOutputLimit(t *testing.T) {
	dir := t.TempDir()
	it := item(long, sh("head -c 1000 /dev/zero")...)
	it.Action.MaxOutput = 10
	res := runJob(t, Options{MaxOutput: 1 << 20}, Job{Dir: dir, Items: []Item{it}})[0]
	assert.Check(t, res.OK() && res.Dropped == 990 && res.Short().DroppedBytes == 990, "got %+v", res)
}
