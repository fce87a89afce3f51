package symbols

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// addAranges adds the ranges of .debug_aranges and returns the units listed there,
// which then need not be read.
func (x *dwarfIndex) addAranges(w *workBudget, b []byte) (listed []bool, err error) {
	listed = make([]bool, len(x.units))
	// Length, version, unit offset, address and segment size; then pairs of address and
	// length, aligned to their size.
	const header, pair = 12, 16
	for len(b) >= header {
		if err := w.step(1); err != nil {
			return nil, err
		}
		size := uint64(binary.LittleEndian.Uint32(b)) + 4
		if size < header || size > uint64(len(b)) {
			break // includes 64-bit DWARF
		}
		set := b[:size]
		b = b[size:]
		if binary.LittleEndian.Uint16(set[4:]) != 2 || set[10] != 8 || set[11] != 0 {
			continue
		}
		at := uint64(binary.LittleEndian.Uint32(set[6:]))
		unit, ok := slices.BinarySearchFunc(x.units, at, func(h unitHeader, a uint64) int { return cmp.Compare(h.start, a) })
		if !ok || len(set) < pair {
			continue
		}
		for set = set[pair:]; len(set) >= pair; set = set[pair:] {
			start, n := binary.LittleEndian.Uint64(set), binary.LittleEndian.Uint64(set[8:])
			if start == 0 && n == 0 {
				break
			}
			if err := w.step(1); err != nil {
				return nil, err
			}
			x.add(start, start+n, uint32(unit))
			listed[unit] = true
		}
	}
	return listed, nil
}
