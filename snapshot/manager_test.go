package snapshot

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tailcam/tailcam/internal/linux"
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
	if id == "" || o.Snapshot == nil || *o.Snapshot != id {
		t.Fatalf("id %q, outlier says %v", id, o.Snapshot)
	}
	after := linux.Monotonic()
	rec.write(0, after)
	d := <-done
	stop()

	if d.Err != nil || d.ID != id || d.Dir != store.Path(id) {
		t.Fatalf("done: %+v", d)
	}
	for _, name := range []string{MetaFile, ExplainJSONFile, ExplainTextFile, FoldedFile, "trace/kernel/metadata", "trace/kernel/kernel_0", "trace/kernel/kernel_1"} {
		info, err := os.Stat(filepath.Join(d.Dir, name))
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != fileMode {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	s := meta(t, d.Dir)
	if len(s.Notes) != 0 || s.Records != 3 || s.Host.Tailcam != "test" || s.Host.Kernel == "" || len(s.Rules) != 1 || len(s.Outliers) != 1 {
		t.Errorf("snapshot.json: %+v", s)
	}
	if got := s.Outliers[0]; got.StartMono != start || got.Snapshot == nil || *got.Snapshot != id {
		t.Errorf("outlier: %+v", got)
	}
	if len(s.Coverage) != 2 {
		t.Fatalf("coverage: %+v", s.Coverage)
	}
	for _, c := range s.Coverage {
		if !c.CompleteBefore || !c.CompleteAfter || c.FromMonoNS > start {
			t.Errorf("coverage: %+v", c)
		}
	}
	if rec.isFrozen() {
		t.Error("the recorder was left frozen")
	}
	t.Run("babeltrace2", func(t *testing.T) { readable(t, filepath.Join(d.Dir, TraceDir)) })
	text, err := os.ReadFile(filepath.Join(d.Dir, ExplainTextFile))
	if err != nil || !strings.Contains(string(text), "victim[11]              was woken and waited to run") {
		t.Errorf("explain.txt: %v\n%s", err, text)
	}
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
	if first == "" || first != second || third == first {
		t.Errorf("ids %q %q %q", first, second, third)
	}
	limited := outlierAt("a", now, now)
	limited.WantsSnapshot = false
	if id := m.Submit(limited, rule("a", time.Hour)); id != "" || limited.Snapshot != nil {
		t.Errorf("a limited outlier got %q", id)
	}
	stop()
	d := <-done
	s := meta(t, d.Dir)
	if len(s.Outliers) != 2 || len(s.Rules) != 2 || s.Rule != "a" {
		t.Errorf("outliers %+v, rules %+v", s.Outliers, s.Rules)
	}
	if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, "tailcam stopped") {
		t.Errorf("notes:\n%s", notes)
	}
	if st := m.Stats(); st.Joined != 1 || st.Taken != 2 {
		t.Errorf("stats %+v", st)
	}
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
		if m.Submit(outlierAt("r", start, end), rule("r", 0)) == "" {
			t.Fatal("no snapshot")
		}
		dirs = append(dirs, (<-done).Dir)
	}
	if _, err := m.TakeNow("end"); err != nil {
		t.Fatal(err)
	}
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
	if len(rec.drained) != written {
		t.Errorf("%d of %d records drained", len(rec.drained), written)
	}
	// A snapshot right after another one has its history all the same.
	for i, dir := range dirs {
		s := meta(t, dir)
		if len(s.Notes) != 0 || s.Records < uint64(50*(i+1)) {
			t.Errorf("snapshot %d: %d records, notes %q", i, s.Records, s.Notes)
		}
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
	if s.Coverage[0].CompleteBefore || !s.Coverage[1].CompleteBefore || s.Coverage[0].Records != 10 {
		t.Errorf("coverage %+v", s.Coverage)
	}
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
	if s.Records != 1 || len(s.Notes) != 0 || rec.isFrozen() {
		t.Errorf("%d records, notes %q, frozen %v", s.Records, s.Notes, rec.isFrozen())
	}
}

