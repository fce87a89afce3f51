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

// Probe is one place of a probe. One that is in a function which the compiler
// has inlined has several.
type Probe struct {
	Provider, Name string
	Offset         uint64 // in the file
	Semaphore      uint64 // in the file; 0: none. While it is not zero, the program prepares the arguments
	Args           []Arg
}

// ErrNone tells that a file has no such probe.
var ErrNone = errors.New("no such probe")

// maxNotes bounds what one file may hold.
const maxNotes = 16 << 20

// Read returns every place of a probe in the ELF file at path. Any file will do.
func Read(path, provider, name string) ([]Probe, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the probes of %s: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // only read from
	notes := f.Section(".note.stapsdt")
	if notes == nil || notes.Size > maxNotes {
		return nil, fmt.Errorf("%w: %s has no usdt probes at all", ErrNone, path)
	}
	data, err := notes.Data()
	if err != nil {
		return nil, fmt.Errorf("read the probes of %s: %w", path, err)
	}
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB {
		return nil, fmt.Errorf("%s is not a 64-bit little-endian program", path)
	}
	var base uint64
	if s := f.Section(".stapsdt.base"); s != nil {
		base = s.Addr
	}
	var probes []Probe
	var names []string
	for _, n := range parseNotes(data) {
		if n.provider != provider || n.name != name {
			if full := n.provider + ":" + n.name; !slices.Contains(names, full) && len(names) < 40 {
				names = append(names, full)
			}
			continue
		}
		shift := uint64(0)
		if base != 0 && n.base != 0 { // the file was prelinked after it was made
			shift = base - n.base
		}
		p := Probe{Provider: provider, Name: name}
		if p.Offset, err = fileOffset(f, n.pc+shift); err != nil {
			return nil, fmt.Errorf("probe %s:%s of %s: %w", provider, name, path, err)
		}
		if n.semaphore != 0 {
			if p.Semaphore, err = fileOffset(f, n.semaphore+shift); err != nil {
				return nil, fmt.Errorf("semaphore of probe %s:%s of %s: %w", provider, name, path, err)
			}
		}
		if p.Args, err = ParseArgs(f.Machine, n.args); err != nil {
			return nil, fmt.Errorf("probe %s:%s of %s: %w", provider, name, path, err)
		}
		probes = append(probes, p)
	}
	if len(probes) == 0 {
		slices.Sort(names)
		return nil, fmt.Errorf("%w: %s has %v", ErrNone, path, names)
	}
	return probes, nil
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
