package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"
	"golang.org/x/sys/unix"
)

// Limits of a compressed symbol table: 28 MiB in total.
const (
	maxMiniPacked = 4 << 20
	maxMini       = 16 << 20 // browsers have 10 MB
	maxMiniDict   = 8 << 20  // of xz -6
)

var errXZ = errors.New("not an xz stream of one block of LZMA2")

// miniDebug decompresses .gnu_debugdata, an ELF file with symbols as in Fedora's
// programs, and passes it to use, which must not retain it. It does nothing without
// that section.
func miniDebug(f *elf.File, r io.ReaderAt, use func([]byte)) error {
	packed, err := sectionData(f, r, ".gnu_debugdata", elf.SHT_PROGBITS, maxMiniPacked)
	if err != nil || len(packed) == 0 {
		return err
	}
	// Outside of Go's heap: only pages written to take memory, and they are freed here.
	out, err := unix.Mmap(-1, 0, maxMini, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	defer func() { _ = unix.Munmap(out) }()
	n, err := unxz(packed, out)
	if err != nil {
		return fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	use(out[:n])
	return nil
}

// unxz decompresses an xz stream of one block into out and returns its size. It parses
// the headers itself, since a full reader allocates dictionaries of any size.
func unxz(b, out []byte) (int, error) {
	const streamHeader = 12
	if len(b) < streamHeader+8 || !bytes.HasPrefix(b, []byte("\xfd7zXZ\x00")) {
		return 0, errXZ
	}
	b = b[streamHeader:]
	size := (int(b[0]) + 1) * 4
	if b[0] == 0 || size > len(b) { // 0: index, the stream is empty
		return 0, errXZ
	}
	header, packed := b[1:size-4], b[size:]
	flags := header[0]
	header = header[1:]
	if flags&0x3f != 0 { // several filters, or unknown flags
		return 0, errXZ
	}
	for _, there := range []bool{flags&0x40 != 0, flags&0x80 != 0} { // compressed and uncompressed size
		if !there {
			continue
		}
		_, n := binary.Uvarint(header)
		if n <= 0 {
			return 0, errXZ
		}
		header = header[n:]
	}
	const lzma2 = 0x21
	if len(header) < 3 || header[0] != lzma2 || header[1] != 1 {
		return 0, errXZ
	}
	dict, err := lzma.DecodeDictCap(header[2])
	if err != nil || dict > maxMiniDict {
		return 0, fmt.Errorf("dictionary %w", errTooLarge)
	}
	r, err := lzma.Reader2Config{DictCap: int(max(dict, lzma.MinDictCap))}.NewReader2(bytes.NewReader(packed))
	if err != nil {
		return 0, err
	}
	n, err := io.ReadFull(r, out)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		// ReadFull also returns this for complete streams.
		if more, again := r.Read(out[n:min(n+1, len(out))]); more == 0 && errors.Is(again, io.EOF) {
			return n, nil
		}
		return 0, io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, err
	}
	if more, err := r.Read(make([]byte, 1)); more > 0 || !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("more than %d bytes: %w", len(out), errTooLarge)
	}
	return n, nil
}
