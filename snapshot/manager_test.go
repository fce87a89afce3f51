package snapshot

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// collecting takes Done and offers them in order.
func collecting() (chan Done, func(Done)) {
	ch := make(chan Done, 100)
	return ch, func(d Done) { ch <- d }
}

func TestOutlierToSnapshot(t *testing.T) {
	rec := newMemRecorder(1000)
	done, onDone := collecting()
	store := testStore(t, StoreOptions{})
	m, stop := running(t, Options{Recorder: rec, Store: store, RingRecords: 1000, OnDone: onDone, Host: HostInfo{Tailcam: "test"}})

	start := linux.Monotonic()
	rec.write(0, start)
	end := linux.Monotonic()
	rec.write(1, end)
	rec.outlier(end)
	o := outlierAt("wakeup", start, end)
	id := m.Submit(o, rule("wakeup", 20*time.Millisecond))
	assert.Assert(t, id != "" && o.Snapshot != nil && *o.Snapshot == id, "id %q, outlier says %v", id, o.Snapshot)
	after := linux.Monotonic()
	rec.write(0, after)
	d := <-done
	stop()

	assert.Assert(t, d.Err == nil && d.ID == id && d.Dir == store.Path(id), "done: %+v", d)
	for _, name := range []string{MetaFile, ExplainJSONFile, ExplainTextFile, FoldedFile, "trace/kernel/metadata", "trace/kernel/kernel_0", "trace/kernel/kernel_1"} {
		info, err := os.Stat(filepath.Join(d.Dir, name))
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != fileMode {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	s := meta(t, d.Dir)
	assert.Check(t, len(s.Notes) == 0 && s.Records == 3 && s.Host.Tailcam == "test" && s.Host.Kernel != "" &&
		len(s.Rules) == 1 && len(s.Outliers) == 1, "snapshot.json: %+v", s)
	got := s.Outliers[0]
	assert.Check(t, got.StartMono == start && got.Snapshot != nil && *got.Snapshot == id, "outlier: %+v", got)
	assert.Assert(t, len(s.Coverage) == 2, "coverage: %+v", s.Coverage)
	for _, c := range s.Coverage {
		assert.Check(t, c.CompleteBefore && c.CompleteAfter && c.FromMonoNS <= start, "coverage: %+v", c)
	}
	assert.Check(t, !rec.isFrozen(), "the recorder was left frozen")
	t.Run("babeltrace2", func(t *testing.T) { readable(t, filepath.Join(d.Dir, TraceDir)) })
	text, err := os.ReadFile(filepath.Join(d.Dir, ExplainTextFile))
	if err != nil || !strings.Contains(string(text), "victim[11]              was woken and waited to run") {
		t.Errorf("explain.txt: %v\n%s", err, text)
	}
}

// TestHistoryBefore: a snapshot has the history that its rule asks for: as much as each CPU should
// have, all, or another duration; only that is missed if there is less.
func TestHistoryBefore(t *testing.T) {
	rec := newMemRecorder(1000)
	done, onDone := collecting()
	long := time.Duration(linux.Monotonic() / 4) // machines may have begun a minute ago
	m, _ := running(t, Options{
		Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000, OnDone: onDone, Cover: long,
		RecordsSince: linux.Monotonic() - uint64(long),
	})
	old := linux.Monotonic()
	rec.write(0, old)
	for linux.Monotonic() < old+uint64(20*time.Millisecond) {
		time.Sleep(time.Millisecond)
	}
	take := func(before time.Duration) *Meta {
		t.Helper()
		now := linux.Monotonic()
		rec.write(0, now)
		rec.outlier(now)
		r := rule("wakeup", time.Millisecond)
		r.Snapshot.Before = before
		assert.Assert(t, m.Submit(outlierAt("wakeup", now-1, now), r) != "")
		d := <-done
		assert.NilError(t, d.Err)
		return meta(t, d.Dir)
	}
	has := func(s *Meta) bool { return s.Records > 1 && s.Coverage[0].FromMonoNS <= old }

	s := take(rules.BeforeCover)
	assert.Check(t, has(s) && len(s.Notes) == 0 && s.Rules[0].Snapshot.BeforeNS == long.Nanoseconds(), "all of it as cover: %+v", s)
	m.SetCover(10 * time.Millisecond)
	s = take(rules.BeforeCover)
	assert.Check(t, !has(s) && len(s.Notes) == 0 && s.Rules[0].Snapshot.BeforeNS == 10*time.Millisecond.Nanoseconds(), "10 ms of cover: %+v", s)
	s = take(0)
	assert.Check(t, has(s) && len(s.Notes) == 0 && s.Window.FromMonoNS == 0, "all: %+v", s)
	s = take(long / 2)
	assert.Check(t, has(s) && len(s.Notes) == 0, "half of it: %+v", s)
	s = take(2 * long)
	assert.Check(t, has(s) && strings.Contains(strings.Join(s.Notes, "\n"), "less than snapshot.before asks for"), "twice as much: %+v", s)
	m.SetCover(0)
	s = take(rules.BeforeCover)
	assert.Check(t, has(s) && len(s.Notes) == 0, "the rings have a size: %+v", s)
}

func TestOutliersJoin(t *testing.T) {
	rec := newMemRecorder(1000)
	done, onDone := collecting()
	m, stop := running(t, Options{Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000, OnDone: onDone, MaxJoin: time.Hour})
	now := linux.Monotonic()
	// Long enough to be open for both, cut short by the stop.
	first := m.Submit(outlierAt("a", now-1000, now), rule("a", time.Hour))
	second := m.Submit(outlierAt("b", now-9000, now+500), rule("b", time.Hour))
	later := uint64(2 * time.Hour)
	third := m.Submit(outlierAt("c", now+later-1, now+later), rule("c", time.Hour))
	assert.Check(t, first != "" && first == second && third != first, "ids %q %q %q", first, second, third)
	limited := outlierAt("a", now, now)
	limited.WantsSnapshot = false
	id := m.Submit(limited, rule("a", time.Hour))
	assert.Check(t, id == "" && limited.Snapshot == nil, "a limited outlier got %q", id)
	stop()
	d := <-done
	s := meta(t, d.Dir)
	assert.Check(t, len(s.Outliers) == 2 && len(s.Rules) == 2 && s.Rule == "a",
		"outliers %+v, rules %+v", s.Outliers, s.Rules)
	notes := strings.Join(s.Notes, "\n")
	assert.Check(t, strings.Contains(notes, "tailcam stopped"), "notes:\n%s", notes)
	st := m.Stats()
	assert.Check(t, st.Joined == 1 && st.Taken == 2, "stats %+v", st)
}

func TestEveryRecordIsDrainedOnce(t *testing.T) {
	rec := newMemRecorder(1 << 20)
	done, onDone := collecting()
	m, stop := running(t, Options{Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1 << 20, OnDone: onDone})
	var written int
	var dirs []string
	for range 20 {
		start := linux.Monotonic()
		for range 50 {
			rec.write(written%2, linux.Monotonic())
			written++
		}
		end := linux.Monotonic()
		rec.outlier(end)
		rec.write(0, linux.Monotonic())
		written++
		assert.Assert(t, m.Submit(outlierAt("r", start, end), rule("r", 0)) != "", "no snapshot")
		dirs = append(dirs, (<-done).Dir)
	}
	_, err := m.TakeNow("end")
	assert.NilError(t, err)
	stop()
	seen := map[trace.Record]int{}
	for _, r := range rec.drained {
		seen[r]++
	}
	for r, n := range seen {
		if n != 1 {
			t.Errorf("record at %d drained %d times", r.Time(), n)
		}
	}
	assert.Check(t, len(rec.drained) == written, "%d of %d records drained", len(rec.drained), written)
	// A snapshot right after another one has its history all the same.
	for i, dir := range dirs {
		s := meta(t, dir)
		assert.Check(t, len(s.Notes) == 0 && s.Records >= uint64(50*(i+1)),
			"snapshot %d: %d records, notes %q", i, s.Records, s.Notes)
	}
}

func TestShortHistoryIsToldFirst(t *testing.T) {
	rec := newMemRecorder(10)
	done, onDone := collecting()
	m, _ := running(t, Options{Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 10, OnDone: onDone})
	start := linux.Monotonic()
	for range 100 {
		rec.write(0, linux.Monotonic())
	}
	end := linux.Monotonic()
	rec.outlier(end)
	m.Submit(outlierAt("r", start, end), rule("r", 0))
	dir := (<-done).Dir
	s := meta(t, dir)
	if len(s.Notes) == 0 || !strings.Contains(s.Notes[0], "does not reach the entry") || !strings.Contains(s.Notes[0], "raise recorder.size") ||
		!strings.Contains(s.Notes[0], "CPU 0") {
		t.Errorf("notes %q", s.Notes)
	}
	if text, err := os.ReadFile(filepath.Join(dir, ExplainTextFile)); err != nil || !s.ShortHistory ||
		!strings.HasPrefix(string(text), "note: the history does not reach the entry") {
		t.Errorf("explain.txt: %v\n%s", err, text)
	}
	assert.Check(t, !s.Coverage[0].CompleteBefore && s.Coverage[1].CompleteBefore && s.Coverage[0].Records == 10,
		"coverage %+v", s.Coverage)
}

func TestAForgottenFreezeHeals(t *testing.T) {
	// The outlier of the first freeze never reached the daemon.
	rec := newMemRecorder(1000)
	done, onDone := collecting()
	m, _ := running(t, Options{Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000, OnDone: onDone})
	rec.outlier(linux.Monotonic())
	start := linux.Monotonic()
	rec.write(0, start)
	end := linux.Monotonic()
	rec.outlier(end) // does not freeze: a bank is frozen
	m.Submit(outlierAt("r", start, end), rule("r", 0))
	s := meta(t, (<-done).Dir)
	assert.Check(t, s.Records == 1 && len(s.Notes) == 0 && !rec.isFrozen(),
		"%d records, notes %q, frozen %v", s.Records, s.Notes, rec.isFrozen())
}

func TestRefusedOutliersAreCountedAndThaw(t *testing.T) {
	rec := newMemRecorder(1000)
	block := make(chan struct{})
	done, onDone := collecting()
	m, _ := running(t, Options{
		Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000, Queue: 2, OnDone: onDone,
		BeforeTrace: func(string) error { <-block; return nil },
	})
	submit := func() (string, uint64) {
		end := linux.Monotonic()
		rec.outlier(end)
		o := outlierAt("r", end, end)
		r := rule("r", 0)
		m.opts.MaxJoin = 0 // each its own
		return m.Submit(o, r), o.Suppressed
	}
	accepted, refused := 0, uint64(0)
	for range 50 {
		if id, _ := submit(); id == "" {
			refused++
		} else {
			accepted++
		}
	}
	s := m.Stats()
	assert.Check(t, s.Skipped["r"] == refused && refused != 0, "refused %d, counted %v", refused, s.Skipped)
	for rec.isFrozen() {
		time.Sleep(time.Millisecond) // hangs if nobody releases the bank
	}
	_, err := m.TakeNow("now")
	assert.Check(t, is.ErrorContains(err, "in progress"), "take now")
	close(block)
	for m.Stats().Taken < 2 {
		<-done
	}
	id, suppressed := "", uint64(0)
	for id == "" { // the slot comes free a moment after its Done
		if id, suppressed = submit(); id == "" {
			refused++
		}
	}
	assert.Check(t, is.Equal(suppressed, refused), "suppressed")
	assert.Check(t, accepted >= 2, "accepted %d", accepted)

	rec.outlier(linux.Monotonic())
	m.Release()
	off := rule("off", 0)
	off.Snapshot.Enabled = false
	for rec.isFrozen() {
		time.Sleep(time.Millisecond)
	}
	rec.outlier(linux.Monotonic())
	id = m.Submit(outlierAt("off", 1, 2), off)
	assert.Check(t, id == "", "a rule without snapshots got %q", id)
	for rec.isFrozen() {
		time.Sleep(time.Millisecond)
	}
}

func TestRecorderErrorIsToldAndNotFatal(t *testing.T) {
	rec := newMemRecorder(1000)
	rec.fail = errors.New("boom")
	m, _ := running(t, Options{Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000})
	dir, err := m.TakeNow("x")
	assert.NilError(t, err)
	s := meta(t, dir)
	assert.Check(t, strings.Contains(strings.Join(s.Notes, "\n"), "boom") && s.Reason == "x" &&
		s.Rule == manualRule, "snapshot.json: %+v", s)
	if s := m.Stats(); s.DrainErrors == 0 || s.Taken != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	done, onDone := collecting()
	store := testStore(t, StoreOptions{})
	m, stop := running(t, Options{
		Recorder: newMemRecorder(10), Store: store, OnDone: onDone,
		BeforeTrace: func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "half"), []byte("x"), 0o600); err != nil {
				return err
			}
			return errors.New("boom")
		},
	})
	now := linux.Monotonic()
	id := m.Submit(outlierAt("r", now, now), rule("r", 0))
	d := <-done
	assert.Check(t, d.ID == id && d.Dir == "" && d.Err != nil && strings.Contains(d.Err.Error(), "boom"),
		"done %+v", d)
	_, err := m.TakeNow("x")
	assert.Check(t, err != nil, "no error")
	stop()
	left := leftovers(t, store.Dir())
	assert.Check(t, len(left) == 0, "left %q", left)
	s := m.Stats()
	assert.Check(t, s.Failed == 2 && s.Taken == 0 && s.LastError != "", "stats %+v", s)
	_, err = m.TakeNow("late")
	assert.Check(t, is.ErrorContains(err, "stopping"), "after the end")
}

// readable has another reader open the trace.
func readable(t *testing.T, dir string) {
	t.Helper()
	prog, err := exec.LookPath("babeltrace2")
	if err != nil {
		t.Skip("babeltrace2 is not installed")
	}
	cmd := exec.Command(prog, dir)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	assert.Check(t, err == nil && stderr.Len() <= 0, "babeltrace2: %v\n%s", err, stderr.String())
	for _, want := range []string{"tailcam_entry", "tailcam_exit", "victim"} {
		assert.Check(t, strings.Contains(stdout.String(), want),
			"%q is missing in the trace:\n%s", want, stdout.String())
	}
}

// leftovers lists all but the lock and complete snapshots.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	var out []string
	for _, e := range entries {
		if _, err := ParseID(e.Name()); err != nil && e.Name() != lockFile && e.Name() != stateFile {
			out = append(out, e.Name())
		}
	}
	return out
}
