package demo

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

func TestRulesAreValid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	list := latencies(nil, errors.New("no disk"))
	// As if there were a disk: the device is named by the root test only.
	for i := range list {
		list[i].rule = cmp.Or(list[i].rule, "    threshold: 10ms\n")
	}
	assert.NilError(t, os.WriteFile(file, []byte(ruleFile(list)), 0o600))
	got, err := rules.Load([]string{file}, &rules.LocalMachine{})
	assert.NilError(t, err)
	assert.Assert(t, len(got) == len(list), "%d rules, want %d", len(got), len(list))
	for i := range got {
		assert.Check(t, got[i].Track == rules.Tracks[i] && got[i].Name == string(got[i].Track) && got[i].Snapshot.Enabled,
			"rule %d is %s of %s, snapshot %t", i, got[i].Name, got[i].Track, got[i].Snapshot.Enabled)
	}
}

func TestWithoutDiskOnlyTheWakeupIsWatched(t *testing.T) {
	why := errors.New("no /dev/fuse here")
	list := latencies(nil, why)
	if got := strings.Count(ruleFile(list), "- name:"); got != 1 {
		t.Errorf("%d rules without a disk, want 1:\n%s", got, ruleFile(list))
	}
	for i := range list[1:] {
		if _, err := list[i+1].inject(t.Context()); !errors.Is(err, why) {
			t.Errorf("%s: %v, want %v", list[i+1].track, err, why)
		}
	}
}

func TestCompare(t *testing.T) {
	for _, tc := range []struct {
		injected, reported time.Duration
		ok                 bool
	}{
		{20 * time.Millisecond, 20 * time.Millisecond, true},
		{20 * time.Millisecond, 26 * time.Millisecond, true},
		{20 * time.Millisecond, 14 * time.Millisecond, true},
		{20 * time.Millisecond, 26*time.Millisecond + 1, false},
		{20 * time.Millisecond, 14*time.Millisecond - 1, false},
		{20 * time.Millisecond, 0, false},
	} {
		reported := tc.reported.Nanoseconds()
		r := &Result{InjectedNS: tc.injected.Nanoseconds(), ReportedNS: &reported}
		err := r.compare()
		assert.Check(t, (err == nil) == tc.ok, "injected %v, reported %v: %v", tc.injected, tc.reported, err)
	}
}

func TestOutlierBelongsToItsTaskAndTime(t *testing.T) {
	truth := &inject.Truth{Track: "offcpu", TID: 7, StartMono: 100, EndMono: 200}
	for _, tc := range []struct {
		track      string
		tid        int
		start, end uint64
		want       bool
	}{
		{"offcpu", 7, 101, 199, true},
		{"offcpu", 7, 90, 210, true},
		{"offcpu", 8, 101, 199, false},
		{"block", 7, 101, 199, false},
		{"offcpu", 7, 10, 99, false},
		{"offcpu", 7, 201, 300, false},
	} {
		o := &events.Outlier{Track: tc.track, Task: events.Task{TID: tc.tid}, StartMono: tc.start, EndMono: tc.end}
		got := belongs(o, truth)
		assert.Check(t, got == tc.want, "%s of %d from %d to %d: %t", tc.track, tc.tid, tc.start, tc.end, got)
	}
}

func TestOldDemosGo(t *testing.T) {
	parent := t.TempDir()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, name := range []string{"notes", "20261101T000000.000Z", "20261102T000000.000Z", "20261103T000000.000Z", "20261120T115955.000Z"} {
		assert.NilError(t, os.Mkdir(filepath.Join(parent, name), 0o700))
	}
	dir, err := makeDir(parent, now)
	assert.NilError(t, err)
	if want := filepath.Join(parent, "20261120T120000.000Z"); dir != want {
		t.Errorf("directory %s, want %s", dir, want)
	}
	want := []string{"20261103T000000.000Z", "20261120T115955.000Z", "20261120T120000.000Z", "notes"}
	got := names(t, parent)
	assert.Check(t, slices.Equal(got, want), "kept %v, want %v", got, want)
}

func TestDemosOfTheseMinutesStay(t *testing.T) {
	parent := t.TempDir()
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i := range 2 * keepDemos {
		_, err := makeDir(parent, start.Add(time.Duration(i)*time.Second))
		assert.NilError(t, err)
	}
	got := names(t, parent)
	assert.Check(t, len(got) == 2*keepDemos, "%v: a directory of a demo that may run now was removed", got)
}

func TestOnlyADirectoryWithoutSnapshotsGoes(t *testing.T) {
	empty, used := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "used")
	for _, file := range []string{empty + "/.lock", used + "/.lock", used + "/snapshot/snapshot.json"} {
		assert.NilError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		assert.NilError(t, os.WriteFile(file, nil, 0o600))
	}
	removeIfEmpty(empty)
	removeIfEmpty(used)
	_, err := os.Stat(empty)
	assert.Check(t, os.IsNotExist(err), "the empty one: %v", err)
	_, err = os.Stat(used + "/snapshot/snapshot.json")
	assert.Check(t, err)
}

func TestResultForPeople(t *testing.T) {
	dir, reported := "/snaps/x", int64(20_100_000)
	r := &Result{
		Track: "wakeup", Title: "a task was woken", InjectedNS: 20_000_000, ReportedNS: &reported, Snapshot: &dir,
		Events: 1234, CPUs: 4, HistoryNS: 2_340_000_000,
		Injected: &inject.Truth{Detail: "timer expired"},
		Outlier: &events.Outlier{
			DelayNS: reported, ThresholdNS: 5_000_000, CPU: 3,
			Task:  events.Task{PID: 7, TID: 8, Comm: "bad\x1b[2J"},
			OnCPU: &events.OnCPU{Peer: events.Peer{TID: 9, Comm: "hog"}, CPU: 3, RanNS: 20_000_000},
			Stacks: events.Stacks{
				Kernel: []string{"a", "b", "c", "d", "e", "f", "g", "h"},
				User:   []string{"main"},
			},
		},
		Error: "too long",
	}
	var out bytes.Buffer
	printResult(term.New(&out, &term.Options{}), r)
	want := `wakeup  a task was woken
  injected     20.0ms  timer expired
  reported     20.1ms  threshold 5ms
  task         bad\x1b[2J[8] on CPU 3
  ran instead  hog[9] for 20.0ms on CPU 3
  kernel       a
               b
               c
               d
               e
               f  and 2 more
  user         main
  snapshot     /snaps/x
               1,234 events on 4 CPUs, 2.34s of history before it began
  failed       too long
`
	assert.Check(t, out.String() == want, "got\n%s\nwant\n%s", out.String(), want)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	return got
}
