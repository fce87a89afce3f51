package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/tailcam/tailcam/internal/process/within"
)

// ThreadLocalKind is how the place of a thread-local variable is found.
type ThreadLocalKind uint8

// Kinds, the simplest first. Words are 8 bytes of the process's memory that its dynamic
// linker has filled in.
const (
	ThreadLocalFixed      ThreadLocalKind = iota // Offset is from the thread pointer
	ThreadLocalOffset                            // the word at Address is that offset
	ThreadLocalModule                            // the word at Address is the module, Offset is in its memory
	ThreadLocalDescriptor                        // the words at Address are a TLS descriptor, Offset is in the module's memory
	threadLocalKinds
)

// ThreadLocal is a thread-local variable of a process.
type ThreadLocal struct {
	Kind    ThreadLocalKind
	Offset  int64
	Address uint64 // of words
	Musl    bool   // the process has musl, or else glibc
}

// Limits of the search for a variable.
const (
	maxThreadFiles  = 1024                 // mapped files of a process
	maxThreadKnown  = 8192                 // files of which it is remembered that they have none
	threadKnownTime = 10 * time.Minute     // as a file may be written over
	maxThreadSearch = 64 << 20             // bytes of relocations of one file
	flags1PIE       = uint64(elf.DF_1_PIE) // a program, not a library
)

// ErrNoThreadLocal means that nothing in the process defines the variable.
var ErrNoThreadLocal = errors.New("no such thread-local variable")

// ThreadLocal finds a thread-local variable of process pid among the dynamic symbols of
// its program and libraries, which may be hostile. It returns within Options.Timeout.
func (r *Resolver) ThreadLocal(pid int, name string) (ThreadLocal, error) {
	type answer struct {
		ThreadLocal
		err error
	}
	a, err := within.Do(r.gate, pid, r.opts.Timeout, func() (a answer) {
		a.ThreadLocal, a.err = r.threadLocal(pid, name)
		return a
	})
	if err != nil {
		r.timeouts.Add(1)
		return ThreadLocal{}, err
	}
	return a.ThreadLocal, a.err
}

func (r *Resolver) threadLocal(pid int, name string) (ThreadLocal, error) {
	files, musl, err := r.mappedFiles(pid)
	if err != nil {
		return ThreadLocal{}, err
	}
	p := &target{pid: pid, resolver: r}
	for _, m := range files {
		if r.threadless.has(m, name) {
			continue
		}
		f := p.open(m)
		if f.err != nil || r.opts.Refuse(f.id.dev, f.id.ino) {
			f.file.Close() // may be nil
			continue
		}
		done := r.opts.Working(pid, f.id.dev, f.id.ino)
		v, err := readThreadLocal(f.file, m, name)
		done()
		f.file.Close()
		if err == nil {
			v.Musl = musl
			return v, nil
		}
		r.threadless.add(m, name)
	}
	return ThreadLocal{}, ErrNoThreadLocal
}

// mappedFiles lists the mapped code of a process, one mapping for each file.
func (r *Resolver) mappedFiles(pid int) (files []mapping, musl bool, err error) {
	f, err := r.opener.Maps(pid)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	seen := map[fileKeyOfMap]bool{}
	err = scanMaps(f, func(m mapping) bool {
		if key := (fileKeyOfMap{m.dev, m.inode}); m.executable && m.isFile() && !seen[key] {
			seen[key] = true
			files = append(files, m)
			musl = musl || isMusl(m.module())
		}
		return len(files) < maxThreadFiles
	})
	if err == nil && len(files) == 0 {
		err = os.ErrProcessDone
	}
	return files, musl, err
}

// isMusl reports whether a file is musl's, which is its dynamic linker, too: that is its name, or
// what the name links to. With glibc, libc.so is a text for linkers.
func isMusl(file string) bool {
	return strings.HasPrefix(file, "ld-musl-") || strings.HasPrefix(file, "libc.musl-") || file == "libc.so"
}

type fileKeyOfMap struct{ dev, inode uint64 }

// threadless remembers files that do not have a variable. It is safe for concurrent use.
type threadless struct {
	mu    sync.Mutex
	since time.Time
	files map[threadlessKey]struct{}
}

// threadlessKey has the path as well: inodes are used again.
type threadlessKey struct {
	fileKeyOfMap
	path, name string
}

