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

// Retention says what a store keeps. Of the limits, zero means none. docs/snapshots.md
// has the order of removal.
type Retention struct {
	Count int    // number of snapshots
	Bytes uint64 // total size on disk
	// Age is measured in elapsed time, not by the wall clock, see state. It does not
	// apply to pinned snapshots.
	Age time.Duration
	// Worst is how many of the slowest snapshots of each rule, and of each culprit, are
	// kept before newer ones.
	Worst int
}

// limited reports whether there is any limit.
func (r *Retention) limited() bool { return r.Count > 0 || r.Bytes > 0 || r.Age > 0 }

// DefaultWorst is Retention.Worst where nobody sets it.
const DefaultWorst = 3

// SetRetention replaces the policy and enforces it.
func (s *Store) SetRetention(r Retention) {
	s.mu.Lock()
	s.keep = r
	s.mu.Unlock()
	s.Enforce()
}

// Retention returns the policy.
func (s *Store) Retention() Retention {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep
}

// Enforce removes the snapshots that exceed the policy and leftovers of crashes. It
// never removes held snapshots.
func (s *Store) Enforce() {
	s.dirMu.Lock()
	defer s.dirMu.Unlock()
	err := s.attach()
	if err == nil {
		err = s.Run("remove old snapshots", func() error {
			s.saveState(false)
			s.retain(nil, true)
			s.sweep()
			return nil
		})
	}
	if err != nil {
		s.storeErrors.error(s.log, s.now(), "cannot enforce the retention of snapshots", zap.Error(err))
	}
}

// removeRetryInterval is the pause before a failed removal is tried again.
const removeRetryInterval = time.Minute

// retain enforces the policy, making room for one more snapshot if that is not nil and has
// none; refresh measures some of those on disk anew. Snapshots that cannot be removed do not count, so
// that newer ones are not removed in their place. Errors are logged. Runs on the store's
// thread; requires s.dirMu.
func (s *Store) retain(more *storedSnapshot, refresh bool) {
	keep := s.Retention()
	if !keep.limited() {
		return
	}
	all, _, err := s.index.list(s.dir, refresh, func(id string) { s.setStep("measure " + id) })
	if err != nil {
		s.storeErrors.error(s.log, s.now(), "cannot enforce the retention of snapshots", zap.Error(err))
		return
	}
	all = slices.DeleteFunc(all, func(k storedSnapshot) bool { return s.isUnremovable(k.id.String()) })
	for i := range all {
		all[i].age = s.state.age(all[i].id.Number)
		all[i].held = s.isHeld(all[i].id.String())
	}
	if more != nil {
		all = append(all, *more)
		if s.roomFor(all, keep, more.bytes) {
			return
		}
	}
	p := newPlan(all, keep, false)
	for k, why := p.next(); k != nil; k, why = p.next() {
		name := k.id.String()
		s.setStep("remove " + name)
		removed, err := s.remove(k)
		if err != nil {
			p.removed(k)
			if gone := tmpPrefix + gonePrefix + name; exists(filepath.Join(s.dir, gone)) {
				name = gone // renamed already; sweep will try again
			}
			s.markUnremovable(name, err)
		}
		if !removed {
			continue
		}
		s.clearUnremovable(name)
		p.removed(k)
		s.mu.Lock()
		s.removals[why]++
		s.mu.Unlock()
		s.log.Info("removed a snapshot", zap.String("snapshot", name), zap.String("limit", why))
	}
}

// roomFor reports whether all of these fit on the disk and into keep.bytes, the last one, which
// is still to be written, included. Other limits then wait until it is complete.
func (s *Store) roomFor(all []storedSnapshot, keep Retention, more uint64) bool {
	var bytes uint64
	for i := range all {
		bytes += all[i].bytes
	}
	return (keep.Bytes == 0 || bytes <= keep.Bytes) && CheckSpace(s.dir, s.minFree.Load(), more) == nil
}

// Removals returns how many snapshots were removed because of each limit: age, count,
// bytes.
func (s *Store) Removals() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.removals)
}

func (s *Store) isHeld(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[id] != nil
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

// remove removes a snapshot unless it is in use, or was pinned meanwhile. It reports
// true if the snapshot is gone, whoever removed it.
func (s *Store) remove(k *storedSnapshot) (removed bool, err error) {
	name := k.id.String()
	if s.isHeld(name) {
		return false, nil
	}
	switch _, err = removeSnapshot(s.dir, name, !k.pinned); {
	case errors.Is(err, ErrNoSnapshot):
		return true, nil
	case errors.Is(err, ErrInUse), errors.Is(err, errPinned):
		return false, nil
	}
	return err == nil, err
}
