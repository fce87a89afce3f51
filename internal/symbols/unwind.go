package symbols

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/tailcam/tailcam/internal/process/within"
	"github.com/tailcam/tailcam/internal/unwind"
)

// Limits of what is mapped for unwinding.
const (
	maxUnwindFiles = 64
	maxUnwindBytes = 2 << 30 // of address space
	maxIndexBytes  = 8 << 20
	maxCode        = 1 << 16 // mappings of a process

	maxUnwindLoading = 8                      // files being read
	unwindWait       = 500 * time.Millisecond // for a file; below Options.Timeout, as names are wanted, too
)

// Unwind walks the user stack of a thread of process pid. It returns within
// Options.Timeout, whatever the process and its files do. If a file cannot be read it
// follows frame pointers, and the error says why. Of a process that has exited it knows
// what an earlier call saw.
func (r *Resolver) Unwind(pid int, t *unwind.Thread) (unwind.Result, error) {
	type answer struct {
		unwind.Result
		err error
	}
	a, err := within.Do(r.gate, pid, r.opts.Timeout, func() (a answer) {
		a.Result, a.err = r.walk(pid, t)
		return a
	})
	if err != nil {
		r.timeouts.Add(1)
		return unwind.Result{Frames: []uint64{t.Registers.PC}}, fmt.Errorf("read its files: %w", err)
	}
	return a.Result, a.err
}

func (r *Resolver) walk(pid int, t *unwind.Thread) (out unwind.Result, err error) {
	c := &code{target: target{pid: pid, resolver: r}, tables: map[uint64]*unwindFile{}}
	if err := c.readMaps(); err != nil {
		return unwind.Result{Frames: []uint64{t.Registers.PC}}, err
	}
	defer c.release()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a file may be truncated
	defer func() {
		if p := recover(); p != nil {
			out, err = unwind.Result{Frames: []uint64{t.Registers.PC}}, fmt.Errorf("unwind: %v", p)
		}
	}()
	out = unwind.Walk(t, c)
	return out, c.err
}

// code is what is executable in a process. It implements unwind.Code.
type code struct {
	target target
	maps   []mapping
	tables map[uint64]*unwindFile // by start of the mapping; nil: none
	err    error                  // the first one
}

var errExited = errors.New("the process has exited, or may not be read")

func (c *code) readMaps() error {
	p, now := &c.target, time.Now()
	kept := p.resolver.kept
	f, err := p.resolver.opener.Maps(p.pid)
	if err == nil {
		defer f.Close()
		sight, lines := kept.record(p.pid, now), 0
		more := sight != nil
		err = scanMaps(f, func(m mapping) bool {
			if lines++; more {
				more = sight.add(m, lines)
			}
			if m.executable {
				c.maps = append(c.maps, m)
			}
			return len(c.maps) < maxCode
		})
		if sight != nil && lines > 0 {
			kept.store(p.pid, sight, now)
		}
	}
	if len(c.maps) == 0 {
		p.ended = true
		if c.maps, p.gone = kept.all(p.pid, now); len(c.maps) > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %w", errExited, err)
		}
		return errExited
	}
	return err
}

// At implements unwind.Code.
func (c *code) At(pc uint64) (t *unwind.Table, bias uint64, ok bool) {
	i, ok := slices.BinarySearchFunc(c.maps, pc, func(m mapping, pc uint64) int {
		switch {
		case m.end <= pc:
			return -1
		case m.start > pc:
			return 1
		}
		return 0
	})
	if !ok {
		return nil, 0, false
	}
	m := c.maps[i]
	u, known := c.tables[m.start]
	if !known {
		var err error
		if u, err = c.file(m); err != nil && c.err == nil {
			c.err = err
		}
		c.tables[m.start] = u
	}
	if u == nil || u.table == nil {
		return nil, 0, true
	}
	at, ok := u.symbols.address(pc - m.start + m.offset)
	if !ok {
		return nil, 0, true
	}
	return u.table, pc - at, true
}

// file returns the unwinding table of a mapping, which must be released; nil: there is
// none.
func (c *code) file(m mapping) (*unwindFile, error) {
	r := c.target.resolver
	if m.name == "[vdso]" {
		return r.vdso.unwinding(m), nil
	}
	if !m.isFile() {
		return nil, nil
	}
	f := c.target.open(m)
	if u := r.unwinding.peek(f.id); u != nil {
		f.file.Close() // may be nil
		return u, nil
	}
	if f.err != nil {
		return nil, fmt.Errorf("%s: %w", m.module(), f.err)
	}
	defer f.file.Close()
	if r.opts.Refuse(f.id.dev, f.id.ino) {
		return nil, fmt.Errorf("%s: not read for a while: it made helpers hang", m.module())
	}
	u, err := r.unwinding.get(f.id, f.file, func(own *os.File) (*unwindFile, error) {
		defer r.opts.Working(c.target.pid, f.id.dev, f.id.ino)()
		return newUnwindFile(own)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.module(), err)
	}
	return u, nil
}

func (c *code) release() {
	for _, u := range c.tables {
		c.target.resolver.unwinding.put(u)
	}
}

// unwindFile is a mapped file and its call frame information.
type unwindFile struct {
	id      fileID
	table   *unwind.Table // nil: it has none
	symbols table         // its segments alone
	mapped  *mapped
	users   int
	used    time.Time
}

func newUnwindFile(f *os.File) (*unwindFile, error) {
	// Read it before it is mapped: a page fault that hangs would hold up the garbage
	// collector, and thus all of this process.
	if _, err := newELF(f); err != nil {
		return nil, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	m, err := mapFile(f)
	if err != nil {
		return nil, err
	}
	u := &unwindFile{mapped: m}
	if err := u.read(); err != nil {
		m.close()
		return nil, err
	}
	return u, nil
}

// read finds the table by the program header, as files without section headers have it,
// or by the section, as static programs do.
func (u *unwindFile) read() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("parse ELF file: %v", p)
		}
	}()
	f := u.mapped.elf
	u.symbols.segments = segments(f)
	machine := map[elf.Machine]*unwind.Machine{elf.EM_X86_64: unwind.AMD64, elf.EM_AARCH64: unwind.ARM64}[f.Machine]
	if machine == nil || f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB {
		return nil
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_GNU_EH_FRAME {
			continue
		}
		header, err := u.mapped.slice(p.Off, p.Filesz)
		if err != nil {
			return err
		}
		u.table, err = unwind.NewTable(machine, unwind.Section{Addr: p.Vaddr, Data: header}, u.segment)
		return err
	}
	if s := f.Section(".eh_frame"); s != nil && s.Type != elf.SHT_NOBITS && s.Flags&elf.SHF_COMPRESSED == 0 {
		frames, err := u.mapped.slice(s.Offset, s.FileSize)
		if err != nil {
			return err
		}
		u.table = unwind.NewTableOf(machine, unwind.Section{Addr: s.Addr, Data: frames})
	}
	return nil
}

// segment returns what the file has from an address to the end of its segment.
func (u *unwindFile) segment(addr uint64) (unwind.Section, bool) {
	for _, s := range u.symbols.segments {
		if addr < s.addr || addr-s.addr >= s.size {
			continue
		}
		data, err := u.mapped.slice(s.offset+(addr-s.addr), s.size-(addr-s.addr))
		return unwind.Section{Addr: addr, Data: data}, err == nil
	}
	return unwind.Section{}, false
}
