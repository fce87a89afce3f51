package symbols

import (
	"debug/dwarf"
	"errors"
)

var errBadEntry = errors.New("damaged debug information")

// Kinds of attribute values.
const (
	valNone     = iota
	valNumber   // includes section offsets
	valAddress  //
	valAddrx    // index into .debug_addr
	valRef      // offset in .debug_info
	valRefAlt   // … in the file shared by dwz(1)
	valText     // offset in .debug_info
	valStrp     // offset in .debug_str
	valLineStrp // offset in .debug_line_str
	valStrx     // index into .debug_str_offsets
	valStrpAlt  // offset in .debug_str of the shared file
	valRangesx  // index into .debug_rnglists
	valOther    // not needed
)

type value struct {
	kind byte
	n    uint64
}

// entry is an entry of .debug_info, of fixed size: names are read on demand.
type entry struct {
	at, next uint64 // its offset, and the next one's
	tag      dwarf.Tag
	children bool
	null     bool // end of a list of children
	vals     [attrs]value
}

func (e *entry) number(attr int) (uint64, bool) {
	return e.vals[attr].n, e.vals[attr].kind == valNumber
}

// read decodes the entry at an offset within the unit.
func (u *dwarfUnit) read(w *workBudget, at uint64, e *entry) error {
	c := cursor{b: u.file.info[:u.header.end], at: at}
	if at < u.first() || at >= u.header.end {
		return errBadEntry
	}
	*e = entry{at: at}
	id := c.uleb()
	if c.bad {
		return errBadEntry
	}
	if id == 0 {
		e.null, e.next = true, c.at
		return w.step(1)
	}
	a, ok := u.abbrevs.find(id)
	if !ok {
		return errBadEntry
	}
	if err := w.step(1 + int(a.n)/2); err != nil {
		return err
	}
	e.tag, e.children = a.tag, a.children
	for _, attr := range u.abbrevs.attrs[a.first : a.first+a.n] {
		v, err := u.value(w, &c, attr.form, attr.value)
		if err != nil {
			return err
		}
		if attr.what != attrOther && e.vals[attr.what].kind == valNone {
			e.vals[attr.what] = v
		}
	}
	if c.bad {
		return errBadEntry
	}
	e.next = c.at
	return nil
}

// value decodes or skips a value.
func (u *dwarfUnit) value(w *workBudget, c *cursor, form uint32, implicit int64) (v value, err error) {
	if form == formIndirect { // once: nesting is not used
		if form = uint32(min(c.uleb(), 1<<32-1)); form == formIndirect || form == formImplicitConst {
			return v, errBadEntry
		}
	}
	v = value{kind: valOther}
	switch form {
	case formData1, formFlag:
		v = value{valNumber, c.fixed(1)}
	case formData2:
		v = value{valNumber, c.fixed(2)}
	case formData4, formSecOffset:
		v = value{valNumber, c.fixed(4)}
	case formData8:
		v = value{valNumber, c.fixed(8)}
	case formUdata:
		v = value{valNumber, c.uleb()}
	case formSdata:
		v = value{valNumber, uint64(c.sleb())}
	case formImplicitConst:
		v = value{valNumber, uint64(implicit)}
	case formFlagPresent:
		v = value{valNumber, 1}
	case formAddr:
		v = value{valAddress, c.fixed(8)}
	case formAddrx, formGNUAddrIndex:
		v = value{valAddrx, c.uleb()}
	case formAddrx1, formAddrx2, formAddrx3, formAddrx4:
		v = value{valAddrx, c.fixed(uint64(form - formAddrx1 + 1))}
	case formRef1:
		v = value{valRef, u.header.start + c.fixed(1)}
	case formRef2:
		v = value{valRef, u.header.start + c.fixed(2)}
	case formRef4:
		v = value{valRef, u.header.start + c.fixed(4)}
	case formRef8:
		v = value{valRef, u.header.start + c.fixed(8)}
	case formRefUdata:
		v = value{valRef, u.header.start + c.uleb()}
	case formRefAddr:
		size := uint64(4)
		if u.version <= 2 {
			size = 8
		}
		v = value{valRef, c.fixed(size)}
	case formGNURefAlt, formRefSup4:
		v = value{valRefAlt, c.fixed(4)}
	case formRefSup8:
		v = value{valRefAlt, c.fixed(8)}
	case formString:
		at, _, err := c.text(w)
		return value{valText, at}, err
	case formStrp:
		v = value{valStrp, c.fixed(4)}
	case formLineStrp:
		v = value{valLineStrp, c.fixed(4)}
	case formGNUStrpAlt, formStrpSup:
		v = value{valStrpAlt, c.fixed(4)}
	case formStrx, formGNUStrIndex:
		v = value{valStrx, c.uleb()}
	case formStrx1, formStrx2, formStrx3, formStrx4:
		v = value{valStrx, c.fixed(uint64(form - formStrx1 + 1))}
	case formRnglistx:
		v = value{valRangesx, c.uleb()}
	case formLoclistx:
		c.uleb()
	case formRefSig8:
		c.skip(8)
	case formData16:
		c.skip(16)
	case formBlock1:
		c.skip(c.fixed(1))
	case formBlock2:
		c.skip(c.fixed(2))
	case formBlock4:
		c.skip(c.fixed(4))
	case formBlock, formExprloc:
		c.skip(c.uleb())
	default:
		return v, errBadEntry // unknown length
	}
	return v, nil
}

