package symbols

import (
	"path"
	"strings"
)

// Opcodes of line tables.
const (
	lnsCopy             = 1
	lnsAdvancePC        = 2
	lnsAdvanceLine      = 3
	lnsSetFile          = 4
	lnsSetColumn        = 5
	lnsNegateStmt       = 6
	lnsSetBasicBlock    = 7
	lnsConstAddPC       = 8
	lnsFixedAdvancePC   = 9
	lnsSetPrologueEnd   = 10
	lnsSetEpilogueBegin = 11
	lnsSetISA           = 12
	lneEndSequence      = 1
	lneSetAddress       = 2
)

// Content types of DWARF 5 file and directory entries.
const (
	lnctPath      = 1
	lnctDirectory = 2
)

// nameList is a list of files or directories in the header. It is scanned for each
// lookup.
type nameList struct {
	at      uint64
	count   uint64
	columns int
	column  [255]struct{ what, form uint32 } // DWARF 5
}

// lineTable is the line table of a compile unit, of fixed size.
type lineTable struct {
	unit              *dwarfUnit
	b                 []byte // base of its offsets
	program           uint64
	version           uint16
	minLength, maxOps uint64
	lineBase          int64
	lineRange         byte
	opcodeBase        byte
	lengths           [256]byte // number of operands of standard opcodes
	dirs, files       nameList
}

// lineRow is the needed part of a row.
type lineRow struct {
	addr uint64
	file uint64
	line int64
}

// lineTable reads the header of the unit's line table; nil: none, or damaged.
func (u *dwarfUnit) lineTable(w *workBudget) (*lineTable, error) {
	at, ok := u.entry.number(attrStmtList)
	section := u.file.secs.line
	if !ok || at >= uint64(len(section)) {
		return nil, nil
	}
	c := cursor{b: section[at:]}
	size := uint64(c.u32())
	if c.bad || size > c.left() { // includes 64-bit DWARF, which starts with 0xffffffff
		return nil, nil
	}
	t := &lineTable{unit: u, b: section[at : at+4+size]}
	c.b = t.b
	if t.version = c.u16(); t.version < 2 || t.version > 5 {
		return nil, nil
	}
	if t.version >= 5 {
		if addr, segment := c.u8(), c.u8(); addr != 8 || segment != 0 {
			return nil, nil
		}
	}
	length := uint64(c.u32())
	if length > c.left() {
		return nil, nil
	}
	t.program = c.at + length
	t.minLength, t.maxOps = uint64(c.u8()), 1
	if t.version >= 4 {
		t.maxOps = uint64(c.u8())
	}
	c.skip(1)
	t.lineBase, t.lineRange, t.opcodeBase = int64(int8(c.u8())), c.u8(), c.u8()
	if t.maxOps == 0 || t.lineRange == 0 || t.opcodeBase == 0 {
		return nil, nil
	}
	for i := 1; i < int(t.opcodeBase); i++ {
		t.lengths[i] = c.u8()
	}
	if c.bad {
		return nil, nil
	}
	if t.version < 5 {
		t.dirs.at = c.at
		for {
			_, n, err := c.text(w)
			if err != nil || c.bad {
				return nil, err
			}
			if n == 0 {
				break
			}
			t.dirs.count++
		}
		t.files.at, t.files.count = c.at, 1<<32 // terminated by an empty name
		return t, nil
	}
	for _, l := range []*nameList{&t.dirs, &t.files} {
		l.columns = int(c.u8())
		for i := range l.columns {
			l.column[i].what, l.column[i].form = uint32(min(c.uleb(), 1<<32-1)), uint32(min(c.uleb(), 1<<32-1))
		}
		l.count, l.at = c.uleb(), c.at
		if c.bad || l == &t.files {
			break
		}
		for range l.count { // skip to the files
			if _, _, err := t.name5(w, &c, l); err != nil || c.bad {
				return nil, skipBroken(err)
			}
		}
	}
	if c.bad {
		return nil, nil
	}
	return t, nil
}

// skipBroken treats a damaged table as missing.
func skipBroken(err error) error {
	if err == errBadEntry { //nolint:errorlint // it is never wrapped
		return nil
	}
	return err
}

// name5 scans one DWARF 5 entry.
func (t *lineTable) name5(w *workBudget, c *cursor, l *nameList) (name value, dir uint64, err error) {
	if err := w.step(1 + l.columns); err != nil {
		return name, 0, err
	}
	for _, col := range l.column[:l.columns] {
		v, err := t.unit.value(w, c, col.form, 0)
		if err != nil || c.bad {
			return name, 0, err
		}
		switch col.what {
		case lnctPath:
			name = v
		case lnctDirectory:
			dir = v.n
		}
	}
	return name, dir, nil
}

// nameText returns the text of a name; values in the table are offsets.
func (t *lineTable) nameText(v value) string {
	if v.kind == valText {
		return textAt(t.b, v.n, maxPathRead)
	}
	return t.unit.text(v, maxPathRead)
}

