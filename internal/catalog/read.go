// Package catalog reads the snapshots on disk, all of them at once: what each
// holds, whether it is whole, what its outliers came from, and how two compare.
// It needs no daemon, trusts no file of a snapshot, and changes nothing.
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

// Snapshot is one snapshot in short.
type Snapshot struct {
	snapshot.Info
	Short string `json:"short"` // what of the id no other one of the directory begins with
	// Task, Verdict and Blame are of the slowest outlier; empty: there is none,
	// or it is not explained.
	Task    *events.Task `json:"task,omitempty"`
	Verdict string       `json:"verdict,omitempty"`
	Blame   *Part        `json:"blame,omitempty"`
	// Unexplained says why there is no verdict.
	Unexplained string `json:"unexplained,omitempty"`

	outliers []outlier
	results  []Result
	boot     string
}

// outlier is what Top needs of one.
type outlier struct {
	time       time.Time
	rule       string
	track      string
	key        string
	delay      int64
	task       events.Task
	start, end uint64
}

// Options of Read. The zero value reads all.
type Options struct {
	IDs      []string  // nil: all
	Since    time.Time // older ones are left out; zero: none is
	Progress func(done, all int)
}

// slack is how much later than a snapshot's own time its outliers may be.
const slack = 10 * time.Minute

// Read reads the snapshots of a directory, oldest first, and tells of those
// that cannot be read. Those that vanish meanwhile are left out.
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
			a.err = fmt.Errorf("read snapshot: %s says that it is %q", snapshot.MetaFile, a.s.ID)
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

// each calls work for 0 to n-1 on as many CPUs as there are, but not too many.
func each(n int, progress func(done, all int), work func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), 8, n)
	next, done := 0, 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
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
		}()
	}
	wg.Wait()
}

// readOne reads one snapshot's directory, whatever that is called.
func readOne(dir string) (Snapshot, error) {
	m, err := snapshot.ReadMeta(dir)
	if err != nil {
		return Snapshot{}, err
	}
	results, err := readResults(dir)
	if err == nil && len(results) == 0 && len(m.Outliers) > 0 {
		err = ErrNotExplained // the daemon could not
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

// slowest is the index of the slowest outlier, or -1.
func (s *Snapshot) slowest() int {
	best := -1
	for i := range s.outliers {
		if best < 0 || s.outliers[i].delay > s.outliers[best].delay {
			best = i
		}
	}
	return best
}

// ByHand tells whether somebody asked for it, and no rule.
func (s *Snapshot) ByHand() bool { return s.Outliers == 0 && s.DelayNS == 0 }
