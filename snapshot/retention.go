package snapshot

import (
	"errors"
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
	id    ID
	bytes uint64
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
	drop := newPolicy(keep, len(all)+more, total+size, time.Now())
	for _, k := range all {
		why := drop.why(&k)
		if why == "" {
			continue
		}
		removed, err := s.remove(k.id.String())
		if err != nil {
			s.log.Error("cannot remove an old snapshot", zap.String("snapshot", k.id.String()), zap.Error(err))
		}
		if !removed {
			continue
		}
		drop.gone(&k)
		s.log.Info("removed an old snapshot", zap.String("snapshot", k.id.String()), zap.String("limit", why))
	}
}

// policy is one run of a Retention over snapshots, the oldest first.
type policy struct {
	keep   Retention
	count  int
	total  uint64
	oldest time.Time
}

func newPolicy(keep Retention, count int, total uint64, now time.Time) *policy {
	return &policy{keep: keep, count: count, total: total, oldest: now.Add(-keep.Age)}
}

// why names the limit by which a snapshot goes; "": it stays.
func (p *policy) why(k *kept) string {
	switch {
	case p.keep.Age > 0 && k.id.Time.Before(p.oldest):
		return "age"
	case p.keep.Count > 0 && p.count > p.keep.Count:
		return "count"
	case p.keep.Bytes > 0 && p.total > p.keep.Bytes:
		return "bytes"
	}
	return ""
}

// gone counts one out.
func (p *policy) gone(k *kept) {
	p.count--
	p.total -= min(k.bytes, p.total)
}

// remove removes one that is not held. One that somebody else has removed
// meanwhile is gone, too.
func (s *Store) remove(name string) (removed bool, err error) {
	s.mu.Lock()
	held := s.held[name] != nil
	s.mu.Unlock()
	if held {
		return false, nil
	}
	switch _, err = Remove(s.dir, name); {
	case errors.Is(err, ErrNoSnapshot):
		return true, nil
	case errors.Is(err, ErrInUse):
		return false, nil
	}
	return err == nil, err
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
		if err != nil || !e.IsDir() || id.String() != e.Name() {
			continue
		}
		k := kept{id: id, bytes: diskBytes(filepath.Join(dir, e.Name()))}
		total += k.bytes
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kept) int { return compareIDs(a.id, b.id) })
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
