package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// putSlow makes a snapshot with one outlier.
func putSlow(t *testing.T, s *Store, rule string, delay time.Duration, culprit string) string {
	t.Helper()
	id := s.NewID(time.Now(), rule)
	p, err := s.Create(id, 0)
	assert.NilError(t, err)
	meta := fmt.Sprintf(`{"version":1,"id":%q,"rule":%q,"outliers":[{"rule":%q,"delay_ns":%d,"explained":{"cause":"preempted","by":%q,"by_kind":"task"}}]}`,
		id, rule, rule, delay, culprit)
	assert.NilError(t, os.WriteFile(filepath.Join(p.Dir, MetaFile), []byte(meta), 0o600))
	_, release, err := p.Commit()
	assert.NilError(t, err)
	release()
	return id
}

func putWorth(t *testing.T, s *Store, id, content string) {
	t.Helper()
	assert.NilError(t, os.WriteFile(filepath.Join(s.Path(id), WorthFile), []byte(content), 0o600))
}

func TestPin(t *testing.T) {
	s := testStore(t, StoreOptions{Retention: Retention{Count: 4, Age: time.Hour}})
	keep := Retention{Count: 4}
	a, b, c := put(t, s, 0, 1), put(t, s, 0, 1), put(t, s, 0, 1)
	assert.NilError(t, Pin(s.Dir(), a, keep))
	assert.NilError(t, Pin(s.Dir(), a, keep), "twice")
	assert.NilError(t, Pin(s.Dir(), b, keep))
	err := Pin(s.Dir(), c, keep)
	assert.Check(t, errors.Is(err, ErrPinLimit) && strings.HasSuffix(err.Error(),
		"at most 2 may be, half of snapshots.keep.count: unpin others, or raise it"), "%v", err)
	err = Pin(s.Dir(), c, Retention{Bytes: 100})
	assert.Check(t, errors.Is(err, ErrPinLimit) && strings.Contains(err.Error(), "half of snapshots.keep.bytes"), "%v", err)
	for range 5 {
		put(t, s, 0, 1)
	}
	got := ids(t, s)
	assert.Check(t, len(got) == 4 && slices.Contains(got, a) && slices.Contains(got, b), "%q", got)
	infos, _, err := s.List()
	assert.Check(t, err == nil && infos[0].Pinned && infos[0].Kept == KeptPinned && infos[3].Kept == KeptNewest && !infos[3].Pinned,
		"%+v, %v", infos, err)
	u, err := s.Usage()
	assert.Check(t, err == nil && u.Pinned == 2 && u.Count == 4, "%+v, %v", u, err)
	n := s.Removals()
	assert.Check(t, n["count"] == 4 && n["age"] == 0, "%v", n)

	// Limits hold whatever is pinned: when they are lowered, the first keep their pins.
	s.SetRetention(Retention{Count: 2})
	got = ids(t, s)
	assert.Check(t, len(got) == 2 && got[0] == a, "%q", got)

	assert.NilError(t, Unpin(s.Dir(), a))
	assert.NilError(t, Unpin(s.Dir(), a), "twice")
	put(t, s, 0, 1)
	put(t, s, 0, 1)
	assert.Check(t, !slices.Contains(ids(t, s), a), "unpinned, and still there")

	for _, id := range []string{a, "", "../x", "x"} {
		assert.Check(t, Pin(s.Dir(), id, keep) != nil && Unpin(s.Dir(), id) != nil, "%q", id)
	}
	assert.Check(t, is.ErrorIs(Pin(s.Dir(), a, keep), ErrNoSnapshot))
}

// Age does not apply to what is pinned, prune spares it, and rm does not.
func TestPinnedStays(t *testing.T) {
	now := time.Now()
	dir, ids := makeStore(t, now, 3*time.Hour, 2*time.Hour, time.Hour)
	assert.NilError(t, Pin(dir, ids[0], Retention{}))
	gone, left, err := Prune(dir, Retention{Count: 1, Age: time.Minute}, now, true)
	assert.Check(t, err == nil && len(gone) == 2 && left.Count == 1 && left.Pinned == 1, "%v, %v, %v", gone, left, err)
	gone, left, err = Prune(dir, Retention{Bytes: 1}, now, false)
	assert.Check(t, err == nil && len(gone) == 2 && left.Count == 1 && left.Bytes > 1 && exists(filepath.Join(dir, ids[0])),
		"%v, %v, %v", gone, left, err)
	_, err = Remove(dir, ids[0])
	assert.NilError(t, err)
}

// A pin between the decision and the removal counts.
func TestPinnedMeanwhile(t *testing.T) {
	s := testStore(t, StoreOptions{})
	a := put(t, s, 0, 1)
	all, _, err := listSnapshots(s.Dir())
	assert.NilError(t, err)
	assert.NilError(t, Pin(s.Dir(), a, Retention{}))
	removed, err := s.remove(&all[0])
	assert.Check(t, !removed && err == nil && exists(s.Path(a)), "%v, %v", removed, err)
	_, err = removeSnapshot(s.Dir(), a, true)
	assert.Check(t, is.ErrorIs(err, errPinned))
	// And one that is being removed is not pinned.
	lock, err := lockSnapshot(s.Path(a), unix.LOCK_EX)
	assert.NilError(t, err)
	defer lock.Close()
	assert.Check(t, is.ErrorIs(Pin(s.Dir(), a, Retention{}), ErrInUse))
}

