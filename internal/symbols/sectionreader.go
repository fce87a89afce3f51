package symbols

import (
	"encoding/binary"
	"io"
)

// Limits of random reads in a section.
const (
	windowSize     = 64 << 10
	maxWindowReads = 1 << 13 // half a gigabyte; records are ordered, so each byte is read about once
)

// sectionReader reads integers of a section in bounded memory.
type sectionReader struct {
	r     io.ReaderAt
	start uint64 // of the section in the file
	size  uint64
	order binary.ByteOrder
	at    uint64 // offset of b in the section
	b     []byte
	reads int
}

// u32 reads the value at an offset of the section.
func (w *sectionReader) u32(at uint64) (uint32, bool) {
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
