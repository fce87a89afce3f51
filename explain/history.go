package explain

import "github.com/tailcam/tailcam/snapshot/trace"

// withoutRequest is why the history has no request of a block outlier.
func (w *walker) withoutRequest() string {
	m, o := w.m, w.outlier
	switch {
	case m.firstEventTime == 0:
		return "the trace is empty"
	case o.Start < m.coveredFrom:
		return reasonShort + ": it begins " + duration(int64(min(m.coveredFrom, o.End)-o.Start)) + " after the request"
	case m.recordsMissing(o.Start) || m.recordsMissing(o.End):
		return reasonOverwritten
	case !m.eventSeen[trace.BlockInsert] && !m.eventSeen[trace.BlockIssue] && !m.eventSeen[trace.BlockComplete]:
		return "the trace has no block request: the recorder's event group block is off"
	}
	return "the trace does not have its request"
}

// olderThanHistory reports whether a request began before the history does.
func (m *model) olderThanHistory(r *request) bool {
	return r.started() == 0 && m.firstEventTime > 0
}