// Only files of the store's owner pin, and none leads elsewhere.
func TestHostilePins(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	assert.NilError(t, os.WriteFile(outside, nil, 0o600))
	for what, make := range map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink(outside, path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"another's": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 65534, 65534))
		},
	} {
		t.Run(what, func(t *testing.T) {
			if what == "another's" && os.Geteuid() != 0 {
				t.Skip("needs root: gives files away")
			}
			s := testStore(t, StoreOptions{})
			a := put(t, s, 0, 1)
			assert.NilError(t, make(filepath.Join(s.Path(a), PinFile)))
			assert.Check(t, !IsPinned(s.Path(a)))
			assert.ErrorContains(t, Pin(s.Dir(), a, Retention{}), "is in the way: remove ")
			s.SetRetention(Retention{Count: 1})
			b := put(t, s, 0, 1)
			want(t, s, b)
		})
	}
	assert.Check(t, exists(outside))
}

// The worst and the rare stay, whether worth.json says so or only snapshot.json.
func TestRetentionByWorth(t *testing.T) {
	s := testStore(t, StoreOptions{Retention: Retention{Count: 6, Worst: 1}})
	rare := putSlow(t, s, "rare", time.Millisecond, "cron 1")
	worst := putSlow(t, s, "noisy", time.Second, "hog 7")
	other := putSlow(t, s, "noisy", time.Microsecond, "backup 8")
	var last string
	for i := range 20 {
		last = putSlow(t, s, "noisy", 20*time.Millisecond, fmt.Sprint("hog ", i))
		if i%3 == 0 {
			putWorth(t, s, last, `{"version":1,"outliers":[{"rule":"noisy","delay_ns":20000000,"culprit":"preempted hog"}]}`)
		}
	}
	got := ids(t, s)
	assert.Check(t, len(got) == 6 && got[0] == rare && got[1] == worst && got[2] == other && got[5] == last, "%q", got)
	why, err := WhyKept(s.Dir(), Retention{Worst: 1})
	assert.Check(t, err == nil && why[rare] == KeptWorst && why[worst] == KeptWorst && why[other] == KeptCulprit &&
		why[last] == KeptNewest && why[got[4]] == KeptRecent, "%v, %v", why, err)
}

// Whatever stands in worth.json and snapshot.json, the limits hold, and rules that are
// not in them lose nothing.
func TestHostileWorth(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, content := range []string{
		"", "{", "null", "[]", `{"version":1}`, `{"version":2,"outliers":[{"rule":"rare","delay_ns":1}]}`,
		`{"version":1,"outliers":[{"rule":"","delay_ns":9},{"rule":"r-1","delay_ns":-9},{"rule":"r-1","delay_ns":9e99}]}`,
		`{"version":1,"outliers":[{"rule":"r-1","delay_ns":9223372036854775807,"culprit":"\u0000\u001b[2J` + long[:9000] + `"}]}`,
		`{"version":1,"outliers":[{"rule":"` + long + `","delay_ns":1}]}`,
		`{"version":1,"outliers":[` + strings.Repeat(`{"rule":"r-1","delay_ns":1},`, 1000) + `{"rule":"r-1","delay_ns":1}]}`,
		long,
	} {
		s := testStore(t, StoreOptions{Retention: Retention{Count: 4, Worst: 2}})
		rare := putSlow(t, s, "rare", time.Millisecond, "cron")
		for i := range 8 {
			id := put(t, s, 0, 1)
			putWorth(t, s, id, content)
			if i%2 == 0 {
				assert.NilError(t, os.WriteFile(filepath.Join(s.Path(id), MetaFile), []byte(content), 0o600))
			}
		}
		s.Enforce()
		left, err := IDs(s.Dir())
		assert.Check(t, err == nil && len(left) == 4 && left[0] == rare, "%.60q: %q, %v", content, left, err)
	}
}

// Snapshots of earlier releases are read some at a time.
func TestOldWorth(t *testing.T) {
	s := testStore(t, StoreOptions{})
	for range 5 {
		putSlow(t, s, "r", time.Millisecond, "hog")
	}
	x := index{maxOld: 2}
	for _, want := range []int{2, 4, 5, 5} {
		all, _, err := x.list(s.Dir(), true, func(string) {})
		assert.NilError(t, err)
		known := 0
		for i := range all {
			known += len(all[i].worth)
		}
		assert.Equal(t, known, want)
	}
}

func FuzzWorth(f *testing.F) {
	f.Add([]byte(`{"version":1,"outliers":[{"rule":"r-1","delay_ns":9,"culprit":"preempted hog"}]}`), []byte(`{"outliers":[{"rule":"r","delay_ns":9,"explained":{"by":"x"}}]}`))
	f.Fuzz(func(t *testing.T, worth, meta []byte) {
		dir := t.TempDir()
		assert.NilError(t, errors.Join(os.WriteFile(filepath.Join(dir, WorthFile), worth, 0o600), os.WriteFile(filepath.Join(dir, MetaFile), meta, 0o600)))
		list, ok := readWorth(dir, uint32(os.Geteuid()))
		if !ok {
			list = readOldWorth(dir)
		}
		assert.Check(t, len(list) <= maxClaims)
		for _, c := range list {
			assert.Check(t, c.Rule != "" && len(c.Rule) <= maxRuleName && c.DelayNS > 0 && len(c.Culprit) <= 6*maxCulprit, "%+v", c)
		}
	})
}

func TestCulpritOf(t *testing.T) {
	for _, c := range []struct{ cause, kind, by, want string }{
		{"preempted", "task", "kworker/3:1 77", "preempted kworker/:"},
		{"preempted", "task", "rt-hog 25952", "preempted rt-hog"},
		{"block_device", "device", "sda1", "block_device sda1"},
		{"unexplained", "", "", "unexplained"},
	} {
		assert.Equal(t, culpritOf(c.cause, c.kind, c.by), c.want)
	}
}