func TestRefusedOutliersAreCountedAndThaw(t *testing.T) {
	rec := newMemRecorder(1000)
	block := make(chan struct{})
	done, onDone := collecting()
	m, _ := running(t, Options{
		Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000, Queue: 2, OnDone: onDone,
		WriteTrace: func(string, trace.Trace) error { <-block; return nil },
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
	if s := m.Stats(); s.Skipped["r"] != refused || refused == 0 {
		t.Errorf("refused %d, counted %v", refused, s.Skipped)
	}
	for rec.isFrozen() {
		time.Sleep(time.Millisecond) // hangs if nobody releases the bank
	}
	if _, err := m.TakeNow("now"); err == nil || !strings.Contains(err.Error(), "in progress") {
		t.Errorf("take now: %v", err)
	}
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
	if suppressed != refused {
		t.Errorf("suppressed %d, want %d", suppressed, refused)
	}
	if accepted < 2 {
		t.Errorf("accepted %d", accepted)
	}

	rec.outlier(linux.Monotonic())
	m.Release()
	off := rule("off", 0)
	off.Snapshot.Enabled = false
	for rec.isFrozen() {
		time.Sleep(time.Millisecond)
	}
	rec.outlier(linux.Monotonic())
	if id := m.Submit(outlierAt("off", 1, 2), off); id != "" {
		t.Errorf("a rule without snapshots got %q", id)
	}
	for rec.isFrozen() {
		time.Sleep(time.Millisecond)
	}
}

func TestRecorderErrorIsToldAndNotFatal(t *testing.T) {
	rec := newMemRecorder(1000)
	rec.fail = errors.New("boom")
	m, _ := running(t, Options{Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000})
	dir, err := m.TakeNow("x")
	if err != nil {
		t.Fatal(err)
	}
	if s := meta(t, dir); !strings.Contains(strings.Join(s.Notes, "\n"), "boom") || s.Reason != "x" || s.Rule != manualRule {
		t.Errorf("snapshot.json: %+v", s)
	}
	if s := m.Stats(); s.DrainErrors == 0 || s.Taken != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	done, onDone := collecting()
	store := testStore(t, StoreOptions{})
	m, stop := running(t, Options{
		Recorder: newMemRecorder(10), Store: store, OnDone: onDone,
		WriteTrace: func(dir string, _ trace.Trace) error {
			if err := os.WriteFile(filepath.Join(dir, "half"), []byte("x"), 0o600); err != nil {
				return err
			}
			return errors.New("boom")
		},
	})
	now := linux.Monotonic()
	id := m.Submit(outlierAt("r", now, now), rule("r", 0))
	d := <-done
	if d.ID != id || d.Dir != "" || d.Err == nil || !strings.Contains(d.Err.Error(), "boom") {
		t.Errorf("done %+v", d)
	}
	if _, err := m.TakeNow("x"); err == nil {
		t.Error("no error")
	}
	stop()
	if left := leftovers(t, store.Dir()); len(left) != 0 {
		t.Errorf("left %q", left)
	}
	if s := m.Stats(); s.Failed != 2 || s.Taken != 0 || s.LastError == "" {
		t.Errorf("stats %+v", s)
	}
	if _, err := m.TakeNow("late"); err == nil || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("after the end: %v", err)
	}
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
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("babeltrace2: %v\n%s", err, stderr.String())
	}
	for _, want := range []string{"tailcam_entry", "tailcam_exit", "victim"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is missing in the trace:\n%s", want, stdout.String())
		}
	}
}

// leftovers lists all but the lock and complete snapshots.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if _, err := ParseID(e.Name()); err != nil && e.Name() != lockFile && e.Name() != stateFile {
			out = append(out, e.Name())
		}
	}
	return out
}
