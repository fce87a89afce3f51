package snapshot

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// Explanation explains a snapshot's outliers.
type Explanation struct {
	JSON     any                // content of explain.json
	Notes    []string           // caveats for the reader
	Outliers []ExplainedOutlier // in the order of Meta.Outliers
}

// ExplainedOutlier is the explanation of one outlier.
type ExplainedOutlier struct {
	*events.Explained
	Text string // for people; the first line is the verdict
}

// explain explains the outliers of a snapshot and adds the verdicts to them. An error
// is noted in the snapshot.
func (m *Manager) explain(events *trace.Reader, meta *Meta, names func() *Names) *Explanation {
	none := &Explanation{JSON: map[string]any{"version": 1, "outliers": []any{}}}
	if m.opts.Explain == nil {
		return none
	}
	var e *Explanation
	err := m.opts.Guard.Mapped(guard.Explain, func() (err error) {
		e, err = m.opts.Explain(events, meta, names)
		return err
	})
	if err != nil {
		m.log.Warn("snapshot not explained", zap.String("snapshot", meta.ID), zap.Error(err))
		meta.Notes = append(meta.Notes, fmt.Sprintf("not explained: %v", err))
		return none
	}
	for i := range min(len(e.Outliers), len(meta.Outliers)) {
		meta.Outliers[i].Explained = e.Outliers[i].Explained
	}
	meta.Notes = append(meta.Notes, e.Notes...)
	return e
}
