package snapshot

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Retention says how much a store keeps. A zero field is no limit.
type Retention struct {
	Count int           // snapshots
	Bytes uint64        // on the disk, all snapshots together
	Age   time.Duration // since the snapshot's time
}

// SetRetention replaces the policy and enforces it.
func (s *Store) SetRetention(r Retention) {
	s.mu.Lock()
	s.keep = r
	s.mu.Unlock()
	s.retain(0, 0)
}

// Enforce removes what the policy does not keep, oldest first. It never
// removes what is held: in use by an action, or just written.
func (s *Store) Enforce() { s.retain(0, 0) }

// kept is one complete snapshot as retention sees it.
type kept struct {
	name   string
	time   time.Time
	number uint64
	bytes  uint64
}

// retain enforces the policy as if more snapshots of size bytes were there.
// Trouble is logged: it must not stop a snapshot.
func (s *Store) retain(more int, size uint64) {
	s.retaining.Lock()
	defer s.retaining.Unlock()
	s.mu.Lock()
	keep := s.keep
	s.mu.Unlock()
	if keep == (Retention{}) {
		return
	}
	all, total, err := scan(s.dir)
	if err != nil {
		s.log.Error("cannot enforce the retention of snapshots", zap.Error(err))
		return
	}
	count := len(all) + more
	total += size
	oldest := time.Now().Add(-keep.Age)
	for _, k := range all {
		why := ""
		switch {
		case keep.Age > 0 && k.time.Before(oldest):
			why = "age"
		case keep.Count > 0 && count > keep.Count:
			why = "count"
		case keep.Bytes > 0 && total > keep.Bytes:
			why = "bytes"
		default:
			continue
		}
		removed, err := s.remove(k.name)
		if err != nil {
			s.log.Error("cannot remove an old snapshot", zap.String("snapshot", k.name), zap.Error(err))
		}
		if !removed {
			continue
		}
		count--
		total -= k.bytes
		s.log.Info("removed an old snapshot", zap.String("snapshot", k.name), zap.String("limit", why))
	}
}

// remove takes the snapshot out of sight first, so that a crash in between
// leaves no half one. A held one stays.
func (s *Store) remove(name string) (removed bool, err error) {
	gone := filepath.Join(s.dir, tmpPrefix+gonePrefix+name)
	s.mu.Lock()
	if s.held[name] > 0 {
		s.mu.Unlock()
		return false, nil
	}
	err = os.Rename(s.Path(name), gone)
	s.mu.Unlock()
	if err != nil {
		return false, fmt.Errorf("remove snapshot: %w", err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return true, fmt.Errorf("remove snapshot: %w", err)
	}
	return true, nil
}

// scan returns the complete snapshots, oldest first. What else lies in the
// directory is nobody's to delete.
func scan(dir string) (all []kept, total uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		id, err := ParseID(e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		k := kept{name: e.Name(), time: id.Time, number: id.Number, bytes: diskBytes(filepath.Join(dir, e.Name()))}
		total += k.bytes
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kept) int {
		return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.number, b.number))
	})
	return all, total, nil
}

// diskBytes sums what a directory occupies. What vanishes meanwhile is no
// error.
func diskBytes(dir string) uint64 {
	var sum uint64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += uint64(st.Blocks) * 512
		}
		return nil
	})
	return sum
}
