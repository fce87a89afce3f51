package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/test/support/cleanup"
)

// crashDir, if set, turns the test binary into a daemon that does nothing but
// take snapshots until it is killed.
const crashDir = "TAILCAM_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		fmt.Fprintln(os.Stderr, takeForever(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func takeForever(dir string) error {
	s, err := OpenStore(StoreOptions{Dir: dir, Retention: Retention{Count: 3}})
	if err != nil {
		return err
	}
	m, err := New(Options{Recorder: newMemRecorder(1), Store: s})
	if err != nil {
		return err
	}
	job := job{meta: Meta{Version: Version, Notes: []string{}, Rule: "crash"}}
	for cpu := range 2 {
		c := trace.CPU{CPU: cpu}
		for i := range 2000 {
			c.Records = append(c.Records, record(cpu, uint64(1000+i)))
		}
		job.cpus = append(job.cpus, c)
	}
	fmt.Println("ready")
	for {
		job.meta.Time = time.Now().UTC()
		job.meta.ID = s.NewID(job.meta.Time, "crash")
		_, release, err := m.write(&job)
		if err != nil {
			return err
		}
		release()
		fmt.Println("one")
	}
}

// TestCrash kills a process at many different moments while it writes,
// renames and removes snapshots.
func TestCrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	rounds, half := 40, 0
	if testing.Short() {
		rounds = 8
	}
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 1 + round%6 {
			lines.Scan()
		}
		// Spread the moment over one whole snapshot; any moment must do.
		time.Sleep(time.Duration(round*137%5000) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the writer ended by itself: %v", err)
		}

		half += len(leftovers(t, dir))
		listed, broken, err := List(dir)
		if err != nil || len(broken) != 0 {
			t.Fatalf("round %d: broken %v, %v", round, broken, err)
		}
		for _, info := range listed {
			whole(t, info.Dir)
		}
		s, err := OpenStore(StoreOptions{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if left := leftovers(t, dir); len(left) != 0 {
			t.Fatalf("round %d: left %q", round, left)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d half-written directories were met and removed in %d rounds", half, rounds)
	if half == 0 {
		t.Error("no kill hit a write: the test proves nothing")
	}
}

// whole checks that nothing of a snapshot is missing.
func whole(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"trace/kernel/metadata", "trace/kernel/kernel_0", "trace/kernel/kernel_1", ExplainJSONFile, ExplainTextFile, FoldedFile} {
		if !exists(filepath.Join(dir, name)) {
			t.Errorf("%s lacks %s", dir, name)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "trace/kernel/kernel_1")); err != nil || info.Size() < 2000*8 {
		t.Errorf("%s: short trace: %v, %v", dir, info, err)
	}
}

// put makes a snapshot of about that many bytes, aged as told.
func put(t *testing.T, s *Store, age time.Duration, bytes int) string {
	t.Helper()
	at := time.Now().Add(-age).UTC()
	id := s.NewID(at, "r-1")
	p, err := s.Create(id, uint64(bytes))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Dir, "data"), make([]byte, bytes), 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"version":1,"id":%q,"rule":"r-1","time":%q,"outliers":[{},{}]}`, id, at.Format(time.RFC3339Nano))
	if err := os.WriteFile(filepath.Join(p.Dir, MetaFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, release, err := p.Commit()
	if err != nil {
		t.Fatal(err)
	}
	release()
	return id
}

func ids(t *testing.T, s *Store) []string {
	t.Helper()
	infos, broken, err := s.List()
	if err != nil || len(broken) != 0 {
		t.Fatalf("list: %v, %v", broken, err)
	}
	var out []string
	for _, i := range infos {
		out = append(out, i.ID)
	}
	return out
}

func want(t *testing.T, s *Store, ids_ ...string) {
	t.Helper()
	if d := cmp.Diff(ids_, ids(t, s)); d != "" {
		t.Errorf("snapshots:\n%s", d)
	}
}

func TestRetention(t *testing.T) {
	t.Run("count", func(t *testing.T) {
		s := testStore(t, StoreOptions{Retention: Retention{Count: 2}})
		put(t, s, 4*time.Hour, 1)
		b := put(t, s, 3*time.Hour, 1)
		c := put(t, s, 2*time.Hour, 1)
		want(t, s, b, c)
	})
	t.Run("age", func(t *testing.T) {
		up := &fakeUptime{boot: "a"}
		s := testStore(t, StoreOptions{Retention: Retention{Age: 2 * time.Hour}, uptime: up.read})
		a := put(t, s, -time.Hour, 1) // whatever the wall clock said
		up.pass(90 * time.Minute)
		b := put(t, s, 1000*time.Hour, 1)
		want(t, s, a, b)
		up.pass(time.Hour)
		s.Enforce()
		want(t, s, b)
	})
	t.Run("bytes make room before the write", func(t *testing.T) {
		s := testStore(t, StoreOptions{Retention: Retention{Bytes: 1 << 20}})
		put(t, s, 4*time.Hour, 400<<10)
		b := put(t, s, 3*time.Hour, 400<<10)
		if _, err := s.Create(s.NewID(time.Now(), "x"), 400<<10); err != nil {
			t.Fatal(err)
		}
		want(t, s, b)
	})
	t.Run("the one just written stays, however large", func(t *testing.T) {
		s := testStore(t, StoreOptions{Retention: Retention{Bytes: 1000}})
		id := s.NewID(time.Now(), "x")
		p, err := s.Create(id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p.Dir, "data"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		dir, release, err := p.Commit()
		if err != nil || !exists(dir) {
			t.Fatalf("%v, exists %v", err, exists(dir))
		}
		release()
		s.Enforce()
		if exists(dir) {
			t.Error("it stayed after its release")
		}
	})
	t.Run("held", func(t *testing.T) {
		s := testStore(t, StoreOptions{})
		a := put(t, s, 4*time.Hour, 1)
		put(t, s, 3*time.Hour, 1)
		put(t, s, 2*time.Hour, 1)
		first, second := s.Hold(a), s.Hold(a)
		s.SetRetention(Retention{Count: 1})
		want(t, s, a)
		first()
		first()
		d := put(t, s, time.Hour, 1)
		want(t, s, a, d)
		second()
		e := put(t, s, 0, 1)
		want(t, s, e)
	})
	t.Run("foreign files stay", func(t *testing.T) {
		s := testStore(t, StoreOptions{Retention: Retention{Count: 1}})
		mine := filepath.Join(s.Dir(), "20200101-notes")
		if err := os.Mkdir(mine, 0o700); err != nil {
			t.Fatal(err)
		}
		tmp := filepath.Join(s.Dir(), ".tmp-of-another-program")
		if err := os.Mkdir(tmp, 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, s, time.Hour, 1)
		put(t, s, 0, 1)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		testStore(t, StoreOptions{Dir: s.Dir()})
		if !exists(mine) || !exists(tmp) {
			t.Error("a foreign directory was removed")
		}
	})
}

func TestStoreIsLocked(t *testing.T) {
	s := testStore(t, StoreOptions{})
	_, err := OpenStore(StoreOptions{Dir: s.Dir()})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "set another snapshots.dir") {
		t.Errorf("second daemon: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenStore(StoreOptions{Dir: s.Dir()})
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

func TestNumbersGoOn(t *testing.T) {
	s := testStore(t, StoreOptions{})
	put(t, s, 0, 1)
	id := put(t, s, time.Hour, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := testStore(t, StoreOptions{Dir: s.Dir()})
	next, err := ParseID(again.NewID(time.Now(), "x"))
	if err != nil || next.Number != 3 || !strings.HasSuffix(id, "-r-1-000002") {
		t.Errorf("%v after %s, %v", next, id, err)
	}
}

func TestListTellsOfBrokenOnes(t *testing.T) {
	s := testStore(t, StoreOptions{})
	good := put(t, s, 3*time.Hour, 1)
	for i, text := range []string{"{", `{"version":99,"id":"x"}`, `{"version":1,"id":"another"}`, `{}`} {
		dir := s.Path(s.NewID(time.Now().Add(time.Duration(i)*time.Hour), "bad"))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, MetaFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(s.Path(s.NewID(time.Now(), "empty")), 0o700); err != nil {
		t.Fatal(err)
	}
	infos, broken, err := s.List()
	if err != nil || len(broken) != 5 || len(infos) != 1 {
		t.Fatalf("%d good, broken %v, %v", len(infos), broken, err)
	}
	if got := infos[0]; got.ID != good || got.Outliers != 2 || got.Rule != "r-1" || got.Bytes == 0 {
		t.Errorf("got %+v", got)
	}
}

func TestID(t *testing.T) {
	id := ID{Time: time.Date(2026, 11, 20, 23, 15, 2, 123456789, time.UTC), Rule: "a-b", Number: 42}
	const name = "20261120T231502.123456789Z-a-b-000042"
	if id.String() != name {
		t.Errorf("name %s", id)
	}
	got, err := ParseID(name)
	if err != nil || got != id {
		t.Errorf("parsed %+v, %v", got, err)
	}
	for _, bad := range []string{"", "x", ".lock", ".tmp-" + name, name + "x", "20261120T231502.123456789Z-000042", "2026-x-1", "20261120T231502.123456789Z-../x-1"} {
		if got, err := ParseID(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small tmpfs")
	}
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	cleanup.Unmount(t, mount)
	done, onDone := collecting()
	store, err := OpenStore(StoreOptions{Dir: filepath.Join(mount, "store"), MinFree: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	m, stop := running(t, Options{Recorder: newMemRecorder(10), Store: store, OnDone: onDone})
	take := func() Done {
		now := linux.Monotonic()
		m.Submit(outlierAt("r", now, now), rule("r", 0))
		return <-done
	}

	// Less free than min_free.
	hog := filepath.Join(mount, "hog")
	if err := os.WriteFile(hog, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := take(); !errors.Is(d.Err, ErrNoSpace) || !strings.Contains(d.Err.Error(), "snapshots.min_free") {
		t.Errorf("below min_free: %v", d.Err)
	}

	// ENOSPC in the middle of the write.
	if err := os.Truncate(hog, 1<<20); err != nil {
		t.Fatal(err)
	}
	good := m.opts.WriteTrace
	m.opts.WriteTrace = func(dir string, tr trace.Trace) error {
		return errors.Join(good(dir, tr), os.WriteFile(filepath.Join(dir, "more"), make([]byte, 8<<20), 0o600))
	}
	if d := take(); !errors.Is(d.Err, ErrNoSpace) || !errors.Is(d.Err, unix.ENOSPC) {
		t.Errorf("full: %v", d.Err)
	}
	m.opts.WriteTrace = good
	if left := leftovers(t, store.Dir()); len(left) != 0 {
		t.Errorf("left %q", left)
	}

	// And when there is room again.
	if d := take(); d.Err != nil {
		t.Error(d.Err)
	}
	stop()
	if s := m.Stats(); s.NoSpace != 2 || s.Failed != 2 || s.Taken != 1 {
		t.Errorf("stats %+v", s)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
