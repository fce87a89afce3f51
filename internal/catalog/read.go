// Package catalog reads and compares snapshots on disk: lists, details, checksums, top
// culprits, differences. It needs no daemon, treats snapshots as untrusted, and changes
// nothing.
package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// Snapshot is the summary of a snapshot.
type Snapshot struct {
	snapshot.Info
	Short string `json:"short"` // shortest unique prefix of the id
	// Task, Verdict and Blame belong to the slowest outlier; empty if there is none or
	// it is not explained.
	Task    *events.Task `json:"task,omitempty"`
	Verdict string       `json:"verdict,omitempty"`
	Blame   *Part        `json:"blame,omitempty"`
	// Unexplained is why there is no verdict.
	Unexplained string `json:"unexplained,omitempty"`

	outliers []outlier
	results  []Result
	boot     string
}

// outlier is the part of an outlier that NewTop needs.
type outlier struct {
	time       time.Time
	rule       string
	track      string
	key        string
	delay      int64
	task       events.Task
	start, end uint64
	activity   string // of its thread: its name; empty: unknown
	about      string // its text
}

// Options configures Read. The zero value reads everything.
type Options struct {
	IDs      []string  // nil: all
	Since    time.Time // skip older ones; zero: none
	Progress func(done, all int)
}

// slack is how much later than the snapshot its outliers may be.
const slack = 10 * time.Minute

// Read returns the snapshots of a directory, oldest first, and the broken ones. Those
// that vanish meanwhile are skipped.
func Read(dir string, o Options) ([]Snapshot, []snapshot.Broken, error) {
	all, err := snapshot.IDs(dir)
	if err != nil {
		return nil, nil, err
	}
	ids, short := all, snapshot.Short(all)
	if o.IDs != nil {
		ids = o.IDs
	}
	if !o.Since.IsZero() {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			parsed, err := snapshot.ParseID(id)
			return err == nil && parsed.Time.Add(slack).Before(o.Since)
		})
	}
	shorts := map[string]string{}
	for i, id := range all {
		shorts[id] = short[i]
	}
	type answer struct {
		s   Snapshot
		err error
	}
	answers := make([]answer, len(ids))
	each(len(ids), o.Progress, func(i int) {
		a := &answers[i]
		if a.s, a.err = readOne(filepath.Join(dir, ids[i])); a.err == nil && a.s.ID != ids[i] {
			a.err = fmt.Errorf("read snapshot: %s has the id %q", snapshot.MetaFile, a.s.ID)
		}
	})
	out := []Snapshot{}
	var broken []snapshot.Broken
	for i := range answers {
		a := &answers[i]
		if a.err != nil {
			if _, gone := os.Lstat(filepath.Join(dir, ids[i])); !errors.Is(gone, fs.ErrNotExist) {
				broken = append(broken, snapshot.Broken{ID: ids[i], Err: a.err})
			}
			continue
		}
		a.s.Short = shorts[ids[i]]
		out = append(out, a.s)
	}
	return out, broken, nil
}

// each calls work for 0 to n-1 in parallel.
func each(n int, progress func(done, all int), work func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), 8, n)
	next, done := 0, 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return
				}
				work(i)
				mu.Lock()
				done++
				if progress != nil {
					progress(done, n)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// readOne reads the snapshot in a directory of any name.
func readOne(dir string) (Snapshot, error) {
	m, err := snapshot.ReadMeta(dir)
	if err != nil {
		return Snapshot{}, err
	}
	results, err := readResults(dir)
	if err == nil && len(results) == 0 && len(m.Outliers) > 0 {
		err = ErrNotExplained // the daemon failed to explain it
	}
	s := Snapshot{Info: snapshot.InfoOf(m, dir), boot: m.Host.BootID}
	if err != nil {
		s.Unexplained = err.Error()
	}
	for i := range m.Outliers {
		s.outliers = append(s.outliers, outlierOf(&m.Outliers[i]))
	}
	if n := len(results); err == nil && n != len(m.Outliers) {
		s.Unexplained = fmt.Sprintf("%s has %d outliers, %s %d", snapshot.ExplainJSONFile, n, snapshot.MetaFile, len(m.Outliers))
		results = nil
	}
	s.results = results
	if slowest := s.slowest(); slowest >= 0 {
		s.Task = &m.Outliers[slowest].Task
		if slowest < len(results) {
			s.Verdict, s.Blame = results[slowest].Verdict, results[slowest].culprit()
		}
	}
	return s, nil
}

// slowest returns the index of the slowest outlier, or -1.
func (s *Snapshot) slowest() int {
	best := -1
	for i := range s.outliers {
		if best < 0 || s.outliers[i].delay > s.outliers[best].delay {
			best = i
		}
	}
	return best
}

// ByHand reports whether the snapshot was requested manually, not by a rule.
func (s *Snapshot) ByHand() bool { return s.Outliers == 0 && s.DelayNS == 0 }