// file returns the path of a file number, or "".
func (t *lineTable) file(w *workBudget, n uint64) (string, error) {
	if t.version >= 5 {
		name, dir, err := t.at5(w, &t.files, n)
		if err != nil || name == "" {
			return "", err
		}
		if path.IsAbs(name) {
			return name, nil
		}
		below, _, err := t.at5(w, &t.dirs, dir)
		if err != nil {
			return "", err
		}
		if !isAbsolute(below) && dir != 0 {
			top, _, err := t.at5(w, &t.dirs, 0)
			if err != nil {
				return "", err
			}
			below = join(top, below)
		}
		return join(below, name), nil
	}
	if n == 0 {
		return "", nil
	}
	c := cursor{b: t.b, at: t.files.at}
	for i := uint64(1); ; i++ {
		at, size, err := c.text(w)
		if err != nil || c.bad || size == 0 {
			return "", err
		}
		dir := c.uleb()
		c.uleb()
		c.uleb()
		if i < n {
			continue
		}
		name := textAt(t.b, at, maxPathRead)
		below, err := t.dir4(w, dir)
		return join(below, name), err
	}
}

// at5 returns a DWARF 5 name and its directory.
func (t *lineTable) at5(w *workBudget, l *nameList, n uint64) (string, uint64, error) {
	if n >= l.count {
		return "", 0, nil
	}
	c := cursor{b: t.b, at: l.at}
	for i := uint64(0); ; i++ {
		name, dir, err := t.name5(w, &c, l)
		if err != nil || c.bad {
			return "", 0, skipBroken(err)
		}
		if i == n {
			return t.nameText(name), dir, nil
		}
	}
}

// dir4 returns a directory of DWARF 2 to 4; 0 is the compilation directory.
func (t *lineTable) dir4(w *workBudget, n uint64) (string, error) {
	top := t.unit.text(t.unit.entry.vals[attrCompDir], maxPathRead)
	if n == 0 || n > t.dirs.count {
		return top, nil
	}
	c := cursor{b: t.b, at: t.dirs.at}
	for i := uint64(1); ; i++ {
		at, _, err := c.text(w)
		if err != nil || c.bad {
			return "", err
		}
		if i == n {
			return join(top, textAt(t.b, at, maxPathRead)), nil
		}
	}
}

// isAbsolute reports whether a path is absolute, with or without a drive letter.
func isAbsolute(p string) bool {
	return strings.HasPrefix(p, "/") || strings.HasPrefix(p, `\`) || len(p) > 2 && p[1] == ':'
}

func join(dir, name string) string {
	switch {
	case isAbsolute(name) || dir == "":
		return name
	case !strings.HasPrefix(dir, "/") && isAbsolute(dir):
		return dir + `\` + name
	}
	return path.Join(dir, name)
}

// find returns the row of an address.
func (t *lineTable) find(w *workBudget, addr uint64) (row lineRow, ok bool, err error) {
	c := cursor{b: t.b, at: t.program}
	start := lineRow{file: 1, line: 1}
	now, last, have := start, lineRow{}, false // last is in the current sequence
	op := uint64(0)
	advance := func(n uint64) {
		op += n
		now.addr += t.minLength * (op / t.maxOps)
		op %= t.maxOps
	}
	for c.left() > 0 && !c.bad {
		if err := w.step(1); err != nil {
			return row, false, err
		}
		emit, end := false, false
		switch code := c.u8(); {
		case code >= t.opcodeBase:
			n := code - t.opcodeBase
			advance(uint64(n / t.lineRange))
			now.line += t.lineBase + int64(n%t.lineRange)
			emit = true
		case code == 0:
			size := c.uleb()
			body := cursor{b: c.next(size)}
			switch body.u8() {
			case lneEndSequence:
				emit, end = true, true
			case lneSetAddress:
				now.addr, op = body.fixed(min(body.left(), 8)), 0
			}
		case code == lnsCopy:
			emit = true
		case code == lnsAdvancePC:
			advance(c.uleb())
		case code == lnsAdvanceLine:
			now.line += c.sleb()
		case code == lnsSetFile:
			now.file = c.uleb()
		case code == lnsConstAddPC:
			advance(uint64((255 - t.opcodeBase) / t.lineRange))
		case code == lnsFixedAdvancePC:
			now.addr, op = now.addr+uint64(c.u16()), 0
		case code == lnsSetColumn || code == lnsSetISA:
			c.uleb()
		case code == lnsNegateStmt || code == lnsSetBasicBlock || code == lnsSetPrologueEnd || code == lnsSetEpilogueBegin:
		default:
			for range t.lengths[code] {
				c.uleb()
			}
		}
		if !emit || c.bad {
			continue
		}
		if have && last.addr <= addr && addr < now.addr {
			return last, true, nil
		}
		last, have = now, !end
		if end {
			now, op = start, 0
		}
	}
	return row, false, nil
}
