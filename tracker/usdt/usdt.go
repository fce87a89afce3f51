// Package usdt reads the statically defined probes of programs and libraries:
// notes in the ELF file that say where a probe is and where its arguments are.
package usdt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNone tells that a file has no such probe.
var ErrNone = errors.New("no such probe")

// maxNotes bounds what one file may hold.
const maxNotes = 16 << 20

// MaxArgsText bounds the text of the arguments of one place.
const MaxArgsText = 1024

// MaxPlaces is in how many places one probe may be: one that is in a function
// which the compiler has inlined has several.
const MaxPlaces = 64

// Place is one place of a probe.
type Place struct {
	Offset    uint64 // in the file
	Semaphore uint64 // in the file; 0: none. While it is not zero, the program prepares the arguments
	Args      string // as for ParseArgs
}

// Read returns every place of a probe in the ELF file at path, which must be
// trusted: debug/elf takes a lot of memory for a file that is made for that.
func Read(path, provider, name string) ([]Place, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the probes of %s: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // only read from
	notes, err := Notes(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	data, err := notes.Data()
	if err != nil {
		return nil, fmt.Errorf("read the probes of %s: %w", path, err)
	}
	list, err := Places(f, data, provider, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// Notes returns the section that says where the probes are. Only headers are
// looked at. The section has at most 16 MiB.
func Notes(f *elf.File) (*elf.Section, error) {
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB {
		return nil, errors.New("not a 64-bit little-endian program")
	}
	notes := f.Section(".note.stapsdt")
	if notes == nil || notes.Type == elf.SHT_NOBITS || notes.Flags&elf.SHF_COMPRESSED != 0 || notes.FileSize > maxNotes {
		return nil, fmt.Errorf("%w: it has no usdt probes at all", ErrNone)
	}
	return notes, nil
}

// Places returns every place of a probe, in the order of the file. Of f only
// headers are looked at; data is what the section of Notes holds. Both may be hostile.
func Places(f *elf.File, data []byte, provider, name string) ([]Place, error) {
	var base uint64
	if s := f.Section(".stapsdt.base"); s != nil {
		base = s.Addr
	}
	var list []Place
	var names []string
	for _, n := range parseNotes(data) {
		if n.provider != provider || n.name != name {
			if full := n.provider + ":" + n.name; len(names) < 40 && len(full) < 100 && !slices.Contains(names, full) {
				names = append(names, full)
			}
			continue
		}
		if len(list) == MaxPlaces {
			return nil, fmt.Errorf("probe %s:%s is in more than %d places", provider, name, MaxPlaces)
		}
		if len(n.args) > MaxArgsText {
			return nil, fmt.Errorf("probe %s:%s has %d bytes of arguments", provider, name, len(n.args))
		}
		shift := uint64(0)
		if base != 0 && n.base != 0 { // the file was prelinked after it was made
			shift = base - n.base
		}
		p := Place{Args: n.args}
		var err error
		if p.Offset, err = fileOffset(f, n.pc+shift); err != nil {
			return nil, fmt.Errorf("probe %s:%s: %w", provider, name, err)
		}
		if n.semaphore != 0 {
			if p.Semaphore, err = fileOffset(f, n.semaphore+shift); err != nil {
				return nil, fmt.Errorf("semaphore of probe %s:%s: %w", provider, name, err)
			}
		}
		list = append(list, p)
	}
	if len(list) == 0 {
		slices.Sort(names)
		return nil, fmt.Errorf("%w as %s:%s: it has %q", ErrNone, provider, name, names)
	}
	return list, nil
}

type note struct {
	pc, base, semaphore  uint64
	provider, name, args string
}

// parseNotes reads the notes of a section; what is no note ends it.
func parseNotes(data []byte) []note {
	var notes []note
	for len(data) >= 12 {
		nameSize, size := uint64(binary.LittleEndian.Uint32(data)), uint64(binary.LittleEndian.Uint32(data[4:]))
		kind := binary.LittleEndian.Uint32(data[8:])
		data = data[12:]
		if padded(nameSize)+size > uint64(len(data)) {
			return notes
		}
		owner, desc := data[:nameSize], data[padded(nameSize):padded(nameSize)+size]
		data = data[min(padded(nameSize)+padded(size), uint64(len(data))):]
		if kind != 3 || !bytes.Equal(bytes.TrimRight(owner, "\x00"), []byte("stapsdt")) || len(desc) < 24 {
			continue
		}
		texts := bytes.SplitN(desc[24:], []byte{0}, 4)
		if len(texts) < 3 {
			continue
		}
		notes = append(notes, note{
			pc: binary.LittleEndian.Uint64(desc), base: binary.LittleEndian.Uint64(desc[8:]), semaphore: binary.LittleEndian.Uint64(desc[16:]),
			provider: string(texts[0]), name: string(texts[1]), args: string(texts[2]),
		})
	}
	return notes
}

func padded(n uint64) uint64 { return (n + 3) &^ 3 }

// fileOffset is where an address of the program stands in its file.
func fileOffset(f *elf.File, address uint64) (uint64, error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && address >= p.Vaddr && address-p.Vaddr < p.Filesz && p.Off <= math.MaxInt64 {
			return address - p.Vaddr + p.Off, nil
		}
	}
	return 0, fmt.Errorf("address %#x is not in the file", address)
}
