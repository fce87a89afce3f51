package snapshot

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// hold is a snapshot in use. The lock on its directory is what other processes
// see of it; where it cannot be had, retention still knows.
type hold struct {
	count int
	lock  *os.File // or nil
}

// Hold protects a snapshot from retention, and from Remove in any process,
// until the returned function is called, which may happen more than once.
func (s *Store) Hold(id string) (release func()) { return s.hold(id, s.Path(id)) }

// hold is Hold of what is at path still.
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
		lock, _ := lockSnapshot(path, unix.LOCK_SH) // asks the disk: not under s.mu
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

// lockSnapshot locks the directory of a snapshot without waiting. It follows
// no link.
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
