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

// Retention limits what a store keeps. Zero means no limit.
type Retention struct {
	Count int    // number of snapshots
	Bytes uint64 // total size on disk
	// Age is measured in elapsed time, not by the wall clock, see state.
	Age time.Duration
}

// SetRetention replaces the policy and enforces it.
func (s *Store) SetRetention(r Retention) {
	s.mu.Lock()
	s.keep = r
	s.mu.Unlock()
	s.Enforce()
}

// Enforce removes the snapshots that exceed the policy, oldest first, and leftovers of
// crashes. It never removes held snapshots.
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

// storedSnapshot is a complete snapshot in a store.
type storedSnapshot struct {
	id    ID
	bytes uint64
	age   time.Duration
}

// removeRetryInterval is the pause before a failed removal is tried again.
const removeRetryInterval = time.Minute

// retain enforces the policy as if more snapshots with a total of size bytes were
// there. Snapshots that cannot be removed do not count, so that newer ones are not
// removed in their place. Errors are logged. Runs on the store's thread; requires
// s.dirMu.
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
				name = gone // renamed already; sweep will try again
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

// markUnremovable records a failed removal and logs it once.
func (s *Store) markUnremovable(name string, err error) {
	s.mu.Lock()
	_, known := s.unremovable[name]
	s.unremovable[name] = s.now().Add(removeRetryInterval)
	n := len(s.unremovable)
	s.mu.Unlock()
	if !known {
		s.removeErrors.error(s.log, s.now(), "cannot remove a snapshot: it no longer counts against snapshots.keep and is retried every minute",
			zap.String("snapshot", name), zap.Int("unremovable", n), zap.Error(err))
	}
}

func (s *Store) clearUnremovable(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unremovable, name)
}

// forgetRemoved forgets entries that were removed by others.
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

// isUnremovable reports whether a removal failed recently.
func (s *Store) isUnremovable(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	retry, is := s.unremovable[name]
	return is && s.now().Before(retry)
}

// Unremovable returns how many snapshots could not be removed and still exist.
func (s *Store) Unremovable() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unremovable)
}

// policy applies a Retention to a list of snapshots, oldest first.
type policy struct {
	keep  Retention
	count int
	total uint64
}

func newPolicy(keep Retention, count int, total uint64) *policy {
	return &policy{keep: keep, count: count, total: total}
}

// exceeded returns the limit that a snapshot exceeds, or "".
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

// removed subtracts a snapshot from the totals.
func (p *policy) removed(k *storedSnapshot) {
	p.count--
	p.total -= min(k.bytes, p.total)
}

// remove removes a snapshot unless it is held. It reports true if the snapshot is gone,
// whoever removed it.
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

// listSnapshots returns the complete snapshots, oldest first. It ignores everything
// else in the directory.
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
