package symbols

import (
	"cmp"
	"context"
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"slices"
	"sort"
)

// Limits of one compile unit. A function takes 24 bytes.
const (
	maxFunctions = 1 << 17
	maxOrigins   = 8 // references from a function to its name, which may be circular
)

// dwarfUnit is an open compile unit.
type dwarfUnit struct {
	file    *dwarfData
	number  uint32
	header  unitHeader
	version uint16
	abbrevs *abbrevs
	entry   entry // of the unit itself

	base                          uint64 // base address of ranges
	strBase, addrBase, rangesBase uint64

	functions []dwarfFunction // by start
	listed    bool            // functions is complete
}

type dwarfFunction struct {
	start, end uint64
	entry      uint64
}

func (u *dwarfUnit) bytes() int64 { return int64(cap(u.functions))*24 + 512 }

// first is the offset of the unit's own entry.
func (u *dwarfUnit) first() uint64 { return u.header.start + u.file.headerSize(u.header) }

// openUnit reads the unit's header and own entry.
func (d *dwarfData) openUnit(w *workBudget, number uint32, a *abbrevs, u *dwarfUnit) error {
	h := d.index.units[number]
	if h.end > uint64(len(d.info)) || h.start+dwarfFirst > h.end {
		return errNoDWARF // the index belongs to another file
	}
	*u = dwarfUnit{file: d, number: number, header: h, abbrevs: a}
	u.version = binary.LittleEndian.Uint16(d.info[h.start+4:])
	if err := u.read(w, u.first(), &u.entry); err != nil {
		return err
	}
	if u.entry.null {
		return errBadEntry
	}
	u.strBase, _ = u.entry.number(attrStrBase)
	u.addrBase, _ = u.entry.number(attrAddrBase)
	u.rangesBase, _ = u.entry.number(attrRangesBase)
	// Some GCC versions put the entry point into DW_AT_low_pc.
	var ok bool
	if u.base, ok = u.address(u.entry.vals[attrEntry]); !ok {
		u.base, _ = u.address(u.entry.vals[attrLow])
	}
	return nil
}

