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

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

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
		assert.NilError(t, err)
		assert.NilError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for range 1 + round%6 {
			lines.Scan()
		}
		// Spread the moment over one whole snapshot; any moment must do.
		time.Sleep(time.Duration(round*137%5000) * time.Microsecond)
		assert.NilError(t, cmd.Process.Kill())
		for lines.Scan() {
		}
		assert.ErrorContains(t, cmd.Wait(), "killed", "the writer ended by itself")

		half += len(leftovers(t, dir))
		listed, broken, err := List(dir)
		assert.Assert(t, err == nil && len(broken) == 0, "round %d: broken %v, %v", round, broken, err)
		for _, info := range listed {
			whole(t, info.Dir)
		}
		s, err := OpenStore(StoreOptions{Dir: dir})
		assert.NilError(t, err)
		left := leftovers(t, dir)
		assert.Assert(t, len(left) == 0, "round %d: left %q", round, left)
		assert.NilError(t, s.Close())
	}
	t.Logf("%d half-written directories were met and removed in %d rounds", half, rounds)
	assert.Check(t, half != 0, "no kill hit a write: the test proves nothing")
}

// whole checks that nothing of a snapshot is missing.
func whole(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"trace/kernel/metadata", "trace/kernel/kernel_0", "trace/kernel/kernel_1", ExplainJSONFile, ExplainTextFile, FoldedFile} {
		assert.Check(t, exists(filepath.Join(dir, name)), "%s lacks %s", dir, name)
	}
	info, err := os.Stat(filepath.Join(dir, "trace/kernel/kernel_1"))
	assert.Check(t, err == nil && info.Size() >= 2000*8, "%s: short trace: %v, %v", dir, info, err)
}

// put makes a snapshot of about that many bytes, aged as told.
func put(t *testing.T, s *Store, age time.Duration, bytes int) string {
	t.Helper()
	at := time.Now().Add(-age).UTC()
	id := s.NewID(at, "r-1")
	p, err := s.Create(id, uint64(bytes))
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(p.Dir, "data"), make([]byte, bytes), 0o600))
	text := fmt.Sprintf(`{"version":1,"id":%q,"rule":"r-1","time":%q,"outliers":[{},{}]}`, id, at.Format(time.RFC3339Nano))
	assert.NilError(t, os.WriteFile(filepath.Join(p.Dir, MetaFile), []byte(text), 0o600))
	_, release, err := p.Commit()
	assert.NilError(t, err)
	release()
	return id
}

func ids(t *testing.T, s *Store) []string {
	t.Helper()
	infos, broken, err := s.List()
	assert.Assert(t, err == nil && len(broken) == 0, "list: %v, %v", broken, err)
	var out []string
	for _, i := range infos {
		out = append(out, i.ID)
	}
	return out
}

func want(t *testing.T, s *Store, ids_ ...string) {
	t.Helper()
	assert.Check(t, is.DeepEqual(ids_, ids(t, s)), "snapshots")
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
		_, err := s.Create(s.NewID(time.Now(), "x"), 400<<10)
		assert.NilError(t, err)
		want(t, s, b)
	})
	t.Run("the one just written stays, however large", func(t *testing.T) {
		s := testStore(t, StoreOptions{Retention: Retention{Bytes: 1000}})
		id := s.NewID(time.Now(), "x")
		p, err := s.Create(id, 0)
		assert.NilError(t, err)
		assert.NilError(t, os.WriteFile(filepath.Join(p.Dir, "data"), make([]byte, 1<<20), 0o600))
		dir, release, err := p.Commit()
		if err != nil || !exists(dir) {
			t.Fatalf("%v, exists %v", err, exists(dir))
		}
		release()
		s.Enforce()
		assert.Check(t, !exists(dir), "it stayed after its release")
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
		assert.NilError(t, os.Mkdir(mine, 0o700))
		tmp := filepath.Join(s.Dir(), ".tmp-of-another-program")
		assert.NilError(t, os.Mkdir(tmp, 0o700))
		put(t, s, time.Hour, 1)
		put(t, s, 0, 1)
		assert.NilError(t, s.Close())
		testStore(t, StoreOptions{Dir: s.Dir()})
		assert.Check(t, exists(mine) && exists(tmp), "a foreign directory was removed")
	})
}