func (t *threadless) has(m mapping, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.since) > threadKnownTime {
		t.files, t.since = nil, time.Now()
	}
	_, ok := t.files[threadlessKey{fileKeyOfMap{m.dev, m.inode}, m.name, name}]
	return ok
}

func (t *threadless) add(m mapping, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files == nil || len(t.files) >= maxThreadKnown {
		t.files = map[threadlessKey]struct{}{}
	}
	t.files[threadlessKey{fileKeyOfMap{m.dev, m.inode}, m.name, name}] = struct{}{}
}

// readThreadLocal reads an untrusted file that is mapped at m.
func readThreadLocal(f *os.File, m mapping, name string) (v ThreadLocal, err error) {
	head, err := newELF(f) // before it is mapped: see newUnwindFile
	if err != nil {
		return ThreadLocal{}, err
	}
	if _, ok := threadSegment(head); !ok {
		return ThreadLocal{}, ErrNoThreadLocal
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // the file may be truncated
	defer func() {
		if p := recover(); p != nil {
			v, err = ThreadLocal{}, fmt.Errorf("parse ELF file: %v", p)
		}
	}()
	file, err := mapFile(f)
	if err != nil {
		return ThreadLocal{}, err
	}
	defer file.close()
	return (&threadFile{mapped: file, at: m}).find(name)
}

// threadFile is a file that may define a thread-local variable.
type threadFile struct {
	*mapped
	at mapping
}

// threadSegment finds what each thread gets a copy of.
func threadSegment(f *elf.File) (elf.ProgHeader, bool) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_TLS {
			return p.ProgHeader, true
		}
	}
	return elf.ProgHeader{}, false
}

func (f *threadFile) find(name string) (ThreadLocal, error) {
	segment, ok := threadSegment(f.elf)
	machine := f.elf.Machine
	if !ok || f.elf.Class != elf.ELFCLASS64 || f.elf.Data != elf.ELFDATA2LSB ||
		machine != elf.EM_X86_64 && machine != elf.EM_AARCH64 {
		return ThreadLocal{}, ErrNoThreadLocal
	}
	for s, names := range f.dynamicSymbols() {
		index, value, ok := f.symbol(s, names, name)
		if !ok || value > segment.Memsz || segment.Memsz-value < 8 || segment.Memsz > 1<<30 {
			continue
		}
		if f.isProgram() {
			offset, ok := fixedOffset(machine, segment, value)
			if !ok {
				continue
			}
			return ThreadLocal{Kind: ThreadLocalFixed, Offset: offset}, nil
		}
		return f.relocated(index, value)
	}
	return ThreadLocal{}, ErrNoThreadLocal
}

// dynamicSymbols are the tables of dynamic symbols, or of all in a static program.
func (f *threadFile) dynamicSymbols() func(yield func(symbols, names *elf.Section) bool) {
	kind := elf.SHT_SYMTAB
	for _, s := range f.elf.Sections {
		if s.Type == elf.SHT_DYNSYM {
			kind = elf.SHT_DYNSYM
		}
	}
	return symtabs(f.elf, kind)
}

// symbol finds a thread-local variable that is defined.
func (f *threadFile) symbol(s, names *elf.Section, name string) (index uint32, value uint64, ok bool) {
	symbols, err := f.slice(s.Offset, s.FileSize)
	text, err2 := f.slice(names.Offset, names.FileSize)
	if err != nil || err2 != nil {
		return 0, 0, false
	}
	wanted := append([]byte(name), 0)
	for i := uint32(0); len(symbols) >= elf.Sym64Size; i, symbols = i+1, symbols[elf.Sym64Size:] {
		at, section := binary.LittleEndian.Uint32(symbols), binary.LittleEndian.Uint16(symbols[6:])
		if elf.ST_TYPE(symbols[4]) != elf.STT_TLS || elf.SectionIndex(section) == elf.SHN_UNDEF || uint64(at) >= uint64(len(text)) {
			continue
		}
		if bytes.HasPrefix(text[at:], wanted) {
			return i, binary.LittleEndian.Uint64(symbols[8:]), true
		}
	}
	return 0, 0, false
}

