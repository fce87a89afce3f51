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
	Pinned   bool      `json:"pinned"`
	// Kept is what keeps it from being removed before others: pinned, worst, newest,
	// culprit, or recent. Empty if not known.
	Kept string `json:"kept,omitempty"`
}

// Broken is a directory with the name of a snapshot that cannot be read as one.
type Broken struct {
	ID  string
	Err error
}

// List returns the readable and the broken snapshots of a directory, oldest first. It
// needs no lock and no daemon.
func List(dir string) ([]Info, []Broken, error) {
	return listInfos(dir, Retention{Worst: DefaultWorst})
}

func listInfos(dir string, keep Retention) ([]Info, []Broken, error) {
	all, _, err := listSnapshots(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("list snapshots: %w", err)
	}
	newPlan(all, Retention{Count: keep.Count, Bytes: keep.Bytes, Worst: keep.Worst}, false)
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
		info := infoOf(m, path, k.bytes)
		info.Pinned, info.Kept = k.pinned, k.kept
		infos = append(infos, info)
	}
	return infos, broken, nil
}

// InfoOf returns the Info of the snapshot in dir.
func InfoOf(m *Meta, dir string) Info {
	info := infoOf(m, dir, diskBytes(dir))
	info.Pinned = IsPinned(dir)
	return info
}

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
		infos, broken, err := listInfos(s.dir, s.Retention())
		return list{infos, broken}, err
	})
	return l.infos, l.broken, err
}

// Usage is the disk usage of a store.
type Usage struct {
	Count  int
	Bytes  uint64 // on the disk
	Pinned int
	Last   string // id of the newest snapshot, or ""
	DirID  string // device and inode of the directory
}

// Time limits of disk queries.
const (
	listLimit  = 20 * time.Second
	usageLimit = 500 * time.Millisecond
)

// Usage returns the disk usage; files that grow unseen count within ten minutes. If the
// disk does not respond it returns the last known usage and iothread.ErrTimeout.
func (s *Store) Usage() (Usage, error) {
	u, err := query(s, usageLimit, func() (Usage, error) {
		id, _, err := statDir(s.dir)
		if err != nil {
			return Usage{}, fmt.Errorf("list snapshots: %w", err)
		}
		all, bytes, err := s.index.list(s.dir, false, func(string) {})
		if err != nil {
			return Usage{}, fmt.Errorf("list snapshots: %w", err)
		}
		u := Usage{Count: len(all), Bytes: bytes, DirID: id.String()}
		for i := range all {
			if all[i].pinned {
				u.Pinned++
			}
		}
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
