package snapshot

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// index remembers what retention needs of each snapshot. An entry is read again when
// its directory has changed. The zero value is ready; safe for concurrent use.
type index struct {
	mu    sync.Mutex
	known map[string]indexed // by id; replaced, never changed
	turn  uint64             // of refresh
	// maxOld bounds the files of earlier releases that one call reads, 1 ms each and
	// more; what is left waits for the next. 0: all.
	maxOld int
}

// turns is how many calls of list with refresh measure everything once.
const turns = 10

type indexed struct {
	stamp  stamp
	bytes  uint64
	worth  []claim
	unread bool // worth is only in snapshot.json, which has not been read yet
	pinned bool
}

// stamp changes with the entries of a directory, its owner and its mode.
type stamp struct {
	dev, ino  uint64
	sec, nsec int64
	uid       uint32
}

func stampOf(path string) (stamp, bool) {
	st, err := os.Lstat(path)
	if err != nil {
		return stamp{}, false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}, false
	}
	return stamp{sys.Dev, sys.Ino, sys.Ctim.Sec, sys.Ctim.Nsec, sys.Uid}, true
}

// list returns the complete snapshots, oldest first, and their total size. It ignores
// everything else in the directory. Files may have grown unseen, so with refresh it
// measures one in ten anew, others each time. progress is called before each one that is
// read.
func (x *index) list(dir string, refresh bool, progress func(id string)) (all []storedSnapshot, total uint64, err error) {
	ids, err := listIDs(dir)
	if err != nil {
		return nil, 0, err
	}
	x.mu.Lock()
	known := x.known
	if refresh {
		x.turn++
	}
	turn := x.turn % turns
	x.mu.Unlock()
	old := 0
	next := make(map[string]indexed, len(ids))
	for _, id := range ids {
		name := id.String()
		path := filepath.Join(dir, name)
		now, ok := stampOf(path)
		e, have := known[name]
		if !have || !ok || e.stamp != now || refresh && id.Number%turns == turn {
			progress(name)
			bytes := diskBytes(path)
			if !have || !ok || e.stamp != now {
				e = indexed{stamp: now, pinned: isPinned(path, now.uid)}
				e.worth, ok = readWorth(path, now.uid)
				e.unread = !ok
			}
			e.bytes = bytes
		}
		if e.unread && (x.maxOld == 0 || old < x.maxOld) {
			old++
			progress(name)
			e.worth, e.unread = readOldWorth(path), false
		}
		next[name] = e
		total += e.bytes
		all = append(all, storedSnapshot{id: id, bytes: e.bytes, worth: e.worth, pinned: e.pinned})
	}
	x.mu.Lock()
	x.known = next
	x.mu.Unlock()
	return all, total, nil
}

// listSnapshots is index.list without memory.
func listSnapshots(dir string) (all []storedSnapshot, total uint64, err error) {
	return new(index).list(dir, false, func(string) {})
}
