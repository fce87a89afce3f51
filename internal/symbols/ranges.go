package symbols

// Entry kinds of .debug_rnglists.
const (
	rleEnd = iota
	rleBaseAddressx
	rleStartxEndx
	rleStartxLength
	rleOffsetPair
	rleBaseAddress
	rleStartEnd
	rleStartLength
)

// ranges calls yield for each address range (end exclusive) of an entry until it
// returns false. Truncated data ends the list.
func (u *dwarfUnit) ranges(w *workBudget, e *entry, yield func(start, end uint64) bool) error {
	low, ok := u.address(e.vals[attrLow])
	if high := e.vals[attrHigh]; ok {
		if high.kind == valNumber {
			if !yield(low, low+high.n) {
				return nil
			}
		} else if end, ok := u.address(high); ok && !yield(low, end) {
			return nil
		}
	}
	switch v := e.vals[attrRanges]; {
	case v.kind == valRangesx && u.version >= 5:
		if v.n > 1<<32 || u.rangesBase > 1<<62 {
			return nil
		}
		c := cursor{b: u.file.secs.rnglists, at: u.rangesBase + v.n*4}
		at := uint64(c.u32())
		if c.bad {
			return nil
		}
		return u.rangeList5(w, u.rangesBase+at, yield)
	case v.kind != valNumber:
		return nil
	case u.version >= 5:
		return u.rangeList5(w, v.n, yield)
	default:
		return u.rangeList(w, v.n, yield)
	}
}

// rangeList reads a list of .debug_ranges.
func (u *dwarfUnit) rangeList(w *workBudget, at uint64, yield func(start, end uint64) bool) error {
	base := u.base
	c := cursor{b: u.file.secs.ranges, at: at}
	for {
		low, high := c.u64(), c.u64()
		if c.bad || low == 0 && high == 0 {
			return nil
		}
		if err := w.step(1); err != nil {
			return err
		}
		if low == 1<<64-1 {
			base = high
		} else if !yield(base+low, base+high) {
			return nil
		}
	}
}

// rangeList5 reads a list of .debug_rnglists.
func (u *dwarfUnit) rangeList5(w *workBudget, at uint64, yield func(start, end uint64) bool) error {
	base := u.base
	c := cursor{b: u.file.secs.rnglists, at: at}
	for {
		kind := c.u8()
		if c.bad || kind == rleEnd {
			return nil
		}
		if err := w.step(1); err != nil {
			return err
		}
		var start, end uint64
		known := true // both addresses are known
		switch kind {
		case rleBaseAddressx:
			base, _ = u.indexed(c.uleb())
			continue
		case rleBaseAddress:
			base = c.u64()
			continue
		case rleStartxEndx:
			var also bool
			start, known = u.indexed(c.uleb())
			end, also = u.indexed(c.uleb())
			known = known && also
		case rleStartxLength:
			start, known = u.indexed(c.uleb())
			end = start + c.uleb()
		case rleOffsetPair:
			start, end = base+c.uleb(), base+c.uleb()
		case rleStartEnd:
			start, end = c.u64(), c.u64()
		case rleStartLength:
			start = c.u64()
			end = start + c.uleb()
		default:
			return nil
		}
		if c.bad || known && !yield(start, end) {
			return nil
		}
	}
}
