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

// maxSimilar is among how many names one is looked for that was meant.
const maxSimilar = 5000

// Function returns where in a program or library a function begins, and its
// size. The path is absolute; behind /proc/PID/root it is looked up as that
// process sees it. The file may be hostile: all is bounded but the time that
// opening takes. ErrRemote: it was not opened.
func (r *Resolver) Function(path, name string) (offset, size uint64, err error) {
	err = r.withProgram(path, func(m *mapped) error {
		offset, size, err = m.function(name)
		return err
	})
	return offset, size, err
}

// Static returns every place of a usdt probe in a program or library; else it
// is like Function.
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
		// What is written to meanwhile must not change under the reader.
		list, err = usdt.Places(m.elf, bytes.Clone(data), provider, name)
		return err
	})
	return list, err
}

// Answers tells whether a program or library can be read now.
func (r *Resolver) Answers(path string) error {
	return r.withProgram(path, func(*mapped) error { return nil })
}

// withProgram runs fn with a file, whose name is put before any error.
func (r *Resolver) withProgram(path string, fn func(*mapped) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // the file may shrink
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
		return errors.New("it is not there, or may not be read")
	case err != nil:
		return err
	}
	defer f.Close()
	id, err := identify(f)
	if err != nil {
		return err
	}
	if r.opts.Refuse(id.dev, id.ino) {
		return errors.New("not read for a while: it has made helpers hang")
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

// function finds a function by its name among all symbols. Of several that
// have it the last counts.
func (m *mapped) function(name string) (offset, size uint64, err error) {
	entry := elf.Sym64Size
	if m.elf.Class == elf.ELFCLASS32 {
		entry = elf.Sym32Size
	}
	var found *symbol
	var similar []string
	some := false
	for _, kind := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		tries := 0
		for _, s := range m.elf.Sections {
			if s.Type != kind || s.Flags&elf.SHF_COMPRESSED != 0 || s.FileSize > maxSection || int64(s.Link) >= int64(len(m.elf.Sections)) {
				continue
			}
			if tries++; tries > maxTries {
				break
			}
			symbols, err := m.slice(s.Offset, s.FileSize)
			names := m.elf.Sections[s.Link]
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
				if has(at, name) {
					found = &sym
				}
				if found == nil && len(similar) < maxSimilar {
					if s := near(at, name); s != "" {
						similar = append(similar, s)
					}
				}
			}
		}
	}
	switch {
	case found != nil:
	case !some:
		return 0, 0, errors.New("it has no symbols of functions: it is stripped")
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

// isFunction tells functions from labels, which assembly may have instead.
func (m *mapped) isFunction(b []byte) bool {
	if m.elf.Class == elf.ELFCLASS32 {
		return elf.ST_TYPE(b[12]) == elf.STT_FUNC
	}
	return elf.ST_TYPE(b[4]) == elf.STT_FUNC
}

// has tells whether a name stands at the begin of text, perhaps with a version.
func has(text []byte, name string) bool {
	if len(text) <= len(name) || string(text[:len(name)]) != name {
		return false
	}
	return text[len(name)] == 0 || text[len(name)] == '@'
}

// near returns the name at the begin of text if it is about as long as another.
func near(text []byte, name string) string {
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