// list reads the unit's functions.
func (u *dwarfUnit) list(w *workBudget) error {
	if u.listed {
		return nil
	}
	var e entry
	for at := u.entry.next; at < u.header.end && len(u.functions) < maxFunctions; {
		err := u.read(w, at, &e)
		if errors.Is(err, errBadEntry) {
			break // truncated: keep what was read
		}
		if err != nil {
			return err
		}
		at = e.next
		switch e.tag {
		case dwarf.TagSubprogram:
			before := len(u.functions)
			err = u.ranges(w, &e, func(start, end uint64) bool {
				if start < end {
					u.functions = append(u.functions, dwarfFunction{start, end, e.at})
				}
				return len(u.functions) < maxFunctions
			})
			if err == nil && len(u.functions) > before {
				at, err = u.skipChildren(w, &e)
			}
		case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType, dwarf.TagEnumerationType, dwarf.TagSubroutineType, dwarf.TagArrayType:
			at, err = u.skipChildren(w, &e) // contains declarations only
		}
		if errors.Is(err, errBadEntry) {
			break
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(u.functions, func(a, b dwarfFunction) int { return cmp.Compare(a.start, b.start) })
	u.listed = true
	return nil
}

// chain returns the functions that contain an address, innermost first, with the
// position in each; nil if unknown.
func (u *dwarfUnit) chain(w *workBudget, addr uint64) ([]Inlined, error) {
	inlined, err := u.inlined(w, addr)
	if err != nil {
		return nil, err
	}
	lines, err := u.lineTable(w)
	if err != nil {
		return nil, err
	}
	file, line := "", 0
	if lines != nil {
		row, ok, err := lines.find(w, addr)
		if err != nil {
			return nil, err
		}
		if ok {
			line = sourceLine(row.line)
			if file, err = lines.file(w, row.file); err != nil {
				return nil, err
			}
		}
	}
	if file == "" && len(inlined) == 0 {
		return nil, nil
	}
	// The innermost position is in the line table, the others are call sites in the
	// entries.
	var out []Inlined
	for i := range slices.Backward(inlined) {
		e := &inlined[i]
		name, err := u.function(w, e)
		if err != nil {
			return nil, err
		}
		out = append(out, Inlined{Function: name, File: sourceFile(file), Line: line})
		file, line = "", 0
		if n, ok := e.number(attrCallFile); ok && lines != nil {
			if file, err = lines.file(w, n); err != nil {
				return nil, err
			}
		}
		if n, ok := e.number(attrCallLine); ok {
			line = sourceLine(int64(n))
		}
	}
	return append(out, Inlined{File: sourceFile(file), Line: line}), nil
}

// inlined returns the entries of inlined functions at an address, outermost first.
func (u *dwarfUnit) inlined(w *workBudget, addr uint64) ([]entry, error) {
	at, ok := u.functionAt(addr)
	if !ok {
		return nil, nil
	}
	var e entry
	if err := u.read(w, at, &e); err != nil || !e.children {
		return nil, ignoreBroken(err)
	}
	var out []entry
	blocks := 0 // nesting depth of lexical blocks
	for at = e.next; len(out) < maxInlined; {
		if err := u.read(w, at, &e); err != nil {
			return out, ignoreBroken(err)
		}
		at = e.next
		if e.null {
			if blocks == 0 {
				break
			}
			blocks--
			continue
		}
		holds, bounded, err := u.holds(w, &e, addr)
		if err != nil {
			return nil, err
		}
		switch {
		case holds && e.tag == dwarf.TagInlinedSubroutine:
			out = append(out, e)
			if !e.children {
				return out, nil
			}
			blocks = 0 // the search ends with the function
		case e.tag == dwarf.TagLexDwarfBlock && (holds || !bounded):
			if e.children {
				blocks++
			}
		default:
			if at, err = u.skipChildren(w, &e); err != nil {
				return out, ignoreBroken(err)
			}
		}
	}
	return out, nil
}

// ignoreBroken treats undecodable data as the end of data.
func ignoreBroken(err error) error {
	if errors.Is(err, errBadEntry) {
		return nil
	}
	return err
}

// holds reports whether an entry's ranges contain an address.
func (u *dwarfUnit) holds(w *workBudget, e *entry, addr uint64) (holds, bounded bool, err error) {
	if e.tag != dwarf.TagInlinedSubroutine && e.tag != dwarf.TagLexDwarfBlock {
		return false, false, nil
	}
	err = u.ranges(w, e, func(start, end uint64) bool {
		bounded = true
		holds = start <= addr && addr < end
		return !holds
	})
	return holds, bounded, err
}

func (u *dwarfUnit) functionAt(addr uint64) (uint64, bool) {
	i := sort.Search(len(u.functions), func(i int) bool { return u.functions[i].start > addr })
	for back := 0; i > 0 && back < maxOverlap; back++ {
		i--
		if f := u.functions[i]; addr < f.end {
			return f.entry, true
		}
	}
	return 0, false
}

// function returns the name of an inlined function, mangled if available, as that
// includes the namespace.
func (u *dwarfUnit) function(w *workBudget, e *entry) (string, error) {
	name, err := u.name(w, e)
	if err != nil || name == "" {
		return "[unknown]", err
	}
	return printableName(name), nil
}

func (u *dwarfUnit) name(w *workBudget, from *entry) (string, error) {
	plain, e := "", *from
	for range maxOrigins {
		if name := u.text(e.vals[attrLinkage], maxMangled+1); name != "" {
			return name, nil
		}
		plain = cmp.Or(plain, u.text(e.vals[attrName], maxMangled+1))
		origin := e.vals[attrOrigin]
		if origin.kind == valNone {
			origin = e.vals[attrSpecification]
		}
		var err error
		switch origin.kind {
		case valRef:
			u, err = u.file.entryAt(w, u, origin.n, &e)
		case valRefAlt:
			if u.file.alt == nil {
				return plain, nil
			}
			u, err = u.file.alt.entryAt(w, nil, origin.n, &e)
		default:
			return plain, nil
		}
		if err != nil {
			return plain, ignoreBroken(err)
		}
	}
	return plain, nil
}

// entryAt reads an entry of this or another unit.
func (d *dwarfData) entryAt(w *workBudget, u *dwarfUnit, at uint64, e *entry) (*dwarfUnit, error) {
	if u == nil || at < u.header.start || at >= u.header.end {
		i, ok := slices.BinarySearchFunc(d.index.units, at, func(h unitHeader, a uint64) int {
			switch {
			case h.end <= a:
				return -1
			case h.start > a:
				return 1
			}
			return 0
		})
		if !ok {
			return nil, errBadEntry
		}
		var err error
		if u, err = d.unit(w, uint32(i)); err != nil {
			return nil, err
		}
	}
	return u, u.read(w, at, e)
}

// source finds the source line of an address; nil: unknown.
func (d *dwarfData) source(ctx context.Context, addr uint64) (*Source, error) {
	w := newWorkBudget(ctx)
	for _, i := range d.index.find(addr) {
		u, err := d.unit(w, i)
		if err == nil {
			err = u.list(w)
		}
		if errors.Is(err, errBadEntry) {
			continue
		}
		if err != nil {
			return nil, err
		}
		chain, err := u.chain(w, addr)
		if err != nil {
			return nil, err
		}
		if len(chain) > 0 {
			return sourceOf(chain), nil
		}
	}
	return nil, nil
}
