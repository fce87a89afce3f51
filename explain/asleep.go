package explain

import "github.com/tailcam/tailcam/snapshot/trace"

// assumeAsleep gives the target of a trigger that was asleep then, and of which the
// history has no event, the one state that explains both: it has slept all the time. It
// is asked before anything is explained.
func (m *model) assumeAsleep(o *Outlier) {
	from := max(o.Start, m.coveredFrom)
	if !o.Asleep || m.tasks[o.TID] != nil || from >= o.End || !m.eventSeen[trace.SchedSwitch] {
		return
	}
	for _, list := range m.names.Covered { // with a gap, its events may be missing
		if len(list) != 1 || list[0].From > from || list[0].To < o.End {
			return
		}
	}
	t := m.task(o.TID)
	t.pid = o.PID
	t.segments = append(t.segments, segment{from: from, to: max(m.to, o.End), state: blocked, call: int16(o.Call), assumed: true})
}
