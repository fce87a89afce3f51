package trace

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
)

// maxCopied bounds a packet of a copy, and with it the copier's memory.
const maxCopied = 4 << 20

// Span is a stretch of CLOCK_MONOTONIC in nanoseconds, both ends included.
type Span struct{ From, To uint64 }

// Always is the span that leaves nothing out.
var Always = Span{0, math.MaxUint64}

// Has tells whether a time is within the span.
func (s Span) Has(now uint64) bool { return s.From <= now && now <= s.To }

// CopyOptions may be nil.
type CopyOptions struct {
	// Span narrows the copy to the events within; zero: Always.
	Span Span
	// Read is called now and then with how many bytes of the source were read.
	Read func(bytes uint64)
	// Rename, if set, gives every name in the copy; events and fields of later releases
	// lose their contents.
	Rename Renamer
}

// Copy copies the trace in src to dst, which it creates, and both have their files
// in a directory "kernel". The copy is never compressed. It goes event by event: what is
// damaged is an error that wraps ErrDamaged. It holds a
// packet in memory, 4 MiB at most. Without a span and other names the copy has the same bytes,
// uncompressed; with them it is another trace, with an id of its own, and a state dump from
// before the span stands at its begin, without what tasks were doing then. After an error what was
// written remains. It returns how many events were copied.
func Copy(ctx context.Context, dst, src string, opts *CopyOptions) (events uint64, err error) {
	if opts == nil {
		opts = &CopyOptions{}
	}
	c := copier{ctx: ctx, span: opts.Span, read: opts.Read, rename: opts.Rename}
	if c.span == (Span{}) {
		c.span = Always
	}
	src = filesOf(src)
	m, text, err := readMetadata(filepath.Join(src, "metadata"))
	if err != nil {
		return 0, fmt.Errorf("read trace: %w", err)
	}
	text = plainMetadata(text, m)
	if c.zip, err = m.unzip(); err != nil {
		return 0, fmt.Errorf("read trace: %w", err)
	}
	defer c.zip.close()
	c.uuid = m.uuid
	if c.span != Always || c.rename != nil {
		_, _ = rand.Read(c.uuid[:]) // never fails
		c.uuid[6], c.uuid[8] = c.uuid[6]&0x0f|0x40, c.uuid[8]&0x3f|0x80
		text = bytes.Replace(text, []byte(formatUUID(m.uuid)), []byte(formatUUID(c.uuid)), 1)
	}
	if c.rename != nil {
		text = c.rename.metadata(text, &m.env)
	}
	names, err := streamFiles(src)
	if err != nil {
		return 0, fmt.Errorf("read trace: %w", err)
	}
	files := filepath.Join(dst, kernelDir)
	for _, d := range []string{dst, files} {
		if err := os.Mkdir(d, 0o750); err != nil {
			return 0, fmt.Errorf("create trace directory: %w", err)
		}
	}
	for cpu, name := range names {
		if err := c.file(filepath.Join(files, streamPrefix+strconv.Itoa(cpu)), filepath.Join(src, name), m, cpu); err != nil {
			return c.events, fmt.Errorf("copy trace of CPU %d: %w", cpu, err)
		}
	}
	err = create(filepath.Join(files, "metadata"), func(f *os.File) error {
		_, err := f.Write(text)
		return err
	})
	return c.events, err
}

// PlainBytes returns how large the streams of a trace are, in bytes, where Copy has written
// them: not compressed.
func PlainBytes(dir string) (total int64, err error) {
	dir = filesOf(dir)
	m, _, err := readMetadata(filepath.Join(dir, "metadata"))
	if err != nil {
		return 0, fmt.Errorf("read trace: %w", err)
	}
	if m.bytes > 0 {
		return int64(min(m.bytes, math.MaxInt64)), nil
	}
	names, err := streamFiles(dir)
	if err != nil {
		return 0, fmt.Errorf("read trace: %w", err)
	}
	for _, name := range names {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return 0, fmt.Errorf("read trace: %w", err)
		}
		total += st.Size()
	}
	return total, nil
}

// copier copies one stream after the other.
type copier struct {
	ctx     context.Context
	span    Span
	uuid    [16]byte
	read    func(uint64)
	done    uint64 // bytes of the streams before
	rename  Renamer
	events  uint64
	scratch []byte // an event with other names
	zip     *unzip // nil: the source is not compressed

	out  io.Writer
	pkt  packet
	buf  []byte // the packet so far
	last uint64
	dump dumpCopy
}

func (c *copier) file(to, from string, m *meta, cpu int) error {
	s, err := openStream(from, m, cpu, c.zip)
	if err != nil {
		return err
	}
	defer func() { _ = s.file.Close() }()
	return create(to, func(f *os.File) error {
		w := bufio.NewWriterSize(f, 64<<10)
		c.out = w
		if err := c.stream(s); err != nil {
			return fmt.Errorf("at byte %d: %w", s.pos, err)
		}
		c.done += s.pos
		return w.Flush()
	})
}

