package symbols

import (
	"cmp"
	"context"
	"debug/dwarf"
	"errors"
	"io"
	"slices"
)

const (
	maxFunctions = 1 << 18 // of one compile unit
	maxOrigins   = 8       // entries from a function to its name
	checkEvery   = 1 << 10 // entries or lines read between two looks at the time
)

// dwarfUnit is one decoded compile unit.
type dwarfUnit struct {
	file      *dwarfData
	number    uint32
	data      *dwarf.Data
	header    unitHeader
	entry     *dwarf.Entry
	functions []dwarfFunction // by start
}

type dwarfFunction struct {
	start, end uint64
	entry      dwarf.Offset
}

func (d *dwarfData) newUnit(ctx context.Context, number uint32) (*dwarfUnit, error) {
	h := d.index.units[number]
	data, err := d.decode(h)
	if err != nil {
		return nil, err
	}
	u := &dwarfUnit{file: d, number: number, data: data, header: h}
	r := data.Reader()
	r.Seek(dwarf.Offset(h.start + d.headerSize(h)))
	if u.entry, err = r.Next(); err != nil || u.entry == nil {
		return nil, cmp.Or(err, errNoDWARF)
	}
	for n := 0; len(u.functions) < maxFunctions; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e, err := r.Next()
		if err != nil || e == nil {
			break // a torn unit: what came before it counts
		}
		switch e.Tag {
		case dwarf.TagSubprogram:
		case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType, dwarf.TagEnumerationType, dwarf.TagSubroutineType, dwarf.TagArrayType:
			r.SkipChildren() // they only declare functions
			continue
		default:
			continue
		}
		ranges, err := data.Ranges(e)
		if err != nil || len(ranges) == 0 {
			continue
		}
		for _, a := range ranges {
			if a[0] < a[1] {
				u.functions = append(u.functions, dwarfFunction{a[0], a[1], e.Offset})
			}
		}
		r.SkipChildren()
	}
	slices.SortFunc(u.functions, func(a, b dwarfFunction) int { return cmp.Compare(a.start, b.start) })
	return u, nil
}

// chain returns the functions that an address is in, innermost first, with
// where in each of them; nothing if the unit does not know the address.
func (u *dwarfUnit) chain(ctx context.Context, addr uint64) ([]Inlined, error) {
	files, file, line, err := u.line(ctx, addr)
	if err != nil {
		return nil, err
	}
	inlined, err := u.inlined(ctx, addr)
	if err != nil {
		return nil, err
	}
	if file == "" && len(inlined) == 0 {
		return nil, nil
	}
	// The line table says where the innermost one is, and each entry where it was called from.
	var out []Inlined
	for _, e := range slices.Backward(inlined) {
		out = append(out, Inlined{Function: u.function(e), File: file, Line: line})
		file, line = "", 0
		if i, ok := e.Val(dwarf.AttrCallFile).(int64); ok && i >= 0 && i < int64(len(files)) && files[i] != nil {
			file = sourceFile(files[i].Name)
		}
		if n, ok := e.Val(dwarf.AttrCallLine).(int64); ok {
			line = sourceLine(int(n))
		}
	}
	return append(out, Inlined{File: file, Line: line}), nil
}

// line looks an address up in the line table.
func (u *dwarfUnit) line(ctx context.Context, addr uint64) (files []*dwarf.LineFile, file string, line int, err error) {
	at, ok := u.entry.Val(dwarf.AttrStmtList).(int64)
	if !ok || !saneLineHeader(u.file.secs.line, at) {
		return nil, "", 0, nil
	}
	r, err := u.data.LineReader(u.entry)
	if err != nil || r == nil {
		return nil, "", 0, nil
	}
	var last, e dwarf.LineEntry
	have := false // last is in the sequence that goes on
	for n := 0; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return nil, "", 0, ctx.Err()
		}
		if err := r.Next(&e); err != nil {
			if errors.Is(err, io.EOF) {
				return r.Files(), "", 0, nil
			}
			return nil, "", 0, nil // torn
		}
		if have && last.Address <= addr && addr < e.Address {
			if last.File != nil {
				file = sourceFile(last.File.Name)
			}
			return r.Files(), file, sourceLine(last.Line), nil
		}
		last, have = e, !e.EndSequence
	}
}

