package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// fakeUptime is a machine that is on for as long as the test says.
type fakeUptime struct {
	mu    sync.Mutex
	boot  string
	since time.Duration
}

func (f *fakeUptime) read() (string, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.boot, f.since
}

func (f *fakeUptime) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since += d
}

func (f *fakeUptime) reboot(id string, since time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boot, f.since = id, since
}

// A clock that is set, to whatever, neither removes a snapshot nor keeps one: the
// times in the names are those of the wall clock, the order is that of the numbers.
func TestClockSteps(t *testing.T) {
	up := &fakeUptime{boot: "a", since: time.Hour}
	keep := Retention{Count: 3, Age: 30 * time.Minute}
	s := testStore(t, StoreOptions{Retention: keep, uptime: up.read})
	const year = 365 * 24 * time.Hour
	var all []string
	take := func(ahead time.Duration) {
		t.Helper()
		all = append(all, put(t, s, -ahead, 1))
		want(t, s, all[max(0, len(all)-3):]...)
	}
	// Right, an hour ahead, back, years ahead, years back.
	for _, ahead := range []time.Duration{0, time.Hour, 0, 0, 10 * year, -10 * year, -time.Hour, 0, 0} {
		take(ahead)
		up.pass(time.Minute)
		s.Enforce()
		want(t, s, all[max(0, len(all)-3):]...)
	}
	u, err := s.Usage()
	assert.Check(t, err == nil && u.Last == all[len(all)-1], "the newest is %s, %v", u.Last, err)
	names, err := IDs(s.Dir())
	assert.Check(t, err == nil && names[len(names)-1] == all[len(all)-1], "listed: %v, %v", names, err)
	// One from the future is as old as the time that has passed since.
	take(10 * year)
	up.pass(31 * time.Minute)
	s.Enforce()
	want(t, s)
}

// Age goes on over restarts, and over reboots but for the time switched off; a
// clock that is years ahead at boot is not asked.
func TestAgeOverRestarts(t *testing.T) {
	up := &fakeUptime{boot: "a", since: time.Hour}
	dir := filepath.Join(t.TempDir(), "store")
	keep := Retention{Age: time.Hour}
	open := func() *Store { return testStore(t, StoreOptions{Dir: dir, Retention: keep, uptime: up.read}) }
	s := open()
	a := put(t, s, 0, 1)
	up.pass(20 * time.Minute)
	s.Close()
	up.pass(20 * time.Minute) // nobody ran, but the machine did
	s = open()
	s.Enforce()
	want(t, s, a)
	s.Close()
	up.reboot("b", 10*time.Minute)
	s = open()
	s.Enforce()
	want(t, s, a)
	up.pass(9 * time.Minute) // 59 minutes are seen
	s.Enforce()
	want(t, s, a)
	up.pass(3 * time.Minute)
	s.Enforce()
	want(t, s)
}

// What a store finds without knowing how old it is counts as new.
func TestAgeNotKnown(t *testing.T) {
	up := &fakeUptime{boot: "a", since: time.Hour}
	dir, ids := makeStore(t, time.Now(), 1000*time.Hour, 999*time.Hour, -1000*time.Hour)
	s := testStore(t, StoreOptions{Dir: dir, Retention: Retention{Age: time.Hour}, uptime: up.read})
	s.Enforce()
	for _, text := range []string{"{", "", `{"version":1,"marks":[{"number":9,"elapsed_ns":5},{"number":3,"elapsed_ns":7}]}`, `{"version":1,"elapsed_ns":-1}`, strings.Repeat("x", maxState+1)} {
		s.Close()
		assert.NilError(t, os.WriteFile(filepath.Join(dir, stateFile), []byte(text), 0o600))
		up.pass(59 * time.Minute)
		s = testStore(t, StoreOptions{Dir: dir, Retention: Retention{Age: time.Hour}, uptime: up.read})
		s.Enforce()
		names, err := IDs(dir)
		assert.Check(t, err == nil && len(names) == len(ids), "with the state %.20q: %v, %v", text, names, err)
	}
	up.pass(61 * time.Minute)
	s.Enforce()
	names, err := IDs(dir)
	assert.Check(t, err == nil && len(names) == 0, "left %v, %v", names, err)
}

// Numbers are never used again: neither after a removal of all, nor a crash.
func TestNumbersAreUsedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := testStore(t, StoreOptions{Dir: dir})
	var last uint64
	next := func() uint64 {
		t.Helper()
		id, err := ParseID(put(t, s, 0, 1))
		assert.Assert(t, err == nil && id.Number > last, "%v after %d, %v", id, last, err)
		last = id.Number
		return last
	}
	next()
	next()
	gone, _, err := Prune(dir, Retention{Bytes: 1}, time.Now(), false)
	assert.Assert(t, err == nil && len(gone) == 2, "%v, %v", gone, err)
	s.Close()
	s = testStore(t, StoreOptions{Dir: dir})
	n := next()
	assert.Check(t, n == 3, "after a clean end the next is %d", n)
	for range 3 * reservedNumbers {
		s.NewID(time.Now(), "given-out")
	}
	next()
	for range reservedNumbers / 2 {
		last = s.number.Load()
		s.NewID(time.Now(), "given-out")
	}
	last = s.number.Load()
	crash(s)
	s = testStore(t, StoreOptions{Dir: dir})
	next()
	// A directory with an absurd number does not end the numbering.
	assert.NilError(t, os.Mkdir(s.Path(ID{Time: time.Now(), Rule: "x", Number: 1<<64 - 1}.String()), 0o700))
	s.Close()
	s = testStore(t, StoreOptions{Dir: dir})
	n = next()
	assert.Check(t, n <= 1000, "goes on with %d", n)
}

// crash lets a store go as the end of its process does.
func crash(s *Store) {
	s.disk.Close()
	s.lock.Close()
}

func TestStateStaysSmall(t *testing.T) {
	for _, age := range []time.Duration{0, time.Minute, 168 * time.Hour} {
		s := state{Version: stateVersion}
		for n := range uint64(20000) {
			s.ElapsedNS += int64(5 * time.Minute)
			s.addMark(n+1, age)
			assert.Assert(t, len(s.Marks) <= maxMarks, "age %s: %d marks", age, len(s.Marks))
		}
		if age == 0 {
			continue
		}
		// Never older than it is, and not much younger.
		for _, back := range []uint64{0, 1, 10, 100} {
			is := time.Duration(back) * 5 * time.Minute
			got := s.age(20000 - back)
			assert.Check(t, got <= is && (is > age || got >= is-age/50-5*time.Minute),
				"age %s: one of %s ago is %s old", age, is, got)
		}
		got := s.age(1)
		assert.Check(t, got > age, "age %s: the first one is %s old", age, got)
	}
}
