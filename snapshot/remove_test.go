package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// makeStore makes a directory with empty snapshots of the given ages, the oldest first.
func makeStore(t *testing.T, now time.Time, ages ...time.Duration) (dir string, ids []string) {
	t.Helper()
	dir = t.TempDir()
	for i, age := range ages {
		id := ID{Time: now.Add(-age), Rule: "wakeup", Number: uint64(i)}.String()
		assert.NilError(t, os.MkdirAll(filepath.Join(dir, id, TraceDir), 0o750))
		assert.NilError(t, os.WriteFile(filepath.Join(dir, id, MetaFile), make([]byte, 100<<10), 0o640))
		ids = append(ids, id)
	}
	return dir, ids
}

func TestFind(t *testing.T) {
	names := []string{
		"20261121T013004.557441426Z-wakeup-000001", "20261121T013004.557441426Z-wakeup-000002",
		"20261121T013005.000000000Z-block-000003",
	}
	for _, c := range []struct{ what, want, err string }{
		{"20261121T013005", names[2], ""},
		{names[0], names[0], ""},
		{"20261121T013004.557441426Z-wakeup-000002", names[1], ""},
		{"20261121T013004", "", `ambiguous snapshot id: "20261121T013004" matches ` + names[0] + ", " + names[1] + ": use a longer prefix"},
		{"2026", "", `ambiguous snapshot id: "2026" matches ` + names[0] + ", " + names[1] + " and 1 more: use a longer prefix"},
		{"1999", "", `no such snapshot: "1999"`},
		{"", "", "no such snapshot: empty id"},
		{"../etc", "", `"../etc" is a path, not a snapshot id: name its directory with --snapshots-dir`},
		{"/etc", "", `"/etc" is a path, not a snapshot id: name its directory with --snapshots-dir`},
		{".", "", `"." is a path, not a snapshot id: name its directory with --snapshots-dir`},
		{names[2] + "/", "", `"` + names[2] + `/" is a path, not a snapshot id: name its directory with --snapshots-dir`},
	} {
		got, err := Find(names, c.what)
		text := ""
		if err != nil {
			text = err.Error()
		}
		assert.Check(t, got == c.want && text == c.err,
			"Find(%q) = %q, %q; want %q, %q", c.what, got, text, c.want, c.err)
	}
	short := Short(names)
	want := []string{names[0], names[1], "20261121T013005"}
	assert.Check(t, slices.Equal(short, want), "Short = %q, want %q", short, want)
	for i, s := range short {
		got, err := Find(names, s)
		assert.Check(t, err == nil && got == names[i], "Find(%q) = %q, %v", s, got, err)
	}
}

