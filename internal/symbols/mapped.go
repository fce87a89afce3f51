package symbols

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// maxMapped is the size of a file that is mapped; nothing is read by that.
const maxMapped = 64 << 30

// errNoRoom says that a file's debug information takes more memory, once it is
// decompressed, than is allowed.
var errNoRoom = errors.New("compressed debug information is larger than allowed")

// mapped is an ELF file in memory: pages of the file, which the kernel reads
// and drops as it sees fit, and sections that had to be decompressed, outside
// of Go's heap. A file that shrinks meanwhile faults: whoever reads from it
// must have called debug.SetPanicOnFault and recover.
type mapped struct {
	elf    *elf.File
	data   []byte // the whole file
	extra  [][]byte
	extraN int64 // bytes of extra
}

// mapFile maps an ELF file. The file may be closed afterwards. Sections of up
// to room bytes will be decompressed.
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

// newMapped takes over memory that was mapped.
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
	headers := &budgetReader{r: bytes.NewReader(data), left: maxHeaderBytes}
	if m.elf, err = elf.NewFile(headers); err != nil {
		return nil, fmt.Errorf("parse ELF file: %w", err)
	}
	headers.left = math.MaxInt64 // from here on sections are read, whose sizes are looked at
	return m, nil
}

func (m *mapped) close() {
	for _, b := range m.extra {
		_ = unix.Munmap(b)
	}
	if m.data != nil {
		_ = unix.Munmap(m.data)
	}
	m.extra, m.data, m.elf = nil, nil, nil
}

// section returns the bytes of a section, or nil if there is none such. They
// are valid until close.
func (m *mapped) section(name string, room int64) ([]byte, error) {
	s := m.elf.Section(name)
	if s == nil || s.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		return m.decompress(s, room)
	}
	return m.slice(s.Offset, s.FileSize)
}

func (m *mapped) slice(offset, size uint64) ([]byte, error) {
	if n := uint64(len(m.data)); offset > n || size > n-offset {
		return nil, io.ErrUnexpectedEOF
	}
	return m.data[offset : offset+size : offset+size], nil
}

func (m *mapped) decompress(s *elf.Section, room int64) ([]byte, error) {
	if s.Size == 0 {
		return nil, nil
	}
	if s.Size > uint64(math.MaxInt64) || int64(s.Size) > room-m.extraN {
		return nil, fmt.Errorf("%s of %d bytes: %w", s.Name, s.Size, errNoRoom)
	}
	b, err := unix.Mmap(-1, 0, int(s.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w", s.Name, err)
	}
	m.extra = append(m.extra, b)
	m.extraN += int64(len(b))
	if _, err := io.ReadFull(s.Open(), b); err != nil {
		return nil, fmt.Errorf("decompress %s: %w", s.Name, err)
	}
	return b, nil
}

// writable lets the first n bytes of a section be changed, in memory only.
func (m *mapped) writable(name string, n uint64) error {
	s := m.elf.Section(name)
	if s == nil || s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil // decompressed ones are writable
	}
	start := s.Offset &^ uint64(os.Getpagesize()-1)
	b, err := m.slice(start, s.Offset-start+min(n, s.FileSize))
	if err != nil || len(b) == 0 {
		return err
	}
	return unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE)
}
