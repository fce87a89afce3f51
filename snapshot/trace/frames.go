package trace

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// A compressed stream is a file in the seekable format of zstd: one frame a packet, then a
// skippable frame with the sizes of all. `zstd -d` makes the stream of it.
// https://github.com/facebook/zstd/blob/dev/contrib/seekable_format/zstd_seekable_compression_format.md
const (
	compressedExt = ".zst"

	seekTableFrame  = 0x184d2a5e // a skippable frame
	seekTableMagic  = 0x8f92eab1
	seekEntry       = 4 + 4     // compressed and decompressed size
	seekFooter      = 4 + 1 + 4 // number of frames, descriptor, magic
	skippableHeader = 4 + 4

	// compressedPacket is where a packet of a compressed stream ends, in bytes: with the
	// event that passes it, a frame has one block.
	compressedPacket = 128<<10 - maxEvent
	// maxFrame bounds a frame, and with it the memory of who reads it.
	maxFrame = 4 << 20
	// maxTrace bounds what the compressed streams of a trace have in all, as its metadata
	// declares it. A few bytes can be frames without number.
	maxTrace = 4 << 30
)

// frameWriter compresses a stream whose packets are written one at a time.
type frameWriter struct {
	zip   *zstd.Encoder
	out   io.Writer
	frame []byte
	table []byte // entries of the seek table
}

// newFrameEncoder makes what may serve several frameWriters, one after the other.
func newFrameEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(compressedPacket+maxEvent),
		zstd.WithSingleSegment(true),        // which says how large each frame is
		zstd.WithNoEntropyCompression(true)) // of what matches nothing: a quarter of the time for a fiftieth of the bytes
}

// Write writes a packet as a frame.
func (w *frameWriter) Write(packet []byte) (int, error) {
	if len(packet) > maxFrame {
		return 0, fmt.Errorf("compress trace: packet of %d bytes", len(packet))
	}
	w.frame = w.zip.EncodeAll(packet, w.frame[:0])
	w.table = binary.LittleEndian.AppendUint32(w.table, uint32(len(w.frame)))
	w.table = binary.LittleEndian.AppendUint32(w.table, uint32(len(packet)))
	if _, err := w.out.Write(w.frame); err != nil {
		return 0, err
	}
	return len(packet), nil
}

// end writes the seek table.
func (w *frameWriter) end() error {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, seekTableFrame)
	b = le.AppendUint32(b, uint32(len(w.table)+seekFooter))
	b = append(b, w.table...)
	b = le.AppendUint32(b, uint32(len(w.table)/seekEntry))
	b = append(b, 0) // no checksums: the frames have their own
	_, err := w.out.Write(le.AppendUint32(b, seekTableMagic))
	return err
}

// unzip decompresses the frames of all streams of a trace, one at a time.
type unzip struct {
	dec   *zstd.Decoder
	frame []byte
	left  uint64 // bytes that the trace may still have
}

// unzip is for the trace that m describes; nil: it is not compressed.
func (m *meta) unzip() (*unzip, error) {
	if m.bytes == 0 {
		return nil, nil
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxFrame))
	if err != nil {
		return nil, fmt.Errorf("decompress trace: %w", err)
	}
	return &unzip{dec: dec, left: m.bytes}, nil
}

func (z *unzip) close() {
	if z != nil {
		z.dec.Close()
	}
}

// frameReader reads a compressed stream. What it returns io.EOF for has ended with a seek
// table; any other end is damage.
type frameReader struct {
	*unzip
	in  *bufio.Reader
	buf []byte // the frame
	pos int    // read of it
}

func newFrameReader(in io.Reader, z *unzip) *frameReader {
	return &frameReader{unzip: z, in: bufio.NewReaderSize(in, streamBuffer)}
}

// reset reads another stream, or the same one from elsewhere.
func (r *frameReader) reset(in io.Reader) {
	r.in.Reset(in)
	r.buf, r.pos = r.buf[:0], 0
}

// Read implements io.Reader.
func (r *frameReader) Read(b []byte) (int, error) {
	for r.pos == len(r.buf) {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.buf[r.pos:])
	r.pos += n
	return n, nil
}

var (
	errFrameLarge = fmt.Errorf("%w: a frame of more than %d bytes, or of unknown size; zstd -d may decompress the file", ErrDamaged, maxFrame)
	errFrameTotal = fmt.Errorf("%w: more bytes than the metadata declares", ErrDamaged)
	errFrameShort = fmt.Errorf("%w: %w in a frame", ErrDamaged, io.ErrUnexpectedEOF)
)

// next decompresses the next frame.
func (r *frameReader) next() error {
	r.buf, r.pos = r.buf[:0], 0
	head, err := r.in.Peek(zstd.HeaderMaxSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var h zstd.Header
	if err := h.Decode(head); errors.Is(err, io.ErrUnexpectedEOF) {
		return errFrameShort
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	switch {
	case h.Skippable && binary.LittleEndian.Uint32(head) == seekTableFrame:
		return io.EOF
	case h.Skippable, h.DictionaryID != 0:
		return fmt.Errorf("%w: a frame that tailcam does not write", ErrDamaged)
	case !h.HasFCS || h.FrameContentSize > maxFrame:
		return errFrameLarge
	case h.FrameContentSize > r.left:
		return errFrameTotal
	}
	r.left -= h.FrameContentSize
	if err := r.read(&h); err != nil {
		return err
	}
	if r.buf, err = r.dec.DecodeAll(r.frame, r.buf); err != nil {
		r.buf = r.buf[:0]
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// read reads a frame, block by block, as only these say how long it is.
func (r *frameReader) read(h *zstd.Header) error {
	const blockHeader, rle, checksum = 3, 1, 4
	r.frame = r.frame[:0]
	if err := r.take(h.HeaderSize); err != nil {
		return err
	}
	for last := false; !last; {
		at := len(r.frame)
		if err := r.take(blockHeader); err != nil {
			return err
		}
		b := r.frame[at:]
		head := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		last = head&1 != 0
		size := int(head >> 3)
		if head>>1&3 == rle {
			size = 1
		}
		if len(r.frame)+size > maxFrame+maxFrame/8 {
			return errFrameLarge
		}
		if err := r.take(size); err != nil {
			return err
		}
	}
	if h.HasCheckSum {
		return r.take(checksum)
	}
	return nil
}

// take appends n bytes of the file to the frame.
func (r *frameReader) take(n int) error {
	for n > 0 {
		b, err := r.in.Peek(min(n, streamBuffer))
		if errors.Is(err, io.EOF) {
			return errFrameShort
		}
		if err != nil {
			return err
		}
		r.frame = append(r.frame, b...)
		_, _ = r.in.Discard(len(b)) // what was peeked: cannot fail
		n -= len(b)
	}
	return nil
}