func TestStoreIsLocked(t *testing.T) {
	s := testStore(t, StoreOptions{})
	_, err := OpenStore(StoreOptions{Dir: s.Dir()})
	assert.Check(t, errors.Is(err, ErrLocked) && strings.Contains(err.Error(), "set another snapshots.dir"),
		"second daemon: %v", err)
	assert.NilError(t, s.Close())
	again, err := OpenStore(StoreOptions{Dir: s.Dir()})
	assert.NilError(t, err)
	_ = again.Close()
}

func TestNumbersGoOn(t *testing.T) {
	s := testStore(t, StoreOptions{})
	put(t, s, 0, 1)
	id := put(t, s, time.Hour, 1)
	assert.NilError(t, s.Close())
	again := testStore(t, StoreOptions{Dir: s.Dir()})
	next, err := ParseID(again.NewID(time.Now(), "x"))
	assert.Check(t, err == nil && next.Number == 3 && strings.HasSuffix(id, "-r-1-000002"),
		"%v after %s, %v", next, id, err)
}

func TestListTellsOfBrokenOnes(t *testing.T) {
	s := testStore(t, StoreOptions{})
	good := put(t, s, 3*time.Hour, 1)
	for i, text := range []string{"{", `{"version":99,"id":"x"}`, `{"version":1,"id":"another"}`, `{}`} {
		dir := s.Path(s.NewID(time.Now().Add(time.Duration(i)*time.Hour), "bad"))
		assert.NilError(t, os.Mkdir(dir, 0o700))
		assert.NilError(t, os.WriteFile(filepath.Join(dir, MetaFile), []byte(text), 0o600))
	}
	assert.NilError(t, os.Mkdir(s.Path(s.NewID(time.Now(), "empty")), 0o700))
	infos, broken, err := s.List()
	assert.Assert(t, err == nil && len(broken) == 5 && len(infos) == 1,
		"%d good, broken %v, %v", len(infos), broken, err)
	got := infos[0]
	assert.Check(t, got.ID == good && got.Outliers == 2 && got.Rule == "r-1" && got.Bytes != 0, "got %+v", got)
}

func TestID(t *testing.T) {
	id := ID{Time: time.Date(2026, 11, 20, 23, 15, 2, 123456789, time.UTC), Rule: "a-b", Number: 42}
	const name = "20261120T231502.123456789Z-a-b-000042"
	assert.Check(t, id.String() == name, "name %s", id)
	got, err := ParseID(name)
	assert.Check(t, err == nil && got == id, "parsed %+v, %v", got, err)
	for _, bad := range []string{"", "x", ".lock", ".tmp-" + name, name + "x", "20261120T231502.123456789Z-000042", "2026-x-1", "20261120T231502.123456789Z-../x-1"} {
		got, err := ParseID(bad)
		assert.Check(t, err != nil, "%q is %+v", bad, got)
	}
}

func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small tmpfs")
	}
	mount := t.TempDir()
	assert.NilError(t, unix.Mount("tmpfs", mount, "tmpfs", 0, "size=4m"))
	cleanup.Unmount(t, mount)
	done, onDone := collecting()
	store, err := OpenStore(StoreOptions{Dir: filepath.Join(mount, "store"), MinFree: 1 << 20})
	assert.NilError(t, err)
	m, stop := running(t, Options{Recorder: newMemRecorder(10), Store: store, OnDone: onDone})
	take := func() Done {
		now := linux.Monotonic()
		m.Submit(outlierAt("r", now, now), rule("r", 0))
		return <-done
	}

	// Less free than min_free.
	hog := filepath.Join(mount, "hog")
	assert.NilError(t, os.WriteFile(hog, make([]byte, 3<<20), 0o600))
	d := take()
	assert.Check(t, errors.Is(d.Err, ErrNoSpace) && strings.Contains(d.Err.Error(), "snapshots.min_free"),
		"below min_free: %v", d.Err)

	// ENOSPC in the middle of the write.
	assert.NilError(t, os.Truncate(hog, 1<<20))
	m.opts.BeforeTrace = func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "more"), make([]byte, 8<<20), 0o600)
	}
	d = take()
	assert.Check(t, errors.Is(d.Err, ErrNoSpace) && errors.Is(d.Err, unix.ENOSPC), "full: %v", d.Err)
	m.opts.BeforeTrace = nil
	left := leftovers(t, store.Dir())
	assert.Check(t, len(left) == 0, "left %q", left)

	// And when there is room again.
	d = take()
	assert.Check(t, d.Err, "%v", d.Err)
	stop()
	s := m.Stats()
	assert.Check(t, s.NoSpace == 2 && s.Failed == 2 && s.Taken == 1, "stats %+v", s)
	assert.Check(t, store.Close())
}
