package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse means that an action works in a snapshot, or that it has just been
// written.
var ErrInUse = errors.New("the snapshot is in use")

// Remove removes a snapshot, which must be named by its whole id, and returns
// how many bytes that freed. It takes it out of sight first, so that a crash in
// between leaves no half one. It never leaves the directory, and follows no
// link in it. Any process may call it, while a daemon runs or not; ErrInUse if
// a Store holds it, ErrNoSnapshot if there is none.
func Remove(dir, id string) (freed uint64, err error) {
	if parsed, err := ParseID(id); err != nil || parsed.String() != id {
		return 0, fmt.Errorf("remove snapshot: %q is no id of a snapshot", id)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	defer func() { _ = root.Close() }()
	path := filepath.Join(dir, id)
	lock, err := lockSnapshot(path, unix.LOCK_EX)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("remove snapshot: %w: %s", ErrNoSnapshot, id)
	case errors.Is(err, unix.EWOULDBLOCK):
		return 0, fmt.Errorf("remove snapshot %s: %w: try again when its actions have ended", id, ErrInUse)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return 0, fmt.Errorf("remove snapshot: %s is not a directory, so it is no snapshot: remove it by hand", path)
	case err != nil:
		return 0, fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	defer lock.Close()
	freed = diskBytes(path)
	gone := tmpPrefix + gonePrefix + id
	switch err := root.Rename(id, gone); {
	case errors.Is(err, fs.ErrNotExist): // another one was faster
		return 0, fmt.Errorf("remove snapshot: %w: %s", ErrNoSnapshot, id)
	case err != nil:
		return 0, fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	if err := root.RemoveAll(gone); err != nil {
		return 0, fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	return freed, nil
}

// Pruned is one snapshot that a policy does not keep.
type Pruned struct {
	ID    string
	Bytes uint64
	Limit string // by which it goes: age, count or bytes
	Err   error  // why it stays nevertheless: ErrInUse, or what went wrong
}

// Prune removes what a policy does not keep, the oldest first by their numbers;
// with dry it only says what it would remove. What is in use stays, and is told.
// Unlike a Store's, its ages are those of the times in the names: whoever prunes
// by hand goes by what `list` shows. A snapshot from the future has no age.
func Prune(dir string, keep Retention, now time.Time, dry bool) ([]Pruned, error) {
	all, total, err := listSnapshots(dir)
	if err != nil {
		return nil, fmt.Errorf("prune snapshots: %w", err)
	}
	p := newPolicy(keep, len(all), total)
	var out []Pruned
	for i := range all {
		k := &all[i]
		k.age = now.Sub(k.id.Time)
		why := p.exceeded(k)
		if why == "" {
			continue
		}
		one := Pruned{ID: k.id.String(), Bytes: k.bytes, Limit: why}
		if !dry {
			_, one.Err = Remove(dir, one.ID)
		}
		if errors.Is(one.Err, ErrNoSnapshot) { // retention was faster
			one.Err = nil
		}
		if one.Err == nil {
			p.removed(k)
		}
		out = append(out, one)
	}
	return out, nil
}
