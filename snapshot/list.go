package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tailcam/tailcam/snapshot/iothread"
)

// Info is one line of `tailcam list snapshots`.
type Info struct {
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Rule     string    `json:"rule"`
	Reason   string    `json:"reason"`
	Outliers int       `json:"outliers"`
	DelayNS  int64     `json:"delay_ns"` // of the slowest one
	Bytes    uint64    `json:"bytes"`    // on the disk
	Notes    int       `json:"notes"`
	Dir      string    `json:"dir"`
}

// Broken is a directory that has a snapshot's name, but is none.
type Broken struct {
	ID  string
	Err error
}

// List returns the complete snapshots of a directory, oldest first, and those
// that cannot be read. It needs no lock and no daemon.
func List(dir string) ([]Info, []Broken, error) {
	all, _, err := listSnapshots(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("list snapshots: %w", err)
	}
	infos := []Info{}
	var broken []Broken
	for _, k := range all {
		path := filepath.Join(dir, k.id.String())
		m, err := ReadMeta(path)
		if err == nil && m.ID != k.id.String() {
			err = fmt.Errorf("read snapshot: %s says that it is %q", MetaFile, m.ID)
		}
		if err != nil {
			if _, gone := os.Lstat(path); os.IsNotExist(gone) {
				continue // removed by retention meanwhile
			}
			broken = append(broken, Broken{ID: k.id.String(), Err: err})
			continue
		}
		infos = append(infos, infoOf(m, path, k.bytes))
	}
	return infos, broken, nil
}

// InfoOf sums up a snapshot whose snapshot.json has been read.
func InfoOf(m *Meta, dir string) Info { return infoOf(m, dir, diskBytes(dir)) }

func infoOf(m *Meta, dir string, bytes uint64) Info {
	var delay int64
	for i := range m.Outliers {
		delay = max(delay, m.Outliers[i].DelayNS)
	}
	return Info{
		DelayNS: delay,
		ID:      m.ID, Time: m.Time, Rule: m.Rule, Reason: m.Reason,
		Outliers: len(m.Outliers), Bytes: bytes, Notes: len(m.Notes), Dir: dir,
	}
}

// List returns the complete snapshots, oldest first, and the broken ones. If the
// disk does not answer, iothread.ErrTimeout.
func (s *Store) List() ([]Info, []Broken, error) {
	type list struct {
		infos  []Info
		broken []Broken
	}
	l, err := query(s, listLimit, func() (list, error) {
		infos, broken, err := List(s.dir)
		return list{infos, broken}, err
	})
	return l.infos, l.broken, err
}

// Usage sums up a directory of snapshots.
type Usage struct {
	Count int
	Bytes uint64 // on the disk
	Last  string // id of the newest; "": there is none
	DirID string // device and inode of the directory, as the daemon sees it
}

// How long a question may wait for the disk.
const (
	listLimit  = 20 * time.Second
	usageLimit = 500 * time.Millisecond
)

// Usage sums up the snapshots. It reads no file of theirs, so it takes no
// longer than their number asks for; if the disk does not answer soon, it returns
// iothread.ErrTimeout, and what it was the last time.
func (s *Store) Usage() (Usage, error) {
	u, err := query(s, usageLimit, func() (Usage, error) {
		id, _, err := statDir(s.dir)
		if err != nil {
			return Usage{}, fmt.Errorf("list snapshots: %w", err)
		}
		all, bytes, err := listSnapshots(s.dir)
		if err != nil {
			return Usage{}, fmt.Errorf("list snapshots: %w", err)
		}
		u := Usage{Count: len(all), Bytes: bytes, DirID: id.String()}
		if len(all) > 0 {
			u.Last = all[len(all)-1].id.String()
		}
		s.mu.Lock()
		s.usage = u
		s.mu.Unlock()
		return u, nil
	})
	if errors.Is(err, iothread.ErrTimeout) {
		s.mu.Lock()
		u = s.usage
		s.mu.Unlock()
	}
	return u, err
}

// query lets a thread of its own answer a question about the disk. Those that hang
// are bounded.
func query[T any](s *Store, limit time.Duration, f func() (T, error)) (T, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case s.queries <- struct{}{}:
	case <-timer.C:
		var none T
		return none, iothread.ErrTimeout
	}
	return iothread.Do(limit, func() (T, error) {
		defer func() { <-s.queries }()
		return f()
	})
}
