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
	"sort"
)

// Limits per debug file: 4 MiB of units and 12 MiB of ranges. A distribution's kernel
// has 3,000 units and 30,000 ranges, a browser 30,000 and 400,000.
const (
	maxUnits      = 1 << 17
	maxUnitRanges = 1 << 19
	unitsKept     = 4 // cached units
	abbrevsKept   = 4 // cached abbreviation tables
)

var errNoDWARF = errors.New("no debug information")

// unitRange maps addresses to a compile unit.
type unitRange struct {
	start, end uint64
	unit       uint32 // index in dwarfIndex.units
}

// unitHeader is the header of a compile unit in .debug_info.
type unitHeader struct {
	start, end uint64
	abbrev     uint64
	address    byte // size of an address
}

// dwarfIndex maps addresses to compile units. It is immutable.
type dwarfIndex struct {
	units  []unitHeader
	ranges []unitRange // by start
	// refused: the abbreviations of some unit exceed a limit; the unit is left out.
	refused bool
}

func (x *dwarfIndex) bytes() int64 {
	if x == nil {
		return 0
	}
	return int64(cap(x.units))*32 + int64(cap(x.ranges))*24
}

// dwarfData reads the debug information of one untrusted file. It decodes on demand,
// keeps bounded data only, and counts every step (see workBudget); debug/dwarf is not
// meant for untrusted files. It belongs to one goroutine.
type dwarfData struct {
	file    *mapped
	index   *dwarfIndex
	info    []byte
	secs    dwarfSections
	units   recent[uint32, *dwarfUnit]
	abbrevs recent[uint64, *abbrevs] // by their offset
	alt     *dwarfData               // file shared by dwz(1), or nil
}

// recent keeps a few values, the most recently used last.
type recent[K comparable, V any] []struct {
	key   K
	value V
}

// get returns the value of a key, which it reads if it is not there.
func (r *recent[K, V]) get(key K, most int, read func() (V, error)) (V, error) {
	for i, e := range *r {
		if e.key == key {
			*r = append(slices.Delete(*r, i, i+1), e)
			return e.value, nil
		}
	}
	v, err := read()
	if err != nil {
		return v, err
	}
	if len(*r) >= most {
		*r = slices.Delete(*r, 0, 1)
	}
	*r = append(*r, struct {
		key   K
		value V
	}{key, v})
	return v, nil
}

// dwarfFirst is the size of a DWARF 4 unit header (32-bit).
const dwarfFirst = 11

type dwarfSections struct {
	aranges, abbrev, line, lineStr, ranges, rnglists, str, strOffsets, addr []byte
}

// openDWARF takes ownership of the file. A known index saves reading all units.
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
	for at, n := uint64(0), 0; at+dwarfFirst <= uint64(len(info)) && n < maxUnits; n++ {
		b := info[at:]
		if binary.LittleEndian.Uint32(b) == 0xffffffff {
			break // 64-bit DWARF is rare and not supported
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

// makeIndex collects the address ranges of all compile units from .debug_aranges, or
// from the unit if it is not listed there.
func (d *dwarfData) makeIndex(ctx context.Context) (*dwarfIndex, error) {
	w := newWorkBudget(ctx)
	x := &dwarfIndex{units: headers(d.info)}
	listed, err := x.addAranges(w, d.secs.aranges)
	if err != nil {
		return nil, err
	}
	was := d.index
	d.index = x
	defer func() { d.index = was }()
	var u dwarfUnit
	var a *abbrevs
	var last [2]uint64 // offset and number of the last a
	for i, h := range x.units {
		if listed[i] {
			continue
		}
		// Only the unit's own entry is needed, usually the first abbreviation.
		c := cursor{b: d.info[:h.end], at: h.start + d.headerSize(h)}
		if want := [2]uint64{h.abbrev, c.uleb()}; a == nil || want != last {
			a, err = readAbbrevs(w, d.secs.abbrev, want[0], want[1])
			last = want
		}
		if errors.Is(err, errTooLarge) {
			a, err, x.refused = nil, nil, true // skip this unit
			continue
		}
		if err != nil {
			return nil, err
		}
		err := d.openUnit(w, uint32(i), a, &u)
		if err == nil && u.entry.tag == dwarf.TagCompileUnit {
			err = u.ranges(w, &u.entry, func(start, end uint64) bool {
				x.add(start, end, uint32(i))
				return len(x.ranges) < maxUnitRanges
			})
		}
		if err != nil && !errors.Is(err, errBadEntry) && !errors.Is(err, errNoDWARF) {
			return nil, err
		}
	}
	slices.SortFunc(x.ranges, func(a, b unitRange) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	return x, nil
}

func (x *dwarfIndex) add(start, end uint64, unit uint32) {
	if start < end && start != 0 && len(x.ranges) < maxUnitRanges { // 0: removed by the linker
		x.ranges = append(x.ranges, unitRange{start, end, unit})
	}
}

func (d *dwarfData) headerSize(u unitHeader) uint64 {
	if binary.LittleEndian.Uint16(d.info[u.start+4:]) >= 5 {
		return dwarfFirst + 1
	}
	return dwarfFirst
}

// find returns the units whose ranges contain an address.
func (x *dwarfIndex) find(addr uint64) []uint32 {
	i := sort.Search(len(x.ranges), func(i int) bool { return x.ranges[i].start > addr })
	var out []uint32
	for back := 0; i > 0 && back < maxOverlap; back++ {
		i--
		if r := x.ranges[i]; addr < r.end && !slices.Contains(out, r.unit) {
			out = append(out, r.unit)
		}
	}
	return out
}

// unit opens a compile unit and caches it.
func (d *dwarfData) unit(w *workBudget, i uint32) (*dwarfUnit, error) {
	return d.units.get(i, unitsKept, func() (*dwarfUnit, error) {
		if int(i) >= len(d.index.units) {
			return nil, errNoDWARF // the index belongs to another file
		}
		at := d.index.units[i].abbrev
		a, err := d.abbrevs.get(at, abbrevsKept, func() (*abbrevs, error) { return readAbbrevs(w, d.secs.abbrev, at, 0) })
		if err != nil {
			return nil, err
		}
		u := &dwarfUnit{}
		return u, d.openUnit(w, i, a, u)
	})
}

// bytes returns the memory used besides the index and decompressed data.
func (d *dwarfData) bytes() int64 {
	var n int64
	for _, u := range d.units {
		n += u.value.bytes()
	}
	for _, a := range d.abbrevs {
		n += a.value.bytes()
	}
	return n
}

func (d *dwarfData) close() {
	if d.alt != nil {
		d.alt.close()
	}
	d.file.close()
}
