package snapshot

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
)

// Retention says how much a store keeps. A zero field is no limit.
type Retention struct {
	Count int    // snapshots
	Bytes uint64 // on the disk, all snapshots together
	// Age is by the time that a store saw pass, not by the wall clock: see state.
	Age time.Duration
}

// SetRetention replaces the policy and enforces it.
func (s *Store) SetRetention(r Retention) {
	s.mu.Lock()
	s.keep = r
	s.mu.Unlock()
	s.Enforce()
}

// Enforce removes what the policy does not keep, oldest first by their numbers,
// and what crashed runs left. It never removes what is held: in use by an action,
// or just written.
func (s *Store) Enforce() {
	s.dirMu.Lock()
	defer s.dirMu.Unlock()
	err := s.attach()
	if err == nil {
		err = s.Run("remove old snapshots", func() error {
			s.saveState(false)
			s.retain(0, 0)
			s.sweep()
			return nil
		})
	}
	if err != nil {
		s.storeErrors.error(s.log, s.now(), "cannot enforce the retention of snapshots", zap.Error(err))
	}
}

// storedSnapshot is one complete snapshot as retention sees it.
type storedSnapshot struct {
	id    ID
	bytes uint64
	age   time.Duration
}

// removeRetryInterval is how long one that could not be removed is left alone.
const removeRetryInterval = time.Minute

// retain enforces the policy as if more snapshots of size bytes were there. What
// cannot be removed is left out of the count, so that it does not cost younger
// ones their place, and is told once. Trouble is logged: it must not stop a
// snapshot. On the store's thread, under s.writing.
func (s *Store) retain(more int, size uint64) {
	s.mu.Lock()
	keep := s.keep
	s.mu.Unlock()
	if keep == (Retention{}) {
		return
	}
	all, total, err := listSnapshots(s.dir)
	if err != nil {
		s.storeErrors.error(s.log, s.now(), "cannot enforce the retention of snapshots", zap.Error(err))
		return
	}
	all = slices.DeleteFunc(all, func(k storedSnapshot) bool {
		stuck := s.isUnremovable(k.id.String())
		if stuck {
			total -= min(k.bytes, total)
		}
		return stuck
	})
	drop := newPolicy(keep, len(all)+more, total+size)
	for _, k := range all {
		k.age = s.state.age(k.id.Number)
		why := drop.exceeded(&k)
		if why == "" {
			continue
		}
		name := k.id.String()
		s.setStep("remove " + name)
		removed, err := s.remove(name)
		if err != nil {
			drop.removed(&k)
			if gone := tmpPrefix + gonePrefix + name; exists(filepath.Join(s.dir, gone)) {
				name = gone // it is out of sight, and sweep goes on with it
			}
			s.markUnremovable(name, err)
		}
		if !removed {
			continue
		}
		s.clearUnremovable(name)
		drop.removed(&k)
		s.log.Info("removed an old snapshot", zap.String("snapshot", name), zap.String("limit", why))
	}
}

// markUnremovable remembers that something cannot be removed, and tells it once.
func (s *Store) markUnremovable(name string, err error) {
	s.mu.Lock()
	_, known := s.unremovable[name]
	s.unremovable[name] = s.now().Add(removeRetryInterval)
	n := len(s.unremovable)
	s.mu.Unlock()
	if !known {
		s.removeErrors.error(s.log, s.now(), "cannot remove a snapshot: it stays, outside of what is kept, and is tried again every minute",
			zap.String("snapshot", name), zap.Int("all_such", n), zap.Error(err))
	}
}

func (s *Store) clearUnremovable(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unremovable, name)
}

// forgetRemoved forgets what somebody else has removed.
func (s *Store) forgetRemoved() {
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.unremovable))
	s.mu.Unlock()
	for _, name := range names {
		if !exists(filepath.Join(s.dir, name)) {
			s.clearUnremovable(name)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// isUnremovable tells whether something could not be removed a short while ago.
func (s *Store) isUnremovable(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	retry, is := s.unremovable[name]
	return is && s.now().Before(retry)
}

// Unremovable counts what could not be removed and is still there.
func (s *Store) Unremovable() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unremovable)
}

// policy is one run of a Retention over snapshots, the oldest first.
type policy struct {
	keep  Retention
	count int
	total uint64
}

func newPolicy(keep Retention, count int, total uint64) *policy {
	return &policy{keep: keep, count: count, total: total}
}

// exceeded names the limit by which a snapshot goes; "": it stays.
func (p *policy) exceeded(k *storedSnapshot) string {
	switch {
	case p.keep.Age > 0 && k.age > p.keep.Age:
		return "age"
	case p.keep.Count > 0 && p.count > p.keep.Count:
		return "count"
	case p.keep.Bytes > 0 && p.total > p.keep.Bytes:
		return "bytes"
	}
	return ""
}

// removed counts one out.
func (p *policy) removed(k *storedSnapshot) {
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

// listSnapshots returns the complete snapshots, oldest first. What else lies in the
// directory is nobody's to delete.
func listSnapshots(dir string) (all []storedSnapshot, total uint64, err error) {
	ids, err := listIDs(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, id := range ids {
		k := storedSnapshot{id: id, bytes: diskBytes(filepath.Join(dir, id.String()))}
		total += k.bytes
		all = append(all, k)
	}
	return all, total, nil
}
