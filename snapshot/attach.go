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

// dirID identifies a directory independent of its path.
type dirID struct{ dev, ino uint64 }

// String returns the format that the command line compares.
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

// lockDir locks a directory against other daemons, with a read-only descriptor where
// the file system allows that, so that it can be remounted read-only.
func lockDir(dir string, log *zap.Logger) (*os.File, error) {
	f, err := lockfile.Take(filepath.Join(dir, lockFile), &lockfile.Options{
		Mode: fileMode, ReadOnly: true,
		TakenOver: func(pid int) {
			log.Warn("taking over the snapshot directory of a killed daemon that cannot exit", zap.Int("pid", pid), zap.String("dir", dir))
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

// statDir identifies a directory and its lock file; lock is zero if there is none.
func statDir(dir string) (id, lock dirID, err error) {
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

// attach makes sure that the store's directory is the one it has locked. A directory
// that was removed, replaced or mounted over is created, locked and used from now on;
// ErrLocked if another daemon uses it. Requires s.dirMu.
func (s *Store) attach() error {
	var id, lock dirID
	err := s.Run("check the directory", func() (err error) {
		id, lock, err = statDir(s.dir)
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
		_ = s.lock.Close() // of the replaced directory
		s.lock = nil
	}
	err = s.Run("create the directory", func() error {
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
	// The descriptor must belong to the process, not to the thread. The file system has
	// just responded, so this does not hang.
	f, err := lockDir(s.dir, s.log)
	if err != nil {
		return err
	}
	locked := fileID(f) // before Run: the thread has its own descriptor table
	err = s.Run("read the directory", func() error {
		if s.id, s.lockID, err = statDir(s.dir); err != nil {
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

// resume restores numbering and elapsed time from the directory.
func (s *Store) resume() error {
	names, err := dirNames(s.dir)
	if err != nil {
		return err
	}
	st, err := loadState(s.dir)
	if err != nil {
		s.log.Warn("snapshot state lost: existing snapshots count as taken now", zap.Error(err))
	}
	highest := uint64(0)
	for _, name := range names {
		if id, err := ParseID(name); err == nil && id.Number <= maxNumber {
			highest = max(highest, id.Number)
		}
	}
	st.advance(s.uptime)
	if n := len(st.Marks); n == 0 || st.Marks[n-1].Number < highest {
		// Age unknown: count them as new.
		st.Marks = append(st.Marks, mark{max(highest, st.Number), st.ElapsedNS})
	}
	s.raiseNumber(max(highest, st.Number))
	s.state = *st
	s.saveState(true)
	return nil
}

// raiseNumber makes sure that new numbers are above n.
func (s *Store) raiseNumber(n uint64) {
	for {
		now := s.number.Load()
		if now >= n || s.number.CompareAndSwap(now, n) {
			return
		}
	}
}

// saveState updates the state and saves it if more numbers must be reserved or the last
// save was long ago. Errors are logged.
func (s *Store) saveState(now bool) {
	st := &s.state
	given := s.number.Load()
	before := st.ElapsedNS
	st.advance(s.uptime)
	s.unsaved += st.ElapsedNS - before
	s.mu.Lock()
	age := s.keep.Age
	s.mu.Unlock()
	st.addMark(given, age)
	if !now && given+reservedNumbers/2 <= st.Number && s.unsaved < int64(saveInterval) {
		return
	}
	st.Number = given + reservedNumbers
	if s.closing {
		st.Number = given
	}
	s.unsaved = 0
	if err := st.save(s.dir); err != nil {
		s.storeErrors.error(s.log, s.now(), "cannot save the snapshot state: a restart may reuse numbers", zap.Error(err))
	}
}

// isTemporary reports whether a name is a temporary one of this package.
func isTemporary(name string) bool {
	rest, ok := strings.CutPrefix(name, tmpPrefix)
	if !ok {
		return false
	}
	_, err := ParseID(strings.TrimPrefix(rest, gonePrefix))
	return err == nil
}

// sweep removes leftovers of crashes and failed removals. What cannot be removed is
// tried again next time.
func (s *Store) sweep() {
	names, err := dirNames(s.dir)
	if err != nil {
		return // other operations report the error
	}
	s.forgetRemoved()
	for _, name := range names {
		if !isTemporary(name) || s.isDraft(strings.TrimPrefix(name, tmpPrefix)) || s.isUnremovable(name) {
			continue
		}
		s.setStep("remove " + name)
		if err := removeBelow(s.dir, name); err != nil {
			s.markUnremovable(name, err)
			continue
		}
		s.clearUnremovable(name)
		s.log.Info("removed an incomplete snapshot", zap.String("name", name))
	}
}

// removeBelow removes an entry of dir without following symlinks.
func removeBelow(dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(root.RemoveAll(name), root.Close())
}
