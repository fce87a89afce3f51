package symbols

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/usdt"
)

// maxSimilar bounds the search for similar names.
const maxSimilar = 5000

// Function returns the offset and size of a function in a program or library. The path
// is absolute; below /proc/PID/root it is resolved as in that process. The file may be
// hostile: everything but the time to open it is bounded. Returns ErrRemote if it was
// not opened.
func (r *Resolver) Function(path, name string) (offset, size uint64, err error) {
	err = r.withProgram(path, func(m *mapped) error {
		offset, size, err = m.function(name)
		return err
	})
	return offset, size, err
}

// Static returns all locations of a USDT probe in a program or library. See Function
// for the path and errors.
func (r *Resolver) Static(path, provider, name string) (list []usdt.Place, err error) {
	err = r.withProgram(path, func(m *mapped) error {
		notes, err := usdt.Notes(m.elf)
		if err != nil {
			return err
		}
		data, err := m.slice(notes.Offset, notes.FileSize)
		if err != nil {
			return fmt.Errorf("read its usdt probes: %w", err)
		}
		// Copy: the file may change while it is parsed.
		list, err = usdt.Places(m.elf, bytes.Clone(data), provider, name)
		return err
	})
	return list, err
}

// Answers returns an error if a program or library cannot be read.
func (r *Resolver) Answers(path string) error {
	return r.withProgram(path, func(*mapped) error { return nil })
}

// withProgram calls fn with an open program and adds its path to errors.
func (r *Resolver) withProgram(path string, fn func(*mapped) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // the file may be truncated
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("parse ELF file: %v", p)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	f, err := r.program(path)
	switch {
	case errors.Is(err, ErrRemote):
		return err
	case errors.Is(err, ErrNotProgram):
		return ErrNotProgram
	case errors.Is(err, os.ErrNotExist):
		return errors.New("not found, or not readable")
	case err != nil:
		return err
	}
	defer f.Close()
	id, err := identify(f)
	if err != nil {
		return err
	}
	if r.opts.Refuse(id.dev, id.ino) {
		return errors.New("not read for a while: it made helpers hang")
	}
	defer r.opts.Working(0, id.dev, id.ino)()
	m, err := mapFile(f)
	if err != nil {
		return err
	}
	defer m.close()
	if m.elf.Type != elf.ET_EXEC && m.elf.Type != elf.ET_DYN {
		return fmt.Errorf("%v is neither program nor library", m.elf.Type)
	}
	return fn(m)
}

// program opens the file.
func (r *Resolver) program(path string) (*os.File, error) {
	if rest, ok := strings.CutPrefix(path, "/proc/"); ok {
		number, rest, _ := strings.Cut(rest, "/")
		if inside, ok := strings.CutPrefix(rest, "root/"); ok {
			if pid, err := strconv.ParseInt(number, 10, 32); err == nil && pid > 0 {
				return r.opener.InRoot(int(pid), "/"+inside)
			}
		}
	}
	return r.opener.Host(path)
}

// function finds a function by name. Of several the last one is used.
func (m *mapped) function(name string) (offset, size uint64, err error) {
	entry := elf.Sym64Size
	if m.elf.Class == elf.ELFCLASS32 {
		entry = elf.Sym32Size
	}
	var found *symbol
	var similar []string
	some := false
	for _, kind := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		for s, names := range symtabs(m.elf, kind) {
			symbols, err := m.slice(s.Offset, s.FileSize)
			text, err2 := m.slice(names.Offset, names.FileSize)
			if err != nil || err2 != nil {
				continue
			}
			for ; len(symbols) >= entry; symbols = symbols[entry:] {
				sym, ok := function(m.elf, symbols)
				if !ok || sym.start == 0 || !m.isFunction(symbols) || uint64(sym.name) >= uint64(len(text)) {
					continue
				}
				some = true
				at := text[sym.name:]
				if hasName(at, name) {
					found = &sym
				}
				if found == nil && len(similar) < maxSimilar {
					if s := similarName(at, name); s != "" {
						similar = append(similar, s)
					}
				}
			}
		}
	}
	switch {
	case found != nil:
	case !some:
		return 0, 0, errors.New("no function symbols: it is stripped")
	default:
		return 0, 0, errors.New(rules.Unknown("function", name, similar))
	}
	for _, p := range m.elf.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 || found.start < p.Vaddr || found.start-p.Vaddr >= p.Filesz {
			continue
		}
		if offset = found.start - p.Vaddr + p.Off; offset == 0 || offset > math.MaxInt64/2 || offset >= uint64(len(m.data)) {
			break
		}
		return offset, uint64(found.size), nil
	}
	return 0, 0, fmt.Errorf("function %s is not in its code", name)
}

// isFunction distinguishes functions from labels of assembly.
func (m *mapped) isFunction(b []byte) bool {
	if m.elf.Class == elf.ELFCLASS32 {
		return elf.ST_TYPE(b[12]) == elf.STT_FUNC
	}
	return elf.ST_TYPE(b[4]) == elf.STT_FUNC
}

// hasName reports whether text starts with a name, optionally with a version.
func hasName(text []byte, name string) bool {
	if len(text) <= len(name) || string(text[:len(name)]) != name {
		return false
	}
	return text[len(name)] == 0 || text[len(name)] == '@'
}

// similarName returns the name at the start of text if it has a similar length.
func similarName(text []byte, name string) string {
	most := len(name) + len(name)/3 + 1
	if len(name) > 64 {
		return ""
	}
	end := bytes.IndexByte(text[:min(len(text), most+1)], 0)
	if end < len(name)-len(name)/3-1 || end <= 0 {
		return ""
	}
	return string(text[:end])
}
