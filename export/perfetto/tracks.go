package perfetto

// Tracks have a number each: the kind in the highest byte, and below it what
// makes the track one of its kind.
type trackKind uint64

const (
	kindGroup trackKind = iota + 1
	kindThread
	kindOutlier // by number
	kindSlow    // by number: the same, beside its thread
	kindPath    // outlier << 8 | depth
	kindWakes   // by tid
	kindLock
	kindCompaction
	kindFault
	kindGuest
	kindCPUWakes // by CPU
	kindStolen
	kindTimer
	kindThrottled // cgroup << 16 | CPU
	kindDisk      // device << 16 | lane
	kindUnseen    // by CPU
	kindNames     // by tid
)

func (k trackKind) track(id uint64) uint64 { return uint64(k)<<56 | id&(1<<56-1) }

// Groups at the top of the page, in this order.
const (
	groupOutliers uint64 = iota + 1
	groupPath
	groupDisks
	groupCPU
)

var groupNames = map[uint64]string{
	groupOutliers: "Outliers", groupPath: "Critical paths", groupDisks: "Disks: requests from issue to completion",
	groupCPU: "CPUs: wake-ups, timers, throttling, stolen time",
}

const groupMine = 5 // the group of groups

// explicitOrder is TrackDescriptor.ChildTracksOrdering.
const explicitOrder = 3

// group declares a group, and the group above it, once.
func (w *Writer) group(id uint64) (uint64, error) {
	top, uuid := kindGroup.track(groupMine), kindGroup.track(id)
	if !w.tracks[top] {
		w.tracks[top] = true
		m := message{}.uint(1, top).text(2, "tailcam").int(11, explicitOrder).int(12, -1)
		if err := w.packet(packetTrack, 0, m); err != nil {
			return 0, err
		}
	}
	if !w.tracks[uuid] {
		w.tracks[uuid] = true
		m := message{}.uint(1, uuid).text(2, groupNames[id]).uint(5, top).int(12, int64(id))
		if err := w.packet(packetTrack, 0, m); err != nil {
			return 0, err
		}
	}
	return uuid, nil
}

// grouped declares a track of a group, once.
func (w *Writer) grouped(uuid, group uint64, name string) error {
	if w.tracks[uuid] {
		return nil
	}
	parent, err := w.group(group)
	if err != nil {
		return err
	}
	w.tracks[uuid] = true
	return w.packet(packetTrack, 0, message{}.uint(1, uuid).text(2, name).uint(5, parent))
}

// threaded declares a track that stands below a thread's, once.
func (w *Writer) threaded(uuid uint64, tid int, name string) error {
	if w.tracks[uuid] {
		return nil
	}
	parent := kindThread.track(uint64(tid))
	if !w.tracks[parent] {
		w.tracks[parent] = true
		t, ok := w.tasks[tid]
		if !ok {
			t.pid = tid
		}
		// Its name is in the tree of processes: one that stood here would hide later ones.
		thread := message{}.int(1, int64(t.pid)).int(2, int64(tid))
		if err := w.packet(packetTrack, 0, message{}.uint(1, parent).sub(4, thread)); err != nil {
			return err
		}
	}
	w.tracks[uuid] = true
	return w.packet(packetTrack, 0, message{}.uint(1, uuid).text(2, name).uint(5, parent))
}

// Types of TrackEvent.
const (
	sliceBegin = 1
	sliceEnd   = 2
	instant    = 3
)

// slice is one that begins, or an instant.
type slice struct {
	kind      uint64
	name      string
	from, to  []uint64 // arrows that begin and end here
	callstack uint64
	args      message // debug annotations, complete
}

func (w *Writer) begins(now, track uint64, s *slice) error {
	kind := s.kind
	if kind == 0 {
		kind = sliceBegin
		w.open[track]++
	}
	m := message{}.uint(9, kind).uint(11, track).text(22, "tailcam").text(23, s.name)
	for _, id := range s.from {
		m = m.fixed64(47, id)
	}
	for _, id := range s.to {
		m = m.fixed64(48, id)
	}
	if s.callstack != 0 {
		m = m.uint(56, s.callstack)
	}
	return w.packet(packetEvent, now, append(m, s.args...))
}

// ends ends the latest slice of a track, if there is one.
func (w *Writer) ends(now, track uint64) error {
	if w.open[track] == 0 {
		return nil
	}
	if w.open[track]--; w.open[track] == 0 {
		delete(w.open, track)
	}
	return w.packet(packetEvent, now, message{}.uint(9, sliceEnd).uint(11, track))
}

// arrow returns the number of a new arrow.
func (w *Writer) arrow() uint64 {
	w.flows++
	return w.flows
}

// textArg, intArg and listArg append an annotation of a slice.
func (m message) textArg(name, v string) message {
	if v == "" {
		return m
	}
	return m.sub(4, message{}.text(10, name).text(6, v))
}

func (m message) intArg(name string, v int64) message {
	return m.sub(4, message{}.text(10, name).int(4, v))
}

func (m message) listArg(name string, list []string) message {
	if len(list) == 0 {
		return m
	}
	a := message{}.text(10, name)
	for _, s := range list {
		a = a.sub(12, message{}.text(6, s))
	}
	return m.sub(4, a)
}
