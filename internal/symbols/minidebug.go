package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

const (
	maxMiniPacked = 32 << 20
	maxMini       = 64 << 20
	maxMiniDict   = 16 << 20 // xz -6 takes 8 MiB
)

var errXZ = errors.New("not an xz stream of one block of LZMA2")

// miniDebug decompresses the section .gnu_debugdata, which holds an ELF file
// with the symbols that strip(1) took away (Fedora's programs have it). nil:
// there is none.
func miniDebug(f *elf.File, r io.ReaderAt) ([]byte, error) {
	s := f.Section(".gnu_debugdata")
	if s == nil || s.Type != elf.SHT_PROGBITS || s.FileSize > maxMiniPacked {
		return nil, nil
	}
	packed, err := readAt(r, s.Offset, s.FileSize)
	if err != nil {
		return nil, err
	}
	data, err := unxz(packed)
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	return data, nil
}

// unxz decompresses an xz stream of one block. It reads the headers itself: a
// reader of whole streams allocates whatever dictionary each block asks for.
func unxz(b []byte) ([]byte, error) {
	const streamHeader = 12
	if len(b) < streamHeader+8 || !bytes.HasPrefix(b, []byte("\xfd7zXZ\x00")) {
		return nil, errXZ
	}
	b = b[streamHeader:]
	size := (int(b[0]) + 1) * 4
	if b[0] == 0 || size > len(b) { // 0: an index, so the stream is empty
		return nil, errXZ
	}
	header, packed := b[1:size-4], b[size:]
	flags := header[0]
	header = header[1:]
	if flags&0x3f != 0 { // more than one filter, or flags of the future
		return nil, errXZ
	}
	for _, there := range []bool{flags&0x40 != 0, flags&0x80 != 0} { // packed and unpacked size
		if !there {
			continue
		}
		_, n := binary.Uvarint(header)
		if n <= 0 {
			return nil, errXZ
		}
		header = header[n:]
	}
	const lzma2 = 0x21
	if len(header) < 3 || header[0] != lzma2 || header[1] != 1 {
		return nil, errXZ
	}
	dict, err := lzma.DecodeDictCap(header[2])
	if err != nil || dict > maxMiniDict {
		return nil, fmt.Errorf("dictionary %w", errTooLarge)
	}
	r, err := lzma.Reader2Config{DictCap: int(max(dict, lzma.MinDictCap))}.NewReader2(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, maxMini+1))
	if err != nil {
		return nil, err
	}
	if len(out) > maxMini {
		return nil, errTooLarge
	}
	return out, nil
}
