package symbols

import (
	"cmp"
	"context"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Limits of what is kept of one file's debug information.
const (
	maxUnits      = 1 << 20
	maxUnitRanges = 1 << 22
	maxRanges     = 64 << 20 // bytes of the section of address ranges
	unitsKept     = 4        // compile units that stay decoded
)

var errNoDWARF = errors.New("no debug information")

// unitRange says which compile unit an address belongs to.
type unitRange struct {
	start, end uint64
	unit       uint32 // index in dwarfIndex.units
}

// unitHeader is where a compile unit lies in .debug_info.
type unitHeader struct {
	start, end uint64
	abbrev     uint64
	address    byte // bytes of an address
}

// dwarfIndex finds the compile unit of an address. It is immutable.
type dwarfIndex struct {
	units  []unitHeader
	ranges []unitRange // by start
}

func (x *dwarfIndex) bytes() int64 {
	if x == nil {
		return 0
	}
	return int64(len(x.units))*32 + int64(len(x.ranges))*24
}

// dwarfData reads the debug information of one file, a compile unit at a time.
// debug/dwarf decodes the abbreviations of all units at once, which for a
// kernel takes a hundred megabytes; so it is shown one unit at a time. It
// belongs to one goroutine.
type dwarfData struct {
	file  *mapped
	index *dwarfIndex
	info  []byte
	first [dwarfFirst]byte // what .debug_info begins with
	secs  dwarfSections
	units []*dwarfUnit // decoded, the latest used last
	alt   *dwarfData   // what dwz(1) moved to another file, or nil
}

// dwarfFirst is the size of a unit's header, that of DWARF 4 in 32 bits.
const dwarfFirst = 11

type dwarfSections struct {
	aranges, abbrev, line, lineStr, ranges, rnglists, str, strOffsets, addr []byte
}

// openDWARF takes over the file. An index of it that is known already saves
// reading every unit.
func openDWARF(ctx context.Context, file *mapped, index *dwarfIndex, room int64) (*dwarfData, error) {
	if file.elf.Data != elf.ELFDATA2LSB || file.elf.Class != elf.ELFCLASS64 {
		return nil, fmt.Errorf("%w of a little-endian program of 64 bits", errNoDWARF)
	}
	d := &dwarfData{file: file, index: index}
	for _, s := range []struct {
		name string
		to   *[]byte
	}{
		{".debug_info", &d.info}, {".debug_aranges", &d.secs.aranges}, {".debug_abbrev", &d.secs.abbrev}, {".debug_line", &d.secs.line},
		{".debug_line_str", &d.secs.lineStr}, {".debug_ranges", &d.secs.ranges}, {".debug_rnglists", &d.secs.rnglists},
		{".debug_str", &d.secs.str}, {".debug_str_offsets", &d.secs.strOffsets}, {".debug_addr", &d.secs.addr},
	} {
		b, err := file.section(s.name, room)
		if err != nil {
			return nil, err
		}
		*s.to = b
	}
	if len(d.info) < dwarfFirst {
		return nil, errNoDWARF
	}
	if len(d.secs.ranges) > maxRanges || len(d.secs.rnglists) > maxRanges {
		return nil, fmt.Errorf("address ranges are %w", errTooLarge)
	}
	if err := file.writable(".debug_info", dwarfFirst); err != nil {
		return nil, err
	}
	copy(d.first[:], d.info)
	if d.index == nil {
		x, err := d.makeIndex(ctx)
		if err != nil {
			return nil, err
		}
		d.index = x
	}
	return d, nil
}

// headers finds the compile units.
func headers(info []byte) []unitHeader {
	var out []unitHeader
	for at := uint64(0); at+dwarfFirst <= uint64(len(info)) && len(out) < maxUnits; {
		b := info[at:]
		if binary.LittleEndian.Uint32(b) == 0xffffffff {
			break // of 64 bits: nobody's compiler writes them unless asked
		}
		u := unitHeader{start: at, end: at + 4 + uint64(binary.LittleEndian.Uint32(b))}
		if u.end > uint64(len(info)) || u.end < at+dwarfFirst {
			break
		}
		wanted := true
		switch version := binary.LittleEndian.Uint16(b[4:]); version {
		case 2, 3, 4:
			u.abbrev, u.address = uint64(binary.LittleEndian.Uint32(b[6:])), b[10]
		case 5:
			const compile, partial = 1, 3
			wanted = b[6] == compile || b[6] == partial
			u.address = b[7]
			if at+12 > uint64(len(info)) {
				return out
			}
			u.abbrev = uint64(binary.LittleEndian.Uint32(b[8:]))
		default:
			wanted = false
		}
		if wanted && u.address == 8 {
			out = append(out, u)
		}
		at = u.end
	}
	return out
}

// makeIndex reads the address ranges of every compile unit: from .debug_aranges,
// and where a compiler has left that out, from the unit.
func (d *dwarfData) makeIndex(ctx context.Context) (*dwarfIndex, error) {
	x := &dwarfIndex{units: headers(d.info)}
	listed := x.addAranges(d.secs.aranges)
	for i, u := range x.units {
		if listed[uint32(i)] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		data, err := d.decode(u)
		if err != nil {
			continue
		}
		r := data.Reader()
		r.Seek(dwarf.Offset(u.start + d.headerSize(u)))
		e, err := r.Next()
		if err != nil || e == nil || e.Tag != dwarf.TagCompileUnit {
			continue
		}
		ranges, err := data.Ranges(e)
		if err != nil {
			continue
		}
		for _, a := range ranges {
			x.add(a[0], a[1], uint32(i))
		}
	}
	slices.SortFunc(x.ranges, func(a, b unitRange) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	x.ranges = slices.Clone(x.ranges)
	return x, nil
}

func (x *dwarfIndex) add(start, end uint64, unit uint32) {
	if start < end && start != 0 && len(x.ranges) < maxUnitRanges { // 0: the linker has dropped it
		x.ranges = append(x.ranges, unitRange{start, end, unit})
	}
}

func (d *dwarfData) headerSize(u unitHeader) uint64 {
	if binary.LittleEndian.Uint16(d.info[u.start+4:]) >= 5 {
		return dwarfFirst + 1
	}
	return dwarfFirst
}

// decode shows debug/dwarf one unit: what comes before it looks like one unit
// that nobody reads, so that offsets stay what they are.
func (d *dwarfData) decode(u unitHeader) (data *dwarf.Data, err error) {
	if u.start > 0 {
		if u.start < dwarfFirst {
			return nil, errNoDWARF
		}
		b := d.info[:dwarfFirst]
		binary.LittleEndian.PutUint32(b, uint32(u.start-4))
		binary.LittleEndian.PutUint16(b[4:], 4)
		binary.LittleEndian.PutUint32(b[6:], uint32(u.abbrev))
		b[10] = 8
		defer copy(b, d.first[:])
	}
	s := &d.secs
	data, err = dwarf.New(s.abbrev, nil, nil, d.info[:u.end:u.end], s.line, nil, s.ranges, s.str)
	if err != nil {
		return nil, err
	}
	for _, a := range []struct {
		name string
		b    []byte
	}{
		{".debug_line_str", s.lineStr}, {".debug_rnglists", s.rnglists},
		{".debug_str_offsets", s.strOffsets}, {".debug_addr", s.addr},
	} {
		if a.b == nil {
			continue
		}
		if err := data.AddSection(a.name, a.b); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// find returns the units that may hold an address, by their ranges.
func (x *dwarfIndex) find(addr uint64) []uint32 {
	i, _ := slices.BinarySearchFunc(x.ranges, addr, func(r unitRange, a uint64) int {
		if r.start <= a {
			return -1
		}
		return 1
	})
	var out []uint32
	for back := 0; i > 0 && back < maxOverlap; back++ {
		i--
		if r := x.ranges[i]; addr < r.end && !slices.Contains(out, r.unit) {
			out = append(out, r.unit)
		}
	}
	return out
}

// source finds where an address is; nil: the file does not say.
func (d *dwarfData) source(ctx context.Context, addr uint64) (*Source, error) {
	for _, i := range d.index.find(addr) {
		u, err := d.unit(ctx, i)
		if err != nil {
			return nil, err
		}
		chain, err := u.chain(ctx, addr)
		if err != nil {
			return nil, err
		}
		if len(chain) > 0 {
			return sourceOf(chain), nil
		}
	}
	return nil, nil
}

// unit decodes a compile unit, and keeps the few that were used last.
func (d *dwarfData) unit(ctx context.Context, i uint32) (*dwarfUnit, error) {
	for at, u := range d.units {
		if u.number == i {
			d.units = append(slices.Delete(d.units, at, at+1), u)
			return u, nil
		}
	}
	if int(i) >= len(d.index.units) || d.index.units[i].end > uint64(len(d.info)) {
		return nil, errNoDWARF // another file than the index was made of
	}
	u, err := d.newUnit(ctx, i)
	if err != nil {
		return nil, err
	}
	if len(d.units) >= unitsKept {
		d.units = slices.Delete(d.units, 0, 1)
	}
	d.units = append(d.units, u)
	return u, nil
}

func (d *dwarfData) close() {
	if d.alt != nil {
		d.alt.close()
	}
	d.file.close()
}
