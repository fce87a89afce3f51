package trace

import "io"

// writer turns streams into packets, one stream at a time.
type writer struct {
	uuid  [16]byte
	limit int
	names syscallNames

	out  io.Writer
	buf  []byte // the packet so far, its prefix unset
	pkt  packet
	last uint64 // time of the event before, or the packet's begin
}

// stream merges one CPU's records and marks. At equal times an outlier's
// entry comes before the records and its exit after them, because the same
// kernel event, with one reading of the clock, made both.
func (w *writer) stream(out io.Writer, s *stream) error {
	w.out = out
	w.pkt = packet{begin: s.begin, cpu: uint32(s.cpu)}
	w.last = s.begin
	w.buf = append(w.buf[:0], make([]byte, packetPrefix)...)
	if s.discarded > 0 {
		// Readers compare the count with the packet before: an empty first
		// one makes them see the loss.
		if err := w.flush(s.begin); err != nil {
			return err
		}
		w.pkt.discarded = s.discarded
	}
	marks := s.marks
	for i := range s.records {
		r := &s.records[i]
		if !r.known() {
			continue
		}
		now := r.Time()
		for len(marks) > 0 && (marks[0].time < now || marks[0].time == now && !marks[0].exit) {
			if err := w.mark(marks[0]); err != nil {
				return err
			}
			marks = marks[1:]
		}
		if err := w.record(r); err != nil {
			return err
		}
	}
	for _, m := range marks {
		if err := w.mark(m); err != nil {
			return err
		}
	}
	if len(w.buf) == packetPrefix && w.pkt.seq > 0 && w.pkt.discarded == 0 {
		return nil // the last event filled its packet
	}
	return w.flush(s.end)
}

func (w *writer) record(r *Record) error {
	t, now := r.Type(), r.Time()
	id := uint16(t)
	if t == SyscallEntry || t == SyscallExit {
		if nr := r.u32(offSyscallNR); w.names.has(nr) {
			id = syscallID(t, nr)
		}
	}
	w.buf = appendHeader(w.buf, id, w.last, now, r.TID())
	w.buf = appendFields(w.buf, classes[t].fields, r)
	return w.wrote(now)
}

func (w *writer) mark(m mark) error {
	t := OutlierEntry
	if m.exit {
		t = OutlierExit
	}
	o := m.outlier
	w.buf = appendHeader(w.buf, uint16(t), w.last, m.time, o.TID)
	w.buf = appendMarker(w.buf, &Marker{
		Rule: o.Rule, Track: o.Track, DelayNS: o.DelayNS, PID: o.PID, Comm: MakeComm(o.Comm), Outlier: o.Number,
	}, o.TID)
	return w.wrote(m.time)
}

// wrote ends the packet if the event at now filled it.
func (w *writer) wrote(now uint64) error {
	w.last = now
	if len(w.buf) < w.limit {
		return nil
	}
	return w.flush(now)
}

// flush writes the packet and begins the next one where it ended.
func (w *writer) flush(end uint64) error {
	w.pkt.end = end
	w.pkt.size = uint64(len(w.buf))
	w.pkt.put(w.buf, &w.uuid)
	if _, err := w.out.Write(w.buf); err != nil {
		return err
	}
	w.buf = w.buf[:packetPrefix]
	w.pkt.begin = end
	w.pkt.seq++
	return nil
}

// syscallNames remembers the names of the calls that the trace has.
type syscallNames struct {
	ask   func(nr int) string
	asked [namedSyscalls]bool
	known map[uint32]string
}

// has tells whether the call has a name and so event ids of its own.
func (n *syscallNames) has(nr uint32) bool {
	if n.ask == nil || nr >= namedSyscalls {
		return false
	}
	if !n.asked[nr] {
		n.asked[nr] = true
		if name := n.ask(int(nr)); identifier(name) && name != "unknown" {
			if n.known == nil {
				n.known = make(map[uint32]string)
			}
			n.known[nr] = name
		}
	}
	return n.known[nr] != ""
}
