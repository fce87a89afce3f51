package demo

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// Result is what became of one latency. The JSON form is stable; fields are
// only added.
type Result struct {
	Track      string  `json:"track"`
	InjectedNS int64   `json:"injected_ns"` // by the injector's own clock; 0: the injection failed
	ReportedNS *int64  `json:"reported_ns"` // null: it was not reported
	Snapshot   *string `json:"snapshot"`    // directory, or null
	Error      string  `json:"error,omitempty"`
	Title      string  `json:"title"`
	Rule       string  `json:"rule"`
	Events     uint64  `json:"events"`     // in the snapshot's trace
	HistoryNS  int64   `json:"history_ns"` // before the entry, on the CPU that has the least
	CPUs       int     `json:"cpus"`       // in the snapshot
	Verdict    string  `json:"verdict,omitempty"`
	// Notes are the snapshot's own: what its reader must know.
	Notes []string `json:"notes,omitempty"`

	Injected *inject.Truth   `json:"injected,omitempty"`
	Outlier  *events.Outlier `json:"outlier,omitempty"`
}

// compare reports an error if the reported delay is not the injected one.
func (r *Result) compare() error {
	off := time.Duration(*r.ReportedNS - r.InjectedNS).Abs()
	if allowed := time.Duration(r.InjectedNS/5) + 2*time.Millisecond; off > allowed {
		return fmt.Errorf("the reported delay differs from the injected one by %v, more than %v", off, allowed)
	}
	return nil
}

// readBack reads the snapshot as anyone would, and checks that what it is
// about is in it.
func (r *Result) readBack(dir string) error {
	m, err := snapshot.ReadMeta(dir)
	if err != nil {
		return err
	}
	why, _, err := catalog.Explain(dir)
	if err != nil {
		return err
	}
	for i := range why.Outliers {
		if w := &why.Outliers[i]; w.Task.TID == r.Outlier.Task.TID && w.EndMonoNS == r.Outlier.EndMono {
			r.Verdict = w.Verdict
		}
	}
	if r.Verdict == "" {
		return errors.New("the snapshot has no verdict on this outlier")
	}
	r.Notes = m.Notes
	r.CPUs = len(m.Coverage)
	for i, c := range m.Coverage {
		before := int64(r.Outlier.StartMono) - int64(c.FromMonoNS)
		if i == 0 || before < r.HistoryNS {
			r.HistoryNS = max(before, 0)
		}
	}
	t, err := trace.Read(filepath.Join(dir, snapshot.TraceDir))
	if err != nil {
		return err
	}
	defer t.Close() //nolint:errcheck // only read
	var began, ended bool
	for {
		e, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		r.Events++
		if e.TID != r.Outlier.Task.TID {
			continue
		}
		began = began || e.Type == trace.OutlierEntry && e.Time == r.Outlier.StartMono
		ended = ended || e.Type == trace.OutlierExit && e.Time == r.Outlier.EndMono
	}
	if !began || !ended {
		return fmt.Errorf("the snapshot's trace lacks the outlier's entry (found: %t) or exit (found: %t)", began, ended)
	}
	return nil
}
