package trace

import (
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/tailcam/tailcam/bpf/abi"
)

// writer turns streams into packets, one stream at a time.
type writer struct {
	uuid  [16]byte
	limit int
	names syscallNames
	zip   *zstd.Encoder // of compressed streams
	total uint64        // bytes of all streams so far, uncompressed

	out  io.Writer
	buf  []byte // the packet so far, its prefix unset
	pkt  packet
	last uint64 // time of the event before, or the packet's begin
}

// stream merges one CPU's records and extras. At equal times an outlier's
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
	extras := s.extras
	for i := range s.records {
		r := &s.records[i]
		if !r.known() {
			continue
		}
		now := r.Time()
		for len(extras) > 0 && extras[0].before(now) {
			if err := w.extra(&extras[0]); err != nil {
				return err
			}
			extras = extras[1:]
		}
		if err := w.record(r); err != nil {
			return err
		}
	}
	for i := range extras {
		if err := w.extra(&extras[i]); err != nil {
			return err
		}
	}
	if len(w.buf) == packetPrefix && w.pkt.seq > 0 && w.pkt.discarded == 0 {
		return nil // the last event filled its packet
	}
	return w.flush(s.end)
}

// compressed is stream into a compressed file.
func (w *writer) compressed(out io.Writer, s *stream) error {
	f := frameWriter{zip: w.zip, out: out}
	if err := w.stream(&f, s); err != nil {
		return err
	}
	return f.end()
}

func (w *writer) record(r *Record) error {
	t, now := r.Type(), r.Time()
	id, fields := uint16(t), classes[t].fields
	if t == SyscallEntry || t == SyscallExit {
		nr := r.u32(abi.OffSyscallNr)
		if call := w.names.get(nr); call != nil {
			id, fields = syscallID(t, nr), call.entry
			if t == SyscallExit {
				fields = call.exit
			}
		}
	}
	if (t == ReclaimBegin || t == ReclaimEnd) && r.u32(abi.OffReclaimKind) != 0 {
		id += memcgID
	}
	w.buf = appendHeader(w.buf, id, w.last, now, r.TID())
	w.buf = appendFields(w.buf, fields, r)
	return w.wrote(now)
}

func (w *writer) extra(e *extra) error {
	w.buf = appendHeader(w.buf, uint16(e.typ), w.last, e.time, e.tid)
	w.buf = appendValues(w.buf, classes[e.typ].fields, &e.values)
	return w.wrote(e.time)
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
	w.total += w.pkt.size
	if _, err := w.out.Write(w.buf); err != nil {
		return err
	}
	w.buf = w.buf[:packetPrefix]
	w.pkt.begin = end
	w.pkt.seq++
	return nil
}
