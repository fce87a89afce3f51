package catalog

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/snapshot"
)

// Details is everything known about one snapshot except its events.
type Details struct {
	Snapshot Snapshot       `json:"snapshot"`
	Meta     *snapshot.Meta `json:"meta"`
	// Report is explain.json; nil: not explained.
	Report *explain.Report `json:"explanation"`
	Files  []File          `json:"files"`
	// Before and After are the neighbors in time; nil: none.
	Before *Snapshot `json:"before"`
	After  *Snapshot `json:"after"`
}

// File is a file or directory in a snapshot, with its total size.
type File = snapshot.File

// ReadDetails reads one snapshot and the summaries of its neighbors.
func ReadDetails(dir string) (*Details, error) {
	one, err := readOne(dir)
	if err != nil {
		return nil, err
	}
	m, err := snapshot.ReadMeta(dir)
	if err != nil {
		return nil, err
	}
	s := &Details{Snapshot: one, Meta: m, Files: files(dir)}
	s.Snapshot.Short = one.ID
	if s.Report, err = ReadReport(dir); err != nil && !errors.Is(err, ErrNotExplained) {
		s.Snapshot.Unexplained = err.Error()
	}
	s.neighbours(filepath.Dir(dir))
	return s, nil
}

// neighbours sets Before and After to the nearest readable snapshots.
func (s *Details) neighbours(storeDir string) {
	ids, err := snapshot.IDs(storeDir)
	at := slices.Index(ids, s.Snapshot.ID)
	if err != nil || at < 0 {
		return // a copied snapshot has no neighbors
	}
	short := snapshot.Short(ids)
	s.Snapshot.Short = short[at]
	look := func(i, step int) *Snapshot {
		for tries := 0; i >= 0 && i < len(ids) && tries < 8; i, tries = i+step, tries+1 {
			if one, err := readOne(filepath.Join(storeDir, ids[i])); err == nil {
				one.Short = short[i]
				return &one
			}
		}
		return nil
	}
	s.Before, s.After = look(at-1, -1), look(at+1, 1)
}

// files lists a snapshot's files and marks a truncated list.
func files(dir string) []File {
	out, more := snapshot.Files(dir)
	if more {
		out = append(out, File{Name: "… and more"})
	}
	if out == nil {
		out = []File{}
	}
	return out
}
