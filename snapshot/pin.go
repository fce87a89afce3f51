package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/term"
)

// PinFile marks a snapshot that retention keeps. It is empty.
const PinFile = "pinned"

var (
	// ErrPinLimit means that pinned snapshots would take more than they may.
	ErrPinLimit = errors.New("too many snapshots are pinned")
	// errPinned means that a snapshot was pinned after its removal was decided.
	errPinned = errors.New("the snapshot was pinned")
)

// Pin keeps the snapshot with the full id given from retention. Pinned snapshots may
// take half of keep.Count and half of keep.Bytes; Pin returns ErrPinLimit if they would
// take more, ErrNoSnapshot if there is no such snapshot, and ErrInUse if it is being
// removed. The mark is on disk when it returns. Any process may call it; pinning twice
// is fine.
func Pin(dir, id string, keep Retention) error {
	lock, err := lockToPin(dir, id)
	if err != nil {
		return fmt.Errorf("pin snapshot: %w", err)
	}
	defer lock.Close()
	all, _, err := listSnapshots(dir)
	if err != nil {
		return fmt.Errorf("pin snapshot: %w", err)
	}
	i := slices.IndexFunc(all, func(k storedSnapshot) bool { return k.id.String() == id })
	if i < 0 {
		return fmt.Errorf("pin snapshot: %w: %s", ErrNoSnapshot, id)
	}
	if all[i].pinned {
		return nil
	}
	all[i].pinned = true
	if err := checkPins(all, keep); err != nil {
		return fmt.Errorf("pin snapshot %s: %w", id, err)
	}
	fd, err := unix.Openat(int(lock.Fd()), PinFile, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, fileMode)
	if errors.Is(err, unix.EEXIST) && isPinned(filepath.Join(dir, id), fileOwner(lock)) {
		return nil // by another process, meanwhile
	}
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("pin snapshot %s: another user's file is in the way: remove %s", id, filepath.Join(dir, id, PinFile))
	}
	if err != nil {
		return fmt.Errorf("pin snapshot %s: %w", id, &os.PathError{Op: "create", Path: filepath.Join(dir, id, PinFile), Err: err})
	}
	err = unix.Fsync(fd)
	if err = errors.Join(err, unix.Close(fd), unix.Fsync(int(lock.Fd()))); err != nil {
		return fmt.Errorf("pin snapshot %s: %w", id, err)
	}
	return nil
}

// Unpin undoes Pin. A snapshot that is not pinned stays as it is.
func Unpin(dir, id string) error {
	lock, err := lockToPin(dir, id)
	if err != nil {
		return fmt.Errorf("unpin snapshot: %w", err)
	}
	defer lock.Close()
	err = unix.Unlinkat(int(lock.Fd()), PinFile, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		err = unix.Fsync(int(lock.Fd()))
	}
	if err != nil {
		return fmt.Errorf("unpin snapshot %s: %w", id, &os.PathError{Op: "remove", Path: filepath.Join(dir, id, PinFile), Err: err})
	}
	return nil
}

// lockToPin keeps a snapshot from being removed; the lock is its open directory.
func lockToPin(dir, id string) (*os.File, error) {
	if parsed, err := ParseID(id); err != nil || parsed.String() != id {
		return nil, fmt.Errorf("invalid snapshot id %q", id)
	}
	lock, err := lockSnapshot(filepath.Join(dir, id), unix.LOCK_SH)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s", ErrNoSnapshot, id)
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("%s: %w: it is being removed", id, ErrInUse)
	case err != nil:
		return nil, err
	}
	return lock, nil
}

// checkPins returns ErrPinLimit if the pinned ones take more than they may.
func checkPins(all []storedSnapshot, keep Retention) error {
	count, bytes := 0, uint64(0)
	for i := range all {
		if all[i].pinned {
			count++
			bytes += all[i].bytes
		}
	}
	switch {
	case keep.Count > 0 && count > keep.Count/2:
		return fmt.Errorf("%w: at most %d may be, half of snapshots.keep.count: unpin others, or raise it", ErrPinLimit, keep.Count/2)
	case keep.Bytes > 0 && bytes > keep.Bytes/2:
		return fmt.Errorf("%w: they would take %s and may take %s, half of snapshots.keep.bytes: unpin others, or raise it",
			ErrPinLimit, term.Bytes(bytes), term.Bytes(keep.Bytes/2))
	}
	return nil
}

// IsPinned reports whether the snapshot in dir is pinned.
func IsPinned(dir string) bool {
	f, err := openDir(dir, unix.O_NOFOLLOW)
	if err != nil {
		return false
	}
	defer f.Close()
	return isPinned(dir, fileOwner(f))
}

// isPinned is IsPinned for a directory of that owner. Files of other users, such as
// those of actions, pin nothing.
func isPinned(dir string, owner uint32) bool {
	st, err := os.Lstat(filepath.Join(dir, PinFile))
	return err == nil && ownedBy(st, owner)
}

func fileOwner(f *os.File) uint32 {
	var st unix.Stat_t
	_ = unix.Fstat(int(f.Fd()), &st) // 0, root, if it fails
	return st.Uid
}
