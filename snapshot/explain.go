package snapshot

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/tracker/events"
)

// Explanation says where the time of a snapshot's outliers went.
type Explanation struct {
	JSON     any                // explain.json
	Notes    []string           // what the reader must know before trusting it
	Outliers []ExplainedOutlier // in the order of Meta.Outliers
}

// ExplainedOutlier is the explanation of one outlier.
type ExplainedOutlier struct {
	*events.Explained
	Text string // for people: the verdict in the first line
}

// explain explains the outliers of a snapshot by its trace, and lets them carry
// their verdicts. That it could not is noted, and costs the snapshot nothing else.
func (m *Manager) explain(traceDir string, meta *Meta, names *Names) *Explanation {
	none := &Explanation{JSON: map[string]any{"version": 1, "outliers": []any{}}}
	if m.opts.Explain == nil {
		return none
	}
	var e *Explanation
	err := m.opts.Guard.Mapped(guard.Explain, func() (err error) {
		e, err = m.opts.Explain(traceDir, meta, names)
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