// skipChildren returns the offset of the next sibling.
func (u *dwarfUnit) skipChildren(w *workBudget, e *entry) (uint64, error) {
	if !e.children {
		return e.next, nil
	}
	if s := e.vals[attrSibling]; s.kind == valRef && s.n >= e.next && s.n < u.header.end {
		return s.n, nil
	}
	at := e.next
	var below entry
	for depth := 1; depth > 0; {
		if err := u.read(w, at, &below); err != nil {
			return 0, err
		}
		at = below.next
		switch {
		case below.null:
			depth--
		case below.children:
			if s := below.vals[attrSibling]; s.kind == valRef && s.n >= below.next && s.n < u.header.end {
				at = s.n
			} else {
				depth++
			}
		}
	}
	return at, nil
}

// address returns an attribute's value as an address.
func (u *dwarfUnit) address(v value) (uint64, bool) {
	switch v.kind {
	case valAddress:
		return v.n, true
	case valAddrx:
		return u.indexed(v.n)
	}
	return 0, false
}

// indexed reads .debug_addr.
func (u *dwarfUnit) indexed(i uint64) (uint64, bool) {
	if i > 1<<32 || u.addrBase > 1<<62 {
		return 0, false
	}
	c := cursor{b: u.file.secs.addr, at: u.addrBase + i*8}
	n := c.u64()
	return n, !c.bad
}

// text returns a string value, at most most bytes.
func (u *dwarfUnit) text(v value, most int) string {
	s := &u.file.secs
	switch v.kind {
	case valText:
		return textAt(u.file.info[:u.header.end], v.n, most)
	case valStrp:
		return textAt(s.str, v.n, most)
	case valLineStrp:
		return textAt(s.lineStr, v.n, most)
	case valStrx:
		if v.n > 1<<32 || u.strBase > 1<<62 {
			return ""
		}
		c := cursor{b: s.strOffsets, at: u.strBase + v.n*4}
		at := uint64(c.u32())
		if c.bad {
			return ""
		}
		return textAt(s.str, at, most)
	case valStrpAlt:
		if u.file.alt == nil {
			return ""
		}
		return textAt(u.file.alt.secs.str, v.n, most)
	}
	return ""
}

func textAt(b []byte, at uint64, most int) string {
	if at >= uint64(len(b)) {
		return ""
	}
	return zeroEnded(b[at:], most)
}
