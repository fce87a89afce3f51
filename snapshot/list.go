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
	DelayNS  int64     `json:"delay_ns"` // of the slowest outlier
	Bytes    uint64    `json:"bytes"`    // on the disk
	Notes    int       `json:"notes"`
	Dir      string    `json:"dir"`
}

// Broken is a directory with the name of a snapshot that cannot be read as one.
type Broken struct {
	ID  string
	Err error
}

// List returns the readable and the broken snapshots of a directory, oldest first. It
// needs no lock and no daemon.
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
			err = fmt.Errorf("read snapshot: %s has the id %q", MetaFile, m.ID)
		}
		if err != nil {
			if _, gone := os.Lstat(path); os.IsNotExist(gone) {
				continue // removed meanwhile
			}
			broken = append(broken, Broken{ID: k.id.String(), Err: err})
			continue
		}
		infos = append(infos, infoOf(m, path, k.bytes))
	}
	return infos, broken, nil
}

// InfoOf returns the Info of the snapshot in dir.
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

// List returns the readable and the broken snapshots, oldest first, or
// iothread.ErrTimeout if the disk does not respond.
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

// Usage is the disk usage of a store.
type Usage struct {
	Count int
	Bytes uint64 // on the disk
	Last  string // id of the newest snapshot, or ""
	DirID string // device and inode of the directory
}

// Time limits of disk queries.
const (
	listLimit  = 20 * time.Second
	usageLimit = 500 * time.Millisecond
)

// Usage returns the disk usage. It opens no snapshot. If the disk does not respond it
// returns the last known usage and iothread.ErrTimeout.
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

// query runs f on a thread of its own. The number of queries that hang is bounded.
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
