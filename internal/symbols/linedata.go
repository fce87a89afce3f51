package symbols

import (
	"cmp"
	"context"
	"debug/elf"
	"fmt"
	"path"
)

// lineData is the debug information of one file: Go's table, DWARF, or a separate debug
// file, opened on demand.
type lineData struct {
	where  lineOrigin
	room   int64
	shared *quota      // limits decompressed data of all files
	index  *dwarfIndex // of dwarf, known before it is opened

	program  *mapped // the file itself
	golang   *goData
	dwarf    *dwarfData
	noGo     bool
	noneElse bool // there is no DWARF
}

// source finds the source line of an address; empty: unknown.
func (d *lineData) source(ctx context.Context, addr uint64) (*Source, error) {
	if err := d.openGo(); err != nil {
		return nil, err
	}
	if d.golang != nil {
		if s := d.golang.source(addr); s != nil {
			return s, nil
		}
	}
	if err := d.openDWARF(ctx); err != nil {
		if d.golang == nil {
			return nil, err
		}
		d.noneElse = true // DWARF of the C part of a Go program
	}
	if d.dwarf != nil {
		if s, err := d.dwarf.source(ctx, addr); s != nil || err != nil {
			return s, err
		}
	}
	return &Source{}, nil
}

func (d *lineData) openProgram() (err error) {
	if d.program == nil {
		if d.program, err = d.where.open(); err == nil {
			d.program.shared = d.shared
		}
	}
	return err
}

func (d *lineData) openGo() error {
	if d.golang != nil || d.noGo || !d.where.table.hasGo {
		return nil
	}
	if err := d.openProgram(); err != nil {
		return err
	}
	g, err := openGo(d.program)
	if d.noGo = err != nil; err == nil {
		d.golang = g
	}
	return nil
}

func (d *lineData) openDWARF(ctx context.Context) error {
	t := d.where.table
	if d.dwarf != nil || d.noneElse {
		return nil
	}
	var m *mapped
	switch {
	case t.hasLines:
		if err := d.openProgram(); err != nil {
			return err
		}
		m = d.program
	case t.debugAt != nil:
		var err error
		if m, err = mapDebug(*t.debugAt, d.where.debug); err != nil {
			return err
		}
		m.shared = d.shared
	default:
		d.noneElse = true
		return nil
	}
	defer func() {
		if d.dwarf == nil && m != d.program {
			m.close()
		}
	}()
	if m.elf.Type == elf.ET_REL { // addresses are relative to sections
		return fmt.Errorf("%w of a program", errNoDWARF)
	}
	own, err := openDWARF(ctx, m, d.index, d.room)
	if err != nil {
		return err
	}
	d.dwarf, d.index = own, own.index
	if name, id := altLink(m); name != "" {
		own.alt = openAlt(ctx, d.where, name, id, d.room-m.extraN, d.shared)
	}
	return nil
}

func mapDebug(p debugPath, o opener) (*mapped, error) {
	f, err := p.open(o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotOpened, err)
	}
	defer f.Close()
	return mapFile(f)
}

// openAlt opens the file shared by dwz(1). Without it only some names are missing.
func openAlt(ctx context.Context, w lineOrigin, name, id string, room int64, shared *quota) *dwarfData {
	from := debugPath{path: w.path, inRoot: w.inRoot}
	if w.table.debugAt != nil {
		from = *w.table.debugAt
	}
	paths := debugRef{buildID: id}.candidates("")
	if path.IsAbs(name) {
		paths = append(paths, name)
	} else {
		paths = append(paths, path.Join(path.Dir(from.path), name))
	}
	for _, p := range paths {
		if alt, err := openAltAt(ctx, debugPath{p, from.inRoot}, w.debug, id, room, shared); err == nil {
			return alt
		}
	}
	return nil
}

func openAltAt(ctx context.Context, at debugPath, o opener, id string, room int64, shared *quota) (alt *dwarfData, err error) {
	m, err := mapDebug(at, o)
	if err != nil {
		return nil, err
	}
	m.shared = shared
	defer func() {
		if alt == nil {
			m.close()
		}
	}()
	notes, err := m.section(".note.gnu.build-id", 0)
	if err != nil || len(notes) > maxNotes || noteBuildID(notes, m.elf.ByteOrder) != id {
		return nil, cmp.Or(err, errOtherFile)
	}
	d, err := openDWARF(ctx, m, &dwarfIndex{}, room)
	if err != nil {
		return nil, err
	}
	d.index = &dwarfIndex{units: headers(d.info)}
	return d, nil
}

// bytes returns the memory used, excluding mapped files.
func (d *lineData) bytes() int64 {
	n := d.index.bytes()
	if d.program != nil {
		n += d.program.extraN
	}
	if w := d.dwarf; w != nil {
		if w.file != d.program {
			n += w.file.extraN
		}
		n += w.bytes()
		if w.alt != nil {
			n += w.alt.file.extraN + w.alt.index.bytes() + w.alt.bytes()
		}
	}
	return n
}

func (d *lineData) close() {
	if d.dwarf != nil {
		d.dwarf.close()
	}
	if d.program != nil {
		d.program.close()
	}
	d.program, d.golang, d.dwarf = nil, nil, nil
}
