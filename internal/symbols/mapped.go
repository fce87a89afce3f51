package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// maxMapped bounds the size of mapped files. Mapping reads nothing.
const maxMapped = 64 << 30

// errNoRoom means that decompressed debug information exceeds the limit.
var errNoRoom = errors.New("compressed debug information is larger than allowed")

// mapped is a mapped ELF file and its decompressed sections, all outside of Go's heap.
// Reading a file truncated meanwhile faults: callers must use debug.SetPanicOnFault and
// recover. Data may change at any time, so never check and then read again.
type mapped struct {
	elf    *elf.File
	data   []byte // the whole file
	extra  [][]byte
	extraN int64  // size of extra in bytes
	shared *quota // shared limit of extra; nil: none
}

// mapFile maps an ELF file, which may be closed afterwards. room bounds decompressed
// sections, in bytes.
func mapFile(f *os.File) (m *mapped, err error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() < 64 || st.Size() > maxMapped {
		return nil, fmt.Errorf("map ELF file of %d bytes: %w", st.Size(), errTooLarge)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map ELF file: %w", err)
	}
	return newMapped(data)
}

// newMapped takes ownership of mapped memory.
func newMapped(data []byte) (m *mapped, err error) {
	m = &mapped{data: data}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("parse ELF file: %v", p)
		}
		if err != nil {
			m.close()
			m = nil
		}
	}()
	if m.elf, err = newELF(bytes.NewReader(data)); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *mapped) close() {
	for _, b := range m.extra {
		_ = unix.Munmap(b)
	}
	m.shared.give(m.extraN)
	if m.data != nil {
		_ = unix.Munmap(m.data)
	}
	m.extra, m.extraN, m.data, m.elf = nil, 0, nil, nil
}

// section returns the data of a section, nil if it does not exist. It is valid until
// close.
func (m *mapped) section(name string, room int64) ([]byte, error) {
	s := m.elf.Section(name)
	if s == nil || s.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	b, err := m.slice(s.Offset, s.FileSize)
	if err == nil && s.Flags&elf.SHF_COMPRESSED != 0 {
		b, err = m.decompress(s, b, room)
	}
	return b, err
}

func (m *mapped) slice(offset, size uint64) ([]byte, error) {
	if n := uint64(len(m.data)); offset > n || size > n-offset {
		return nil, io.ErrUnexpectedEOF
	}
	return m.data[offset : offset+size : offset+size], nil
}

// compressionHeader is the header of a compressed section (64-bit).
const compressionHeader = 24

func (m *mapped) decompress(s *elf.Section, packed []byte, room int64) ([]byte, error) {
	if m.elf.Class != elf.ELFCLASS64 || len(packed) < compressionHeader {
		return nil, fmt.Errorf("decompress %s: no header", s.Name)
	}
	size := m.elf.ByteOrder.Uint64(packed[8:])
	if size == 0 {
		return nil, nil
	}
	if size > uint64(math.MaxInt64) || int64(size) > room-m.extraN {
		return nil, fmt.Errorf("%s of %d bytes: %w", s.Name, size, errNoRoom)
	}
	r, err := decompressor(packed, m.elf.ByteOrder)
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w", s.Name, err)
	}
	if err := m.shared.take(int64(size)); err != nil {
		return nil, fmt.Errorf("decompress %s: %w", s.Name, err)
	}
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		m.shared.give(int64(size))
		return nil, fmt.Errorf("decompress %s: %w", s.Name, err)
	}
	m.extra = append(m.extra, b)
	m.extraN += int64(len(b))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("decompress %s: %w", s.Name, err)
	}
	return b, nil
}

// decompressor returns a reader of a compressed section. debug/elf supports zlib and
// zstd in bounded memory, but only in complete files, so it gets this section with
// synthetic headers.
func decompressor(packed []byte, order binary.ByteOrder) (io.Reader, error) {
	const header, entry = 64, 64
	var h bytes.Buffer
	ident := elf.Header64{
		Type: uint16(elf.ET_DYN), Version: 1, Ehsize: header, Shoff: header, Shentsize: entry, Shnum: 3, Shstrndx: 2,
	}
	copy(ident.Ident[:], elf.ELFMAG)
	ident.Ident[elf.EI_CLASS], ident.Ident[elf.EI_DATA], ident.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	if order == binary.BigEndian {
		ident.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	const body = header + 3*entry
	for _, v := range []any{
		ident, elf.Section64{},
		elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_COMPRESSED), Off: body, Size: uint64(len(packed))},
		elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: 8, Size: 1}, // a zero byte in the header
	} {
		if err := binary.Write(&h, order, v); err != nil {
			return nil, err
		}
	}
	f, err := elf.NewFile(concatReader{h.Bytes(), packed})
	if err != nil {
		return nil, err
	}
	return f.Sections[1].Open(), nil
}

// concatReader reads two byte slices as one.
type concatReader struct{ first, second []byte }

func (j concatReader) ReadAt(p []byte, at int64) (int, error) {
	if at < 0 || at >= int64(len(j.first)+len(j.second)) {
		return 0, io.EOF
	}
	n := 0
	if at < int64(len(j.first)) {
		n = copy(p, j.first[at:])
		at += int64(n)
	}
	if n < len(p) && at >= int64(len(j.first)) {
		n += copy(p[n:], j.second[at-int64(len(j.first)):])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
