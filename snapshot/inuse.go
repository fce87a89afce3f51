package snapshot

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// hold protects a snapshot in use. Other processes see the lock on its directory; if it
// cannot be taken, this process still honors the hold.
type hold struct {
	count int
	lock  *os.File // nil: not taken
}

// Hold protects a snapshot from retention, and from Remove in any process, until the
// returned function is called. Calling it twice is fine.
func (s *Store) Hold(id string) (release func()) { return s.hold(id, s.Path(id)) }

// hold is Hold for a snapshot that is at path for now.
func (s *Store) hold(id, path string) (release func()) {
	s.mu.Lock()
	h := s.held[id]
	if h == nil {
		h = &hold{}
		s.held[id] = h
	}
	h.count++
	lack := h.lock == nil
	s.mu.Unlock()
	if lack {
		lock, _ := lockSnapshot(path, unix.LOCK_SH) // disk access: not under s.mu
		s.mu.Lock()
		if h.lock == nil && h.count > 0 {
			h.lock, lock = lock, nil
		}
		s.mu.Unlock()
		if lock != nil {
			_ = lock.Close()
		}
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.count--; h.count > 0 {
			return
		}
		delete(s.held, id)
		if h.lock != nil {
			_ = h.lock.Close()
		}
	})
}

// lockSnapshot locks a snapshot's directory without waiting. It does not follow
// symlinks.
func lockSnapshot(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = flock(f, how)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
