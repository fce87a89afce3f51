package symbols

import (
	"encoding/binary"
	"io"
)

// Limits of reading here and there in a section of a file.
const (
	windowSize     = 64 << 10
	maxWindowReads = 1 << 13 // half a gigabyte; records come in order, so each byte is read about once
)

// window reads small values of a section in fixed memory, whatever its size.
type window struct {
	r     io.ReaderAt
	start uint64 // of the section, in the file
	size  uint64
	order binary.ByteOrder
	at    uint64 // of b, in the section
	b     []byte
	reads int
}

// u32 reads the value at an offset of the section.
func (w *window) u32(at uint64) (uint32, bool) {
	if at+4 < at || at+4 > w.size {
		return 0, false
	}
	if at < w.at || at+4 > w.at+uint64(len(w.b)) {
		if w.reads++; w.reads > maxWindowReads {
			return 0, false
		}
		if w.b == nil {
			w.b = make([]byte, windowSize)
		}
		w.b = w.b[:cap(w.b)]
		n, _ := w.r.ReadAt(w.b[:min(windowSize, w.size-at)], int64(w.start+at))
		w.at, w.b = at, w.b[:n]
		if n < 4 {
			return 0, false
		}
	}
	return w.order.Uint32(w.b[at-w.at:]), true
}
