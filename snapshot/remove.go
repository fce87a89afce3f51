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

// ErrInUse means that an action uses the snapshot, or that it was written just now.
var ErrInUse = errors.New("the snapshot is in use")

// Remove removes the snapshot with the full id given and returns the bytes freed. It
// renames it first, so that a crash leaves no partial snapshot. It follows no symlinks
// and never leaves dir. Any process may call it, also while a daemon runs. It returns
// ErrInUse if a Store holds the snapshot, ErrNoSnapshot if it does not exist.
func Remove(dir, id string) (freed uint64, err error) { return removeSnapshot(dir, id, false) }

// removeSnapshot is Remove; with sparePinned it returns errPinned if the snapshot is
// pinned, which nobody can change meanwhile.
func removeSnapshot(dir, id string, sparePinned bool) (freed uint64, err error) {
	if parsed, err := ParseID(id); err != nil || parsed.String() != id {
		return 0, fmt.Errorf("remove snapshot: invalid snapshot id %q", id)
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
		return 0, fmt.Errorf("remove snapshot: %s is not a directory: remove it by hand", path)
	case err != nil:
		return 0, fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	defer lock.Close()
	if sparePinned && isPinned(path, fileOwner(lock)) {
		return 0, fmt.Errorf("remove snapshot %s: %w", id, errPinned)
	}
	freed = diskBytes(path)
	gone := tmpPrefix + gonePrefix + id
	switch err := root.Rename(id, gone); {
	case errors.Is(err, fs.ErrNotExist): // removed concurrently
		return 0, fmt.Errorf("remove snapshot: %w: %s", ErrNoSnapshot, id)
	case err != nil:
		return 0, fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	if err := root.RemoveAll(gone); err != nil {
		return 0, fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	return freed, nil
}

// Pruned is a snapshot that the policy does not keep.
type Pruned struct {
	ID    string
	Bytes uint64
	Limit string // limit exceeded: age, count or bytes
	Err   error  // why it was not removed: ErrInUse or another error
}

// Left is what Prune leaves.
type Left struct {
	Count  int
	Bytes  uint64
	Pinned int
}

// Prune removes the snapshots that a policy does not keep, in the order of a Store; with
// dry it only lists them. Pinned ones stay, whatever the limits. Unlike a Store, which
// measures elapsed time, it uses the times in the names, as shown by `list`. Snapshots
// dated in the future have no age.
func Prune(dir string, keep Retention, now time.Time, dry bool) ([]Pruned, Left, error) {
	all, _, err := listSnapshots(dir)
	if err != nil {
		return nil, Left{}, fmt.Errorf("prune snapshots: %w", err)
	}
	left := Left{}
	for i := range all {
		all[i].age = now.Sub(all[i].id.Time)
		if all[i].pinned {
			left.Pinned++
		}
	}
	p := newPlan(all, keep, true)
	var out []Pruned
	for k, why := p.next(); k != nil; k, why = p.next() {
		one := Pruned{ID: k.id.String(), Bytes: k.bytes, Limit: why}
		if !dry {
			_, one.Err = removeSnapshot(dir, one.ID, true)
		}
		switch {
		case errors.Is(one.Err, ErrNoSnapshot): // removed by retention meanwhile
			one.Err = nil
		case errors.Is(one.Err, errPinned):
			left.Pinned++
			continue
		}
		if one.Err == nil {
			p.removed(k)
		}
		out = append(out, one)
	}
	left.Count, left.Bytes = p.count, p.total
	return out, left, nil
}

// WhyKept returns why each snapshot is kept, by id; see Info.Kept. It needs no daemon.
func WhyKept(dir string, keep Retention) (map[string]string, error) {
	all, _, err := listSnapshots(dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	newPlan(all, Retention{Count: keep.Count, Bytes: keep.Bytes, Worst: keep.Worst}, false)
	why := make(map[string]string, len(all))
	for i := range all {
		why[all[i].id.String()] = all[i].kept
	}
	return why, nil
}
