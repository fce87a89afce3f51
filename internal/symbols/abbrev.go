package symbols

import (
	"debug/dwarf"
	"fmt"
)

// Limits of one abbreviation table. The largest seen has 5,000 abbreviations with
// 40,000 attributes, in a program built with link-time optimization.
const (
	maxAbbrevs     = 1 << 15
	maxAbbrevAttrs = 1 << 17
	maxEntryAttrs  = 256 // per abbreviation; compilers need about 30
)

// Attribute forms, which debug/dwarf does not export.
const (
	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData1         = 0x0b
	formFlag          = 0x0c
	formSdata         = 0x0d
	formStrp          = 0x0e
	formUdata         = 0x0f
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formData16        = 0x1e
	formLineStrp      = 0x1f
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx2         = 0x26
	formStrx3         = 0x27
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx2        = 0x2a
	formAddrx3        = 0x2b
	formAddrx4        = 0x2c
	formGNUAddrIndex  = 0x1f01
	formGNUStrIndex   = 0x1f02
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21
)

// Attributes of interest, as indexes of entry.vals.
const (
	attrOther = iota // all others
	attrLow
	attrHigh
	attrEntry
	attrRanges
	attrSibling
	attrName
	attrLinkage
	attrOrigin
	attrSpecification
	attrCallFile
	attrCallLine
	attrStmtList
	attrCompDir
	attrStrBase
	attrAddrBase
	attrRangesBase
	attrs // number of attributes
)

var wantedAttrs = [...]byte{
	dwarf.AttrLowpc: attrLow, dwarf.AttrHighpc: attrHigh, dwarf.AttrEntrypc: attrEntry, dwarf.AttrRanges: attrRanges,
	dwarf.AttrSibling: attrSibling, dwarf.AttrName: attrName, dwarf.AttrLinkageName: attrLinkage,
	dwarf.AttrAbstractOrigin: attrOrigin, dwarf.AttrSpecification: attrSpecification,
	dwarf.AttrCallFile: attrCallFile, dwarf.AttrCallLine: attrCallLine, dwarf.AttrStmtList: attrStmtList,
	dwarf.AttrCompDir: attrCompDir, dwarf.AttrStrOffsetsBase: attrStrBase, dwarf.AttrAddrBase: attrAddrBase,
	dwarf.AttrRnglistsBase: attrRangesBase,
}

// abbrevAttr is one attribute of an abbreviation.
type abbrevAttr struct {
	form  uint32
	what  byte  // attrLow, …
	value int64 // of formImplicitConst
}

// abbrev describes entries with its number.
type abbrev struct {
	tag      dwarf.Tag
	children bool
	first, n uint32 // in abbrevs.attrs
}

// abbrevs is an abbreviation table of bounded size. debug/dwarf instead takes 24 bytes
// per attribute of two bytes, and 32 bytes per attribute of every entry.
type abbrevs struct {
	dense  []abbrev // numbers from 1, as compilers assign them
	sparse map[uint64]abbrev
	attrs  []abbrevAttr
}

func (a *abbrevs) bytes() int64 {
	return int64(cap(a.dense))*24 + int64(len(a.sparse))*64 + int64(cap(a.attrs))*16
}

func (a *abbrevs) find(id uint64) (abbrev, bool) {
	if id-1 < uint64(len(a.dense)) {
		return a.dense[id-1], true
	}
	x, ok := a.sparse[id]
	return x, ok
}

// readAbbrevs reads the table at an offset of .debug_abbrev, completely or up to the
// number until.
func readAbbrevs(w *workBudget, section []byte, at uint64, until uint64) (*abbrevs, error) {
	c := cursor{b: section, at: at}
	a := &abbrevs{}
	for n := 0; ; n++ {
		id := c.uleb()
		if id == 0 || c.bad {
			return a, nil // truncated
		}
		if n == maxAbbrevs {
			return nil, fmt.Errorf("more than %d abbreviations: %w", maxAbbrevs, errTooLarge)
		}
		if err := w.step(8); err != nil { // it may need a map entry
			return nil, err
		}
		x := abbrev{tag: dwarf.Tag(c.uleb()), children: c.u8() != 0, first: uint32(len(a.attrs))}
		for {
			name, form := c.uleb(), c.uleb()
			if err := w.step(1); err != nil {
				return nil, err
			}
			if name == 0 && form == 0 || c.bad {
				break
			}
			attr := abbrevAttr{form: uint32(min(form, 1<<32-1))}
			if name < uint64(len(wantedAttrs)) {
				attr.what = wantedAttrs[name]
			}
			if form == formImplicitConst {
				attr.value = c.sleb()
			}
			if x.n++; x.n > maxEntryAttrs || len(a.attrs) == maxAbbrevAttrs {
				return nil, fmt.Errorf("abbreviation of more than %d attributes, or %d in all: %w", maxEntryAttrs, maxAbbrevAttrs, errTooLarge)
			}
			a.attrs = append(a.attrs, attr)
		}
		if id == uint64(len(a.dense))+1 {
			a.dense = append(a.dense, x)
		} else {
			if a.sparse == nil {
				a.sparse = make(map[uint64]abbrev)
			}
			a.sparse[id] = x
		}
		if id == until {
			return a, nil
		}
	}
}
