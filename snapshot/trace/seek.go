package trace

import (
	"encoding/binary"
	"io"
	"os"
	"sort"
)

// frame is one frame of a compressed stream, as its seek table has it.
type frame struct {
	at   int64  // in the file
	from uint64 // in the stream
}

// readSeekTable returns the frames of a compressed stream; nil: the table is damaged, or
// there is none, and the stream can only be read from its begin.
func readSeekTable(f *os.File) []frame {
	st, err := f.Stat()
	if err != nil || st.Size() < skippableHeader+seekFooter {
		return nil
	}
	le := binary.LittleEndian
	var foot [seekFooter]byte
	if _, err := f.ReadAt(foot[:], st.Size()-seekFooter); err != nil || le.Uint32(foot[5:]) != seekTableMagic || foot[4] != 0 {
		return nil
	}
	n := int64(le.Uint32(foot[:]))
	begin := st.Size() - seekFooter - n*seekEntry - skippableHeader
	if n > maxTrace/compressedPacket || begin < 0 {
		return nil
	}
	table := make([]byte, n*seekEntry)
	if _, err := f.ReadAt(table, begin+skippableHeader); err != nil {
		return nil
	}
	frames := make([]frame, n)
	var at frame
	for i := range frames {
		frames[i] = at
		at.at += int64(le.Uint32(table[i*seekEntry:]))
		at.from += uint64(le.Uint32(table[i*seekEntry+4:]))
	}
	if at.at != begin {
		return nil
	}
	return frames
}

// seek goes forward to the first packet that ends at a time or later, without decompressing
// those before it. It does nothing if it cannot.
func (s *streamReader) seek(now uint64) error {
	if s.zip == nil || s.file == nil {
		return nil
	}
	frames := readSeekTable(s.file)
	first := int(s.packets)
	if len(frames) <= first+1 {
		return nil
	}
	declared := s.zip.left // a look costs nothing
	var failed error
	look := func(i int) bool {
		var p packet
		var head [packetPrefix]byte
		if failed == nil {
			failed = s.jump(&frames[i])
		}
		if failed == nil {
			_, failed = io.ReadFull(s.in, head[:])
		}
		// What is damaged here is an error once it is read.
		return failed != nil || p.parse(head[:], &s.meta.uuid) != nil || p.end >= now
	}
	i := min(first+sort.Search(len(frames)-first, func(i int) bool { return look(first + i) }), len(frames)-1)
	s.zip.left = declared
	if err := s.jump(&frames[i]); err != nil {
		return err
	}
	s.packets, s.pos, s.left = uint64(i), frames[i].from, 0
	return nil
}

// jump makes a frame the next that is read.
func (s *streamReader) jump(to *frame) error {
	if _, err := s.file.Seek(to.at, io.SeekStart); err != nil {
		return err
	}
	s.zip.reset(s.file)
	s.in.Reset(s.zip)
	return nil
}
