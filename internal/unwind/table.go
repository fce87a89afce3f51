package unwind

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Section is a part of a file, and the address it is meant for.
type Section struct {
	Addr uint64
	Data []byte
}

// Limits of a table.
const (
	maxIndex        = 1 << 16 // functions in an index that is made
	maxAugmentation = 16      // characters
)

// Table is the call frame information of a file. It reads the file's data anew for each
// lookup, so that may change at any time.
type Table struct {
	machine *Machine
	frames  Section // .eh_frame, and what follows it
	header  Section // .eh_frame_hdr, with a sorted index of functions
	entries uint64  // in it
	at      uint64  // where it begins in the header
	index   []entry // otherwise: one that was made
}

// entry is a function.
type entry struct {
	start  uint64
	offset uint32 // in .eh_frame
}

var errHeader = errors.New("malformed .eh_frame_hdr")

// NewTable reads the head of .eh_frame_hdr. segment returns what a file has from an
// address on.
func NewTable(m *Machine, header Section, segment func(addr uint64) (Section, bool)) (*Table, error) {
	r := reader{b: header.Data}
	version, frames, count, index := r.u8(), r.u8(), r.u8(), r.u8()
	if r.bad || version != 1 || frames == encodedOmit || frames&encodedIndirect != 0 {
		return nil, errHeader
	}
	at := r.pointer(frames, header.Addr, header.Addr)
	section, ok := segment(at)
	if r.bad || !ok {
		return nil, fmt.Errorf("%w: .eh_frame at 0x%x is not in the file", errHeader, at)
	}
	if count == encodedOmit || index != relativeData|encodedSigned4 {
		return NewTableOf(m, section), nil
	}
	n := r.pointer(count, header.Addr, header.Addr)
	if r.bad {
		return nil, errHeader
	}
	return &Table{machine: m, frames: section, header: header, at: r.at, entries: min(n, (uint64(len(header.Data))-r.at)/8)}, nil
}

// NewTableOf makes an index of .eh_frame, as static programs have none.
func NewTableOf(m *Machine, frames Section) *Table {
	t := &Table{machine: m, frames: frames}
	at := uint64(0)
	for range 2 * maxIndex {
		e, ok := t.record(at)
		if !ok || len(t.index) == maxIndex {
			break
		}
		if e.common != 0 {
			if f, ok := t.function(at); ok && at < math.MaxUint32 {
				t.index = append(t.index, entry{f.start, uint32(at)})
			}
		}
		at = e.end
	}
	slices.SortFunc(t.index, func(a, b entry) int { return cmp.Compare(a.start, b.start) })
	t.index, t.entries = slices.Clip(t.index), uint64(len(t.index))
	return t
}

// Bytes is the memory that the table takes.
func (t *Table) Bytes() int64 { return int64(len(t.index)) * 16 }

// entry returns where a function begins, and its offset in .eh_frame.
func (t *Table) entry(i uint64) (start, offset uint64) {
	if t.index != nil {
		return t.index[i].start, uint64(t.index[i].offset)
	}
	r := reader{b: t.header.Data, at: t.at + 8*i}
	start = t.header.Addr + extend(r.fixed(4), 4)
	return start, t.header.Addr + extend(r.fixed(4), 4) - t.frames.Addr
}

// find sets the rules of the code at pc; false: it has none.
func (t *Table) find(pc uint64, rules *frameRules, w *work) (signal, ok bool) {
	low, high := uint64(0), t.entries // the last entry that begins at pc or before
	for low < high {
		middle := low + (high-low)/2
		if start, _ := t.entry(middle); start <= pc {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == 0 {
		return false, false
	}
	_, offset := t.entry(low - 1)
	f, ok := t.function(offset)
	if !ok || !f.has(pc) {
		return false, false
	}
	return f.common.signal, f.row(pc, rules, w)
}

// record is an entry of .eh_frame: of a function, or what is common to several.
type record struct {
	body   reader
	end    uint64 // offset of the next one
	common uint64 // distance back to what it has in common with others, from its own field; 0: it is that
}

func (t *Table) record(at uint64) (e record, ok bool) {
	r := reader{b: t.frames.Data, at: at}
	size := r.fixed(4)
	if size == 0xffffffff {
		size = r.fixed(8)
	}
	begin := r.at
	r.next(size)
	if r.bad || size < 4 {
		return e, false
	}
	e.end = r.at
	e.body = reader{b: t.frames.Data[:r.at:r.at], at: begin}
	e.common = e.body.fixed(4)
	return e, true
}

// common is what several functions have in common.
type common struct {
	codeAlign       uint64
	dataAlign       int64
	pointerEncoding byte
	signal          bool // they are called by the kernel, as the return from a signal's handler is
	augmented       bool
	code            []byte
}

func (t *Table) common(at uint64) (c common, ok bool) {
	e, ok := t.record(at)
	if !ok || e.common != 0 {
		return c, false
	}
	r := e.body
	version := r.u8()
	augmentation := r.text(maxAugmentation)
	if version != 1 && version != 3 {
		return c, false
	}
	c.codeAlign, c.dataAlign = r.uleb(), r.sleb()
	back := uint64(0)
	if version == 1 {
		back = uint64(r.u8())
	} else {
		back = r.uleb()
	}
	if back != t.machine.back {
		return c, false
	}
	if !t.augment(&c, &r, augmentation) {
		return c, false
	}
	c.code = r.b[r.at:]
	return c, !r.bad
}

// augment reads what the augmentation announces.
func (t *Table) augment(c *common, r *reader, augmentation string) bool {
	if augmentation == "" {
		return true
	}
	if augmentation[0] != 'z' {
		return false // its length is unknown
	}
	c.augmented = true
	size := r.uleb()
	end := r.at + size
	for _, a := range augmentation[1:] {
		switch a {
		case 'R':
			c.pointerEncoding = r.u8()
		case 'P': // of the personality routine
			encoding := r.u8()
			r.pointer(encoding&^encodedIndirect, t.frames.Addr, t.frames.Addr)
		case 'L':
			r.u8()
		case 'S':
			c.signal = true
		case 'B': // arm64: which key signs the return address
		default:
			return false
		}
	}
	if r.bad || r.at > end || end > uint64(len(r.b)) {
		return false
	}
	r.at = end
	return true
}

// function is the information of one function.
type function struct {
	common      common
	start, size uint64
	code        []byte
}

func (f *function) has(pc uint64) bool { return pc >= f.start && pc-f.start < f.size }

func (t *Table) function(at uint64) (f function, ok bool) {
	e, ok := t.record(at)
	if !ok || e.common == 0 {
		return f, false
	}
	r := e.body
	if f.common, ok = t.common(r.at - 4 - e.common); !ok {
		return f, false
	}
	encoding := f.common.pointerEncoding
	if encoding&encodedIndirect != 0 {
		return f, false
	}
	f.start = r.pointer(encoding, t.frames.Addr, t.frames.Addr)
	f.size = r.pointer(encoding&0x0f, 0, 0)
	if f.common.augmented {
		r.block()
	}
	f.code = r.b[min(r.at, uint64(len(r.b))):]
	return f, !r.bad
}

// row sets the rules at pc.
func (f *function) row(pc uint64, rules *frameRules, w *work) bool {
	rules.ruleSet, rules.depth = ruleSet{}, 0
	rules.initial = ruleSet{}
	if !rules.run(&f.common, f.common.code, 0, ^uint64(0), w) {
		return false
	}
	rules.initial = rules.ruleSet
	return rules.run(&f.common, f.code, f.start, pc, w)
}