func TestRemove(t *testing.T) {
	now := time.Now()
	dir, ids := makeStore(t, now, 3*time.Hour, 2*time.Hour, time.Hour)
	outside := filepath.Join(t.TempDir(), "precious")
	assert.NilError(t, os.WriteFile(outside, []byte("x"), 0o600))
	// Links in a snapshot are removed, and not what they lead to.
	assert.NilError(t, os.Symlink(filepath.Dir(outside), filepath.Join(dir, ids[0], "link")))
	freed, err := Remove(dir, ids[0])
	if err != nil || freed < 100<<10 || exists(filepath.Join(dir, ids[0])) || !exists(outside) {
		t.Errorf("freed %d, %v; still there: %v, outside: %v", freed, err, exists(filepath.Join(dir, ids[0])), exists(outside))
	}
	_, err = Remove(dir, ids[0])
	assert.Check(t, is.ErrorIs(err, ErrNoSnapshot), "again")
	// What is not a snapshot by its name or kind stays.
	linked := ID{Time: now, Rule: "wakeup", Number: 9}.String()
	file := ID{Time: now, Rule: "wakeup", Number: 10}.String()
	if err := errors.Join(os.Symlink(filepath.Dir(outside), filepath.Join(dir, linked)), os.WriteFile(filepath.Join(dir, file), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", ".", "..", "../" + ids[1], ids[1] + "/trace", ids[1] + "/../" + ids[2], "/etc", lockFile, linked, file} {
		_, err := Remove(dir, id)
		assert.Check(t, err != nil, "removed %q", id)
	}
	assert.Check(t, exists(outside) && exists(filepath.Join(dir, ids[1], MetaFile)) &&
		exists(filepath.Join(dir, ids[2], MetaFile)), "something else is gone")
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	for _, e := range entries {
		assert.Check(t, !strings.HasPrefix(e.Name(), tmpPrefix), "left behind: %s", e.Name())
	}
}

// A snapshot that a store holds is safe from any process; one that another
// process removes is gone for the store, too.
func TestRemoveBesideStore(t *testing.T) {
	now := time.Now()
	dir, ids := makeStore(t, now, 3*time.Hour, 2*time.Hour, time.Hour)
	s := testStore(t, StoreOptions{Dir: dir})
	first, second := s.Hold(ids[0]), s.Hold(ids[0])
	for i, release := range []func(){first, second} {
		_, err := Remove(dir, ids[0])
		assert.Check(t, is.ErrorIs(err, ErrInUse), "held %d times", 2-i)
		release()
		release() // once is enough
	}
	_, err := Remove(dir, ids[0])
	assert.Check(t, err, "let go")
	id0, err := ParseID(ids[0])
	assert.NilError(t, err)
	removed, err := s.remove(&storedSnapshot{id: id0})
	assert.Check(t, removed && err == nil, "the store, of what another process removed: %v, %v", removed, err)
	// One that is written at this moment comes held out of its temporary name.
	id := s.NewID(now, "block")
	p, err := s.Create(id, 0)
	assert.NilError(t, err)
	final, release, err := p.Commit()
	assert.NilError(t, err)
	_, err = Remove(dir, id)
	assert.Check(t, is.ErrorIs(err, ErrInUse), "just written")
	release()
	_, err = Remove(dir, id)
	assert.Check(t, err == nil && !exists(final), "let go: %v", err)
}

func TestPrune(t *testing.T) {
	now := time.Now()
	ages := []time.Duration{5 * time.Hour, 4 * time.Hour, 3 * time.Hour, 2 * time.Hour, time.Hour}
	for _, c := range []struct {
		keep Retention
		want []int
		why  string
	}{
		{Retention{Count: 3}, []int{0, 1}, "count"},
		{Retention{Count: 9}, nil, ""},
		{Retention{Age: 150 * time.Minute}, []int{0, 1, 2}, "age"},
		{Retention{Bytes: 3 * 120 << 10}, []int{0, 1}, "bytes"},
		{Retention{Bytes: 1}, []int{0, 1, 2, 3, 4}, "bytes"},
		{Retention{}, nil, ""},
	} {
		dir, ids := makeStore(t, now, ages...)
		for _, dry := range []bool{true, false} {
			gone, _, err := Prune(dir, c.keep, now, dry)
			var got []int
			for _, g := range gone {
				got = append(got, slices.Index(ids, g.ID))
				assert.Check(t, g.Limit == c.why && g.Err == nil && g.Bytes != 0, "%+v: %+v", c.keep, g)
			}
			assert.Check(t, err == nil && slices.Equal(got, c.want),
				"%+v, dry %v: removed %v, %v; want %v", c.keep, dry, got, err, c.want)
			left, err := IDs(dir)
			want := len(ids) - len(c.want)*btoi(!dry)
			assert.Check(t, err == nil && len(left) == want,
				"%+v, dry %v: %d left, %v; want %d", c.keep, dry, len(left), err, want)
		}
	}
	// What is in use stays, and the next one goes for it.
	dir, ids := makeStore(t, now, ages...)
	lock, err := lockSnapshot(filepath.Join(dir, ids[0]), unix.LOCK_SH)
	assert.NilError(t, err)
	defer lock.Close()
	gone, _, err := Prune(dir, Retention{Count: 4}, now, false)
	assert.Check(t, err == nil && len(gone) == 2 && errors.Is(gone[0].Err, ErrInUse) && gone[1].ID == ids[1] &&
		gone[1].Err == nil, "%+v, %v", gone, err)
	_, _, err = Prune(filepath.Join(dir, "nosuch"), Retention{Count: 1}, now, false)
	assert.Check(t, is.ErrorIs(err, os.ErrNotExist), "no directory")
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Thousands are listed, and each is found by its short name.
func TestThousands(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC)
	const n = 3000
	for i := range n {
		id := ID{Time: at.Add(time.Duration(i) * 100 * time.Millisecond), Rule: fmt.Sprintf("r%d", i%7), Number: uint64(i)}
		assert.NilError(t, os.Mkdir(filepath.Join(dir, id.String()), 0o750))
	}
	names, err := IDs(dir)
	assert.Assert(t, err == nil && len(names) == n, "%d, %v", len(names), err)
	for i, s := range Short(names) {
		got, err := Find(names, s)
		assert.Assert(t, err == nil && got == names[i] && len(s) <= len("20261121T010203.1"),
			"%q: %q, %v", s, got, err)
	}
}

// A snapshot may come from anywhere: no file of it makes a reader wait or leave.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	file, pipe, link := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("12345"), 0o600), unix.Mkfifo(pipe, 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	data, err := ReadFile(file, 5)
	assert.Check(t, err == nil && string(data) == "12345", "%q, %v", data, err)
	_, err = ReadFile(file, 4)
	assert.Check(t, err != nil && strings.HasSuffix(err.Error(), "is larger than 4 bytes"), "too large: %v", err)
	for _, path := range []string{pipe, link, dir, filepath.Join(dir, "none")} {
		_, err := ReadFile(path, 5)
		assert.Check(t, err != nil, "read %s", path)
	}
}

// Several processes and a store remove at once: each snapshot goes once, and
// none is left half.
func TestRemoveAtOnce(t *testing.T) {
	var ages []time.Duration
	for i := range 60 {
		ages = append(ages, time.Duration(i)*time.Minute)
	}
	dir, ids := makeStore(t, time.Now(), ages...)
	s := testStore(t, StoreOptions{Dir: dir})
	u, err := s.Usage()
	assert.Check(t, err == nil && u.Count == 60 && u.Last == ids[59] && u.Bytes >= 60*100<<10, "%+v, %v", u, err)
	var gone atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, id := range ids {
				switch _, err := Remove(dir, id); {
				case err == nil:
					gone.Add(1)
				case !errors.Is(err, ErrNoSnapshot) && !errors.Is(err, ErrInUse):
					t.Error(err)
				}
			}
		})
	}
	all.Go(func() {
		for range 20 {
			s.SetRetention(Retention{Count: 1})
		}
	})
	all.Wait()
	_, _, err = Prune(dir, Retention{Age: 1}, time.Now(), false)
	assert.Check(t, err)
	entries, err := os.ReadDir(dir)
	assert.Check(t, err == nil && len(entries) == 2 && entries[0].Name() == lockFile &&
		entries[1].Name() == stateFile, "left: %v, %v", entries, err)
	n := gone.Load()
	assert.Check(t, n >= 1 && n <= 60, "%d of 60 snapshots were removed", n)
	u, err = s.Usage()
	assert.Check(t, err == nil && u.Count == 0 && u.Bytes == 0 && u.Last == "", "%+v, %v", u, err)
}