func (c *copier) stream(s *streamReader) error {
	c.pkt, c.dump = packet{cpu: uint32(s.cpu)}, dumpCopy{}
	for sought := false; ; {
		err := s.nextPacket()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if c.read != nil {
			c.read(c.done + s.pos)
		}
		early := s.pkt.end < c.span.From
		if err := c.packet(s); err != nil {
			return err
		}
		if early && c.dump.done && !sought {
			sought = true
			if err := s.seek(c.span.From); err != nil {
				return err
			}
		}
		if s.pkt.begin > c.span.To && s.zip != nil {
			break // later packets are, too
		}
	}
	if c.pkt.seq > 0 {
		return nil
	}
	c.begin(c.span.From) // a stream has a packet at least
	c.carried()
	return c.flush(c.span.From)
}

// packet copies the packet that s has come to.
func (c *copier) packet(s *streamReader) error {
	early := s.pkt.end < c.span.From
	for early && s.left > 0 && !c.dump.done {
		if _, err := c.next(s); err != nil {
			return err
		}
	}
	if early || s.pkt.begin > c.span.To {
		n := s.left
		if got, err := io.CopyN(io.Discard, s.in, int64(n)); err != nil {
			return fmt.Errorf("%w: %w after %d bytes of a packet", ErrDamaged, io.ErrUnexpectedEOF, got)
		}
		s.left, s.pos, s.last = 0, s.pos+n, s.pkt.end
		return nil
	}
	begin := max(s.pkt.begin, c.span.From)
	if c.pkt.seq == 0 && s.pkt.discarded > 0 {
		c.begin(begin) // as writer.stream does: a first packet shows no loss
		if err := c.flush(begin); err != nil {
			return err
		}
	}
	c.pkt.discarded = s.pkt.discarded
	c.begin(begin)
	for s.left > 0 {
		copied, err := c.next(s)
		if err != nil {
			return err
		}
		if copied && len(c.buf) >= maxCopied {
			if err := c.flush(c.last); err != nil {
				return err
			}
			c.begin(c.last)
		}
	}
	c.carried()
	return c.flush(max(c.last, min(s.pkt.end, c.span.To)))
}

// next reads the next event, and copies it if it is within the span.
func (c *copier) next(s *streamReader) (copied bool, err error) {
	b, err := s.in.Peek(int(min(s.left, maxEvent)))
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	n, known, err := s.decode(b)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	defer s.skip(n)
	switch {
	case s.last < c.span.From:
		c.events += c.dump.see(b[:n], s.meta, known, s.event.Type)
		return false, nil
	case !c.span.Has(s.last):
		return false, nil
	}
	if c.rename != nil {
		if b, n = c.renamed(b[:n], known, s.meta); n == 0 {
			return false, nil
		}
	}
	c.carried()
	c.event(b[:n], s.last)
	if known {
		c.events++
	}
	return true, nil
}

// renamed returns the event with other names, and its length; 0: it is of a later release.
func (c *copier) renamed(b []byte, known bool, m *meta) ([]byte, int) {
	if !known {
		return nil, 0
	}
	id, _, _, n, _ := readHeader(b, 0)
	c.scratch = c.rename.rename(append(c.scratch[:0], b[:n]...), b[n:], m.events[id])
	return c.scratch, len(c.scratch)
}

// carried writes the state dump from before the span, once.
func (c *copier) carried() {
	for _, b := range c.dump.events {
		c.event(b, c.last)
	}
	c.dump.events = nil
}

// event copies the event at now, with a header for where it stands now.
func (c *copier) event(b []byte, now uint64) {
	id, body, tid := uint32(b[0])|uint32(b[1])<<8, shortHeader, 0
	if id == extendedEventID {
		id, body = uint32(b[2])|uint32(b[3])<<8, longHeader
	}
	for i := range 4 {
		tid |= int(b[body-4+i]) << (8 * i)
	}
	c.buf = appendHeader(c.buf, uint16(id), c.last, now, tid)
	c.buf = append(c.buf, b[body:]...)
	c.last = now
}

// dumpCopy holds the state dump that a stream begins with: its first events.
type dumpCopy struct {
	events [][]byte
	size   int
	done   bool // it has ended, or is too large, or there is none
}

// see takes in one event before the span. It returns how many it keeps.
func (d *dumpCopy) see(b []byte, m *meta, known bool, t Type) uint64 {
	if d.done || !known || t < DumpStart || t > DumpEnd || len(d.events) == 0 && t != DumpStart {
		d.done = d.done || known
		return 0
	}
	d.size += len(b)
	d.done = t == DumpEnd || d.size > maxCopied
	b = bytes.Clone(b)
	id, _, _, n, _ := readHeader(b, 0)
	for i := range m.events[id].fields {
		f := &m.events[id].fields[i]
		v, size, ok := f.take(b[n:])
		if !ok {
			break
		}
		if t == DumpTask && f.kind == kS32 && f.off == valStatus {
			clear(v) // long ago: not known now
		}
		n += size
	}
	d.events = append(d.events, b)
	return 1
}

func (c *copier) begin(now uint64) {
	c.pkt.begin, c.last = now, now
	c.buf = append(c.buf[:0], make([]byte, packetPrefix)...)
}

func (c *copier) flush(end uint64) error {
	c.pkt.end, c.pkt.size = end, uint64(len(c.buf))
	c.pkt.put(c.buf, &c.uuid)
	c.pkt.seq++
	_, err := c.out.Write(c.buf)
	return err
}