// inlined returns the entries of inlined functions that hold an address, outermost first.
func (u *dwarfUnit) inlined(ctx context.Context, addr uint64) ([]*dwarf.Entry, error) {
	at, ok := u.functionAt(addr)
	if !ok {
		return nil, nil
	}
	r := u.data.Reader()
	r.Seek(at)
	if e, err := r.Next(); err != nil || e == nil || !e.Children {
		return nil, nil
	}
	var out []*dwarf.Entry
	blocks := 0 // lexical blocks entered within the innermost function so far
	for n := 0; len(out) < maxInlined; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e, err := r.Next()
		if err != nil || e == nil {
			break // torn
		}
		if e.Tag == 0 {
			if blocks == 0 {
				break
			}
			blocks--
			continue
		}
		holds, bounded := u.holds(e, addr)
		switch {
		case holds && e.Tag == dwarf.TagInlinedSubroutine:
			out = append(out, e)
			if !e.Children {
				return out, nil
			}
			blocks = 0 // where it ends, the search does
		case e.Tag == dwarf.TagLexDwarfBlock && (holds || !bounded):
			if e.Children {
				blocks++
			}
		default:
			r.SkipChildren()
		}
	}
	return out, nil
}

// holds tells whether an entry has addresses, and this one among them.
func (u *dwarfUnit) holds(e *dwarf.Entry, addr uint64) (holds, bounded bool) {
	if e.Tag != dwarf.TagInlinedSubroutine && e.Tag != dwarf.TagLexDwarfBlock {
		return false, false
	}
	ranges, err := u.data.Ranges(e)
	if err != nil {
		return false, true
	}
	for _, a := range ranges {
		if a[0] <= addr && addr < a[1] {
			return true, true
		}
	}
	return false, len(ranges) > 0
}

func (u *dwarfUnit) functionAt(addr uint64) (dwarf.Offset, bool) {
	i, _ := slices.BinarySearchFunc(u.functions, addr, func(f dwarfFunction, a uint64) int {
		if f.start <= a {
			return -1
		}
		return 1
	})
	for back := 0; i > 0 && back < maxOverlap; back++ {
		i--
		if f := u.functions[i]; addr < f.end {
			return f.entry, true
		}
	}
	return 0, false
}

// function is the name of an inlined function: the mangled one, which tells
// the name space too, where there is one.
func (u *dwarfUnit) function(e *dwarf.Entry) string {
	name := u.name(e, maxOrigins)
	if name == "" {
		return "[unknown]"
	}
	return readable(name)
}

func (u *dwarfUnit) name(e *dwarf.Entry, origins int) string {
	plain := ""
	for ; e != nil && origins > 0; origins-- {
		for _, attr := range []dwarf.Attr{dwarf.AttrLinkageName, dwarf.AttrName} {
			f := e.AttrField(attr)
			if f == nil {
				continue
			}
			name := ""
			switch v := f.Val.(type) {
			case string:
				name = v
			case int64:
				if f.Class == dwarf.ClassStringAlt {
					name = u.file.altString(v)
				}
			}
			if attr == dwarf.AttrLinkageName && name != "" {
				return name
			}
			plain = cmp.Or(plain, name)
		}
		origin := e.AttrField(dwarf.AttrAbstractOrigin)
		if origin == nil {
			origin = e.AttrField(dwarf.AttrSpecification)
		}
		if origin == nil {
			break
		}
		switch v := origin.Val.(type) {
		case dwarf.Offset:
			var next *dwarfUnit
			if next, e = u.file.entryAt(u, uint64(v)); next != nil {
				u = next
			}
		case int64:
			if origin.Class != dwarf.ClassReferenceAlt || u.file.alt == nil || v < 0 {
				return plain
			}
			next, there := u.file.alt.entryAt(nil, uint64(v))
			if next == nil {
				return plain
			}
			u, e = next, there
		default:
			return plain
		}
	}
	return plain
}

// entryAt reads an entry of the unit u, or of whichever unit it is in.
func (d *dwarfData) entryAt(u *dwarfUnit, at uint64) (*dwarfUnit, *dwarf.Entry) {
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
		if !ok || d.index.units[i].end > uint64(len(d.info)) {
			return nil, nil
		}
		h := d.index.units[i]
		data, err := d.decode(h)
		if err != nil {
			return nil, nil
		}
		u = &dwarfUnit{file: d, number: uint32(i), data: data, header: h}
	}
	if at < u.header.start+d.headerSize(u.header) {
		return nil, nil
	}
	r := u.data.Reader()
	r.Seek(dwarf.Offset(at))
	e, err := r.Next()
	if err != nil {
		return nil, nil
	}
	return u, e
}

// altString is a string of the file that dwz(1) moved common strings to.
func (d *dwarfData) altString(at int64) string {
	if d.alt == nil || at < 0 || at >= int64(len(d.alt.secs.str)) {
		return ""
	}
	return zeroEnded(d.alt.secs.str[at:], maxMangled)
}
