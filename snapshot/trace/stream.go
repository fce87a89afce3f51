package trace

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tailcam/tailcam/bpf/abi"
)

const (
	streamBuffer = 16 << 10
	// maxEvent holds the largest event: a marker with two full texts, and room
	// for what later releases may have.
	maxEvent = 4 << 10
)

// streamReader reads one CPU's stream file.
type streamReader struct {
	file *os.File     // nil in tests
	zip  *frameReader // nil: not compressed
	in   *bufio.Reader
	meta *meta
	cpu  int

	memory *memoryStream // has the events instead of a file

	pkt     packet
	packets uint64
	left    uint64 // bytes of the packet not yet read
	pos     uint64 // in the stream
	last    uint64 // time reached
	event   Event  // what next found
}

// openStream opens a stream's file. z decompresses it if its name says that it has to be;
// nil: the metadata does not say how much that makes, and it is refused.
func openStream(path string, m *meta, cpu int, z *unzip) (*streamReader, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	var in io.Reader = f
	var zip *frameReader
	if strings.HasSuffix(path, compressedExt) {
		if z == nil {
			_ = f.Close()
			return nil, fmt.Errorf("%w: %s is compressed, and the metadata does not say so", ErrDamaged, path)
		}
		zip = newFrameReader(f, z)
		in = zip
	}
	s := newStreamReader(in, m, cpu)
	s.file, s.zip = f, zip
	return s, nil
}

func newStreamReader(in io.Reader, m *meta, cpu int) *streamReader {
	return &streamReader{in: bufio.NewReaderSize(in, streamBuffer), meta: m, cpu: cpu}
}

// next reads the next event into s.event. It returns io.EOF after the last
// one; any other error is final too, and what it says of damage is where
// s.pos points. Events of later releases are passed over.
func (s *streamReader) next() error {
	if s.memory != nil {
		var ok bool
		if s.event, ok = s.memory.next(s.cpu); !ok {
			return io.EOF
		}
		return nil
	}
	for {
		for s.left == 0 {
			if err := s.nextPacket(); err != nil {
				return err
			}
		}
		b, err := s.in.Peek(int(min(s.left, maxEvent)))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		n, known, err := s.decode(b)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		s.skip(n)
		if known {
			return nil
		}
	}
}

func (s *streamReader) skip(n int) {
	_, _ = s.in.Discard(n) // what was peeked: cannot fail
	s.left -= uint64(n)
	s.pos += uint64(n)
}

func (s *streamReader) nextPacket() error {
	b, err := s.in.Peek(packetPrefix)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(b) == 0 && s.packets > 0 {
		return io.EOF
	}
	if len(b) < packetPrefix {
		return fmt.Errorf("%w: %w in a packet's header", ErrDamaged, io.ErrUnexpectedEOF)
	}
	var p packet
	if err := p.parse(b, &s.meta.uuid); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	switch {
	case p.seq != s.packets:
		return fmt.Errorf("%w: packet %d where %d should be", ErrDamaged, p.seq, s.packets)
	case int(p.cpu) != s.cpu:
		return fmt.Errorf("%w: packet of CPU %d", ErrDamaged, p.cpu)
	case p.begin < s.last || p.discarded < s.pkt.discarded:
		return fmt.Errorf("%w: packet %d goes back in time", ErrDamaged, p.seq)
	}
	s.pkt, s.left, s.last = p, p.size, p.begin
	s.packets++
	s.skip(packetPrefix)
	return nil
}

var errEventShort = errors.New("an event goes past its packet")

// decode decodes the event at the start of b, which holds all that is left of
// the packet, or of the file, or maxEvent bytes.
func (s *streamReader) decode(b []byte) (n int, known bool, err error) {
	short := errEventShort
	if uint64(len(b)) < min(s.left, maxEvent) {
		short = fmt.Errorf("%w in an event", io.ErrUnexpectedEOF)
	}
	id, now, tid, n, ok := readHeader(b, s.last)
	if !ok && len(b) < longHeader {
		return 0, false, short
	}
	if !ok || now > s.pkt.end {
		return 0, false, errors.New("an event's time is not within its packet")
	}
	d := s.meta.events[id]
	if d == nil {
		return 0, false, fmt.Errorf("unknown event %d", id)
	}
	body := b[n:]
	if !d.typ.ofRecord() {
		var v values
		used, ok := readValues(body, d.fields, &v)
		if !ok {
			return 0, false, short
		}
		s.event, s.last = Event{Time: now, CPU: s.cpu, Type: d.typ, TID: tid, Body: v.body(d.typ)}, now
		return n + used, d.typ != 0, nil
	}
	r := MakeRecord(d.typ, s.cpu, tid, now)
	if d.call != "" {
		binary.LittleEndian.PutUint32(r[abi.OffSyscallNr:], d.nr)
	}
	used, ok := readFields(body, d.fields, &r)
	if !ok {
		return 0, false, short
	}
	ev, err := r.Decode()
	if err != nil {
		return 0, false, err
	}
	if call, ok := ev.Body.(Syscall); ok && d.call != "" {
		call.Name = d.call
		ev.Body = call
	}
	s.event, s.last = ev, now
	return n + used, true, nil
}