// isProgram reports whether it is a main program, and not a library.
func (f *threadFile) isProgram() bool {
	if f.elf.Type == elf.ET_EXEC {
		return true
	}
	for _, p := range f.elf.Progs {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		entries, err := f.slice(p.Off, p.Filesz)
		for ; err == nil && len(entries) >= 16; entries = entries[16:] {
			tag, v := elf.DynTag(binary.LittleEndian.Uint64(entries)), binary.LittleEndian.Uint64(entries[8:])
			if tag == elf.DT_FLAGS_1 && v&flags1PIE != 0 {
				return true
			}
			if tag == elf.DT_NULL {
				break
			}
		}
	}
	return false
}

// fixedOffset is where a main program's variable is from the thread pointer: in front of it
// on x86 (variant II of "ELF Handling For Thread-Local Storage"), behind it and two words
// on arm64 (variant I).
func fixedOffset(machine elf.Machine, s elf.ProgHeader, value uint64) (int64, bool) {
	align := max(s.Align, 1)
	if align&(align-1) != 0 || align > 1<<20 {
		return 0, false
	}
	if machine == elf.EM_X86_64 {
		return int64(value) - int64(s.Memsz) - int64((-s.Vaddr-s.Memsz)&(align-1)), true
	}
	const words = 16
	return int64(value) + words + int64((s.Vaddr-words)&(align-1)), true
}

// Relocations that the dynamic linker fills in for thread-local variables.
const (
	relocOffset = iota + 1
	relocModule
	relocDescriptor
)

var threadRelocations = map[elf.Machine]map[uint32]int{
	elf.EM_X86_64: {
		uint32(elf.R_X86_64_TPOFF64): relocOffset, uint32(elf.R_X86_64_DTPMOD64): relocModule, uint32(elf.R_X86_64_TLSDESC): relocDescriptor,
	},
	elf.EM_AARCH64: {
		uint32(elf.R_AARCH64_TLS_TPREL64): relocOffset, uint32(elf.R_AARCH64_TLS_DTPMOD64): relocModule,
		uint32(elf.R_AARCH64_TLSDESC): relocDescriptor,
	},
}

// relocated finds what the dynamic linker has filled in for a library's variable: for the
// symbol, or without one for its value.
func (f *threadFile) relocated(index uint32, value uint64) (ThreadLocal, error) {
	bias, ok := f.bias()
	if !ok {
		return ThreadLocal{}, ErrNoThreadLocal
	}
	best := ThreadLocal{Kind: threadLocalKinds}
	left := uint64(maxThreadSearch)
	for _, s := range f.elf.Sections {
		if s.Type != elf.SHT_RELA || s.FileSize > left || s.Flags&elf.SHF_COMPRESSED != 0 {
			continue
		}
		left -= s.FileSize
		entries, err := f.slice(s.Offset, s.FileSize)
		if err != nil {
			continue
		}
		for ; len(entries) >= 24; entries = entries[24:] {
			kind, ok := f.relocation(entries, index, value)
			if ok && kind < best.Kind {
				best = ThreadLocal{Kind: kind, Offset: int64(value), Address: bias + binary.LittleEndian.Uint64(entries)}
			}
		}
	}
	if best.Kind == threadLocalKinds {
		return ThreadLocal{}, ErrNoThreadLocal
	}
	return best, nil
}

// relocation tells what a relocation says of the variable.
func (f *threadFile) relocation(entry []byte, index uint32, value uint64) (ThreadLocalKind, bool) {
	info, addend := binary.LittleEndian.Uint64(entry[8:]), binary.LittleEndian.Uint64(entry[16:])
	of := uint32(info >> 32)
	kind := threadRelocations[f.elf.Machine][uint32(info)]
	if of != index && of != 0 || of == index && kind != relocModule && addend != 0 {
		return 0, false
	}
	switch kind {
	case relocOffset:
		return ThreadLocalOffset, of == index || addend == value
	case relocModule:
		return ThreadLocalModule, true
	case relocDescriptor:
		return ThreadLocalDescriptor, of == index || addend == value
	}
	return 0, false
}

// bias is how far the file's addresses are from where it is mapped.
func (f *threadFile) bias() (uint64, bool) {
	for _, p := range f.elf.Progs {
		if p.Type == elf.PT_LOAD && f.at.offset <= p.Off && p.Off-f.at.offset < f.at.end-f.at.start && p.Flags&elf.PF_X != 0 {
			return f.at.start - (p.Vaddr - (p.Off - f.at.offset)), true
		}
	}
	return 0, false
}
