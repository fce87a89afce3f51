package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stateFile holds what a store must remember besides its snapshots.
const stateFile = ".state"

const (
	stateVersion = 1
	maxState     = 1 << 20 // bytes
	// reservedNumbers is how many snapshot numbers are reserved on disk in advance. A
	// crash skips up to that many.
	reservedNumbers = 64
	// maxNumber is the highest plausible number: a directory with a higher one was not
	// made by a store.
	maxNumber = 1 << 53
	maxMarks  = 256
	// saveInterval is how much elapsed time a crash may lose.
	saveInterval = 10 * time.Minute
)

// state is the content of .state: the snapshot numbers in use and the elapsed time. It
// does not depend on the wall clock, so setting that neither ages snapshots nor changes
// their order.
type state struct {
	Version int `json:"version"`
	// Number is the highest number that may be in use.
	Number uint64 `json:"number"`
	// ElapsedNS is the time this store has existed: CLOCK_BOOTTIME across boots,
	// excluding time powered off.
	ElapsedNS int64  `json:"elapsed_ns"`
	BootID    string `json:"boot_id"` // boot of the last save
	BootNS    int64  `json:"boot_ns"` // CLOCK_BOOTTIME of the last save
	// Marks map numbers to elapsed time, in ascending order.
	Marks []mark `json:"marks"`
}

// mark: snapshots up to Number were taken at ElapsedNS or earlier.
type mark struct {
	Number    uint64 `json:"number"`
	ElapsedNS int64  `json:"elapsed_ns"`
}

// uptime returns the boot id and CLOCK_BOOTTIME.
type uptime func() (bootID string, sinceBoot time.Duration)

func readUptime() uptime {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // if unreadable, every start counts as a new boot
	id := strings.TrimSpace(string(boot))
	return func() (string, time.Duration) {
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // exists on every Linux
		return id, time.Duration(ts.Nano())
	}
}

// advance adds the time since the last call. Time between two boots is unknown and not
// added.
func (s *state) advance(now uptime) {
	id, since := now()
	passed := int64(since)
	if id == s.BootID && id != "" {
		passed -= s.BootNS
	}
	s.ElapsedNS += max(passed, 0)
	s.BootID, s.BootNS = id, int64(since)
}

// addMark marks all numbers up to n as taken by now. The last mark moves along until it
// is far enough from the one before: a snapshot's age is that of the mark after it, so
// at most this much too low.
func (s *state) addMark(n uint64, age time.Duration) {
	every := int64(time.Hour)
	if age > 0 {
		every = int64(age) / 100
	}
	now := mark{n, s.ElapsedNS}
	k := len(s.Marks)
	switch {
	case k > 0 && n <= s.Marks[k-1].Number:
		return
	case k > 1 && now.ElapsedNS-s.Marks[k-2].ElapsedNS < every:
		s.Marks[k-1] = now
	default:
		s.Marks = append(s.Marks, now)
	}
	// Of the marks past the age limit, the last one suffices.
	if age > 0 {
		for len(s.Marks) > 1 && s.ElapsedNS-s.Marks[1].ElapsedNS > int64(age) {
			s.Marks = s.Marks[1:]
		}
	}
	if len(s.Marks) > maxMarks {
		kept := s.Marks[:0]
		for i, m := range s.Marks {
			if i%2 == 1 || i == len(s.Marks)-1 {
				kept = append(kept, m)
			}
		}
		s.Marks = kept
	}
}

// age returns the elapsed time since a snapshot was taken; 0: unknown.
func (s *state) age(number uint64) time.Duration {
	i, _ := slices.BinarySearchFunc(s.Marks, number, func(m mark, n uint64) int {
		if m.Number < n {
			return -1
		}
		return 1
	})
	if i == len(s.Marks) {
		return 0
	}
	return time.Duration(s.ElapsedNS - s.Marks[i].ElapsedNS)
}

// loadState reads a store's state. If it is missing or damaged it starts over: existing
// snapshots count as taken now.
func loadState(dir string) (*state, error) {
	data, err := ReadFile(filepath.Join(dir, stateFile), maxState)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return &state{Version: stateVersion}, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return &state{Version: stateVersion}, fmt.Errorf("read %s: %w", stateFile, err)
	}
	sorted := true
	for i := 1; i < len(s.Marks); i++ {
		a, b := s.Marks[i-1], s.Marks[i]
		sorted = sorted && a.Number < b.Number && a.ElapsedNS <= b.ElapsedNS
	}
	last := len(s.Marks) - 1
	if s.Version != stateVersion || s.Number > maxNumber || s.ElapsedNS < 0 || !sorted || last >= 0 && s.Marks[last].ElapsedNS > s.ElapsedNS {
		return &state{Version: stateVersion}, fmt.Errorf("read %s: damaged or unknown version", stateFile)
	}
	return &s, nil
}

// save replaces the state file atomically.
func (s *state) save(dir string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, stateFile+".new")
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, filepath.Join(dir, stateFile))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return syncPath(dir)
}
