package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/dirs"
	"github.com/tailcam/tailcam/internal/lockfile"
)

// dirID tells directories apart, whatever their path is.
type dirID struct{ dev, ino uint64 }

// String is as the command line compares it.
func (d dirID) String() string { return fmt.Sprintf("%d:%d", d.dev, d.ino) }

// openLock opens the lock file of a directory, and makes it.
func openLock(dir string, how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), how|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, fileMode)
	if err != nil {
		return nil, fmt.Errorf("open its lock: %w", err)
	}
	return f, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// lockDir locks a directory against other daemons, for reading where that will do,
// so that the file system can be remounted read-only.
func lockDir(dir string, log *zap.Logger) (*os.File, error) {
	f, err := lockfile.Take(filepath.Join(dir, lockFile), &lockfile.Options{
		Mode: fileMode, ReadOnly: true,
		TakenOver: func(pid int) {
			log.Warn("an earlier tailcam was killed and cannot end: its directory is taken", zap.Int("pid", pid), zap.String("dir", dir))
		},
	})
	var held *lockfile.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("%w: stop it, or set another snapshots.dir (%s)", ErrLocked, dir)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// lookAt returns which directory dir leads to, and which file is its lock; zero:
// there is none.
func lookAt(dir string) (id, lock dirID, err error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return dirID{}, dirID{}, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	id = dirID{st.Dev, st.Ino}
	if err := unix.Lstat(filepath.Join(dir, lockFile), &st); err == nil {
		lock = dirID{st.Dev, st.Ino}
	}
	return id, lock, nil
}

func fileID(f *os.File) dirID {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return dirID{}
	}
	return dirID{st.Dev, st.Ino}
}

// attach makes sure that the directory is still the one that the store has
// locked. One that was removed, replaced or mounted over is made, locked and used
// from here on, unless another daemon has it: then ErrLocked. Under s.writing.
func (s *Store) attach() error {
	var id, lock dirID
	err := s.Run("look at the directory", func() (err error) {
		id, lock, err = lookAt(s.dir)
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err == nil && s.lock != nil && id == s.id && lock == s.lockID {
		return nil
	}
	if s.lock != nil {
		s.log.Warn("the snapshot directory was removed or replaced", zap.String("dir", s.dir))
		s.replaced.Add(1)
		_ = s.lock.Close() // of a directory that is no longer used
		s.lock = nil
	}
	err = s.Run("make the directory", func() error {
		if _, err := dirs.Make(s.dir, storeMode); err != nil {
			return err
		}
		f, err := openLock(s.dir, os.O_RDONLY)
		if err != nil {
			return err
		}
		return f.Close()
	})
	if err != nil {
		return err
	}
	// The lock must be a descriptor of the process, so it is not opened by the
	// thread; but the file system has just answered.
	f, err := lockDir(s.dir, s.log)
	if err != nil {
		return err
	}
	locked := fileID(f) // a descriptor of the process: the thread has it not
	err = s.Run("read the directory", func() error {
		if s.id, s.lockID, err = lookAt(s.dir); err != nil {
			return err
		}
		if s.lockID != locked {
			return fmt.Errorf("%s is being replaced: try again", s.dir)
		}
		return s.resume()
	})
	if err != nil {
		_ = f.Close()
		return err
	}
	s.lock = f
	return nil
}

// resume continues the numbers and the time of the directory.
func (s *Store) resume() error {
	names, err := dirNames(s.dir)
	if err != nil {
		return err
	}
	st, err := loadState(s.dir)
	if err != nil {
		s.log.Warn("the store's memory is begun anew: the snapshots that are there count as taken now", zap.Error(err))
	}
	highest := uint64(0)
	for _, name := range names {
		if id, err := ParseID(name); err == nil && id.Number <= maxNumber {
			highest = max(highest, id.Number)
		}
	}
	st.advance(s.uptime)
	if n := len(st.Marks); n == 0 || st.Marks[n-1].Number < highest {
		// How old these are is not known: they are taken for new.
		st.Marks = append(st.Marks, mark{max(highest, st.Number), st.ElapsedNS})
	}
	s.raiseNumber(max(highest, st.Number))
	s.state = *st
	s.saveState(true)
	return nil
}

// raiseNumber goes on with numbers above n.
func (s *Store) raiseNumber(n uint64) {
	for {
		now := s.number.Load()
		if now >= n || s.number.CompareAndSwap(now, n) {
			return
		}
	}
}

// saveState brings the state up to date and onto the disk, if numbers must be
// reserved or it was long ago. That it cannot costs no snapshot.
func (s *Store) saveState(now bool) {
	st := &s.state
	given := s.number.Load()
	before := st.ElapsedNS
	st.advance(s.uptime)
	s.unsaved += st.ElapsedNS - before
	s.mu.Lock()
	age := s.keep.Age
	s.mu.Unlock()
	st.note(given, age)
	if !now && given+reserve/2 <= st.Number && s.unsaved < int64(saveEvery) {
		return
	}
	st.Number = given + reserve
	if s.closing {
		st.Number = given
	}
	s.unsaved = 0
	if err := st.save(s.dir); err != nil {
		s.trouble.error(s.log, s.now(), "cannot save the store's memory; a restart may use numbers again", zap.Error(err))
	}
}

// leftover tells our own temporary names from other programs'.
func leftover(name string) bool {
	rest, ok := strings.CutPrefix(name, tmpPrefix)
	if !ok {
		return false
	}
	_, err := ParseID(strings.TrimPrefix(rest, gonePrefix))
	return err == nil
}

// sweep removes what crashed runs and failed removals left behind. What cannot
// be removed stays until the next time.
func (s *Store) sweep() {
	names, err := dirNames(s.dir)
	if err != nil {
		return // whoever needs the directory says so
	}
	s.forgetStuck()
	for _, name := range names {
		if !leftover(name) || s.isPending(strings.TrimPrefix(name, tmpPrefix)) || s.isStuck(name) {
			continue
		}
		s.progress("remove " + name)
		if err := removeBelow(s.dir, name); err != nil {
			s.cannotRemove(name, err)
			continue
		}
		s.removable(name)
		s.log.Info("removed what was left of a snapshot", zap.String("name", name))
	}
}

// removeBelow removes what has that name in dir, and follows no link.
func removeBelow(dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(root.RemoveAll(name), root.Close())
}
