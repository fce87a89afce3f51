package unwind

import (
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// Where the tests' code is, and what describes it.
const (
	codeAt   = 0x10000
	framesAt = 0x20000
	headerAt = 0x30000
	stackAt  = 0x7000
)

// chunk is an entry of .eh_frame: its length first.
func chunk(body ...byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0) // nop
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// cie is what functions have in common, with 32-bit relative pointers.
func cie(augmentation string, codeAlign, dataAlign, back byte, code ...byte) []byte {
	b := append([]byte{0, 0, 0, 0, 1}, augmentation...)
	b = append(b, 0, codeAlign, dataAlign, back)
	if augmentation != "" {
		b = append(b, 1, relativePC|encodedSigned4)
	}
	return chunk(append(b, code...)...)
}

// fde is a function. at is its offset in .eh_frame, whose first entry it refers to.
func fde(at int, start, size uint32, code ...byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(at+4))
	b = binary.LittleEndian.AppendUint32(b, start-uint32(framesAt+at+8))
	b = binary.LittleEndian.AppendUint32(b, size)
	return chunk(append(append(b, 0), code...)...)
}

// frames is a section of a cie and functions of 16 bytes each.
func frames(common []byte, functions ...[]byte) []byte {
	b := slices.Clone(common)
	for i, code := range functions {
		b = append(b, fde(len(b), uint32(codeAt+16*i), 16, code...)...)
	}
	return b
}

// header is a .eh_frame_hdr with an index of functions of 16 bytes.
func header(section []byte) Section {
	h := []byte{1, relativePC | encodedSigned4, encoded4, relativeData | encodedSigned4}
	h = binary.LittleEndian.AppendUint32(h, uint32(0x100000000+framesAt-headerAt-4))
	t := NewTableOf(AMD64, Section{framesAt, section})
	if t.entries == 0 {
		t = NewTableOf(ARM64, Section{framesAt, section})
	}
	h = binary.LittleEndian.AppendUint32(h, uint32(t.entries))
	for _, e := range t.index {
		h = binary.LittleEndian.AppendUint32(h, uint32(e.start)-headerAt)
		h = binary.LittleEndian.AppendUint32(h, framesAt+e.offset-headerAt)
	}
	return Section{headerAt, h}
}

// oneFile is a process with one file, mapped as far off as bias says.
type oneFile struct {
	table *Table
	bias  uint64
}

func (f oneFile) At(pc uint64) (*Table, uint64, bool) {
	return f.table, f.bias, pc-f.bias >= codeAt && pc-f.bias < codeAt+0x1000
}

func words(list ...uint64) (b []byte) {
	for _, w := range list {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// x86 has the frame address in rsp+8, and the return address below that.
var x86 = cie("zR", 1, 0x78, 16, defCFA, 7, 8, offsetRule|16, 1)

func TestTables(t *testing.T) {
	const bias = 0x5000_0000_0000
	at := func(function, offset uint64) uint64 { return bias + codeAt + 16*function + offset }
	arm := cie("zR", 4, 0x78, 30, defCFA, 31, 0)
	for name, tc := range map[string]struct {
		machine *Machine
		section []byte
		regs    []uint64
		stack   []uint64
		want    []uint64
		whole   bool
		beyond  bool
	}{
		"rows before and after a push": {
			machine: AMD64,
			// push %rbx at 0; sub 16 at 4
			section: frames(x86, []byte{advanceLoc | 1, defCFAOffset, 16, offsetRule | 3, 2, advanceLoc | 4, defCFAOffset, 32}, []byte{undefinedRule, 16}),
			regs:    []uint64{at(0, 8), stackAt},
			stack:   []uint64{1, 2, 3, at(0, 1), at(0, 0) + 1, at(0, 1), at(1, 4)},
			// in the middle: three words and the return address; then twice before the push is done
			want: []uint64{at(0, 8), at(0, 1), at(0, 1), at(0, 1), at(1, 4)}, whole: true,
		},
		"the stack ends": {
			machine: AMD64, section: frames(x86, nil), regs: []uint64{at(0, 1), stackAt},
			stack: []uint64{at(0, 2)}, want: []uint64{at(0, 1), at(0, 2)}, beyond: true,
		},
		"a frame address by a register that was saved": {
			machine: AMD64,
			section: frames(x86, []byte{defCFA, 6, 16, offsetRule | 6, 2}, []byte{undefinedRule, 16}),
			regs:    []uint64{at(0, 1), stackAt, 0, 0, 0, 0, stackAt + 16},
			stack:   []uint64{0, 0, stackAt + 32, at(0, 3), stackAt + 1<<40, at(1, 3)},
			want:    []uint64{at(0, 1), at(0, 3), at(1, 3)}, whole: true,
		},
		"by an expression": {
			machine: AMD64, // the word at rbp-8
			section: frames(x86, []byte{defCFAExpr, 3, opBreg0 + 6, 0x78, opDeref}, []byte{undefinedRule, 16}),
			regs:    []uint64{at(0, 1), stackAt, 0, 0, 0, 0, stackAt + 16},
			stack:   []uint64{0, stackAt + 40, 0, 0, at(1, 3)},
			want:    []uint64{at(0, 1), at(1, 3)}, whole: true,
		},
		"remembered states": {
			machine: AMD64,
			section: frames(x86, []byte{rememberState, defCFAOffset, 64, advanceLoc | 4, restoreState}, []byte{undefinedRule, 16}),
			regs:    []uint64{at(0, 5), stackAt}, stack: []uint64{at(1, 3)}, want: []uint64{at(0, 5), at(1, 3)}, whole: true,
		},
		"interrupted by a signal": { // the interrupted instruction is the first of its function
			machine: AMD64, section: frames(cie("zRS", 1, 0x78, 16, defCFA, 7, 8, offsetRule|16, 1), nil),
			regs: []uint64{at(0, 1), stackAt}, stack: []uint64{bias + codeAt, 0}, want: []uint64{at(0, 1), bias + codeAt}, whole: true,
		},
		"arm64: link register, then the stack": {
			machine: ARM64,
			section: frames(arm, nil, []byte{defCFAOffset, 32, offsetRule | 29, 4, offsetRule | 30, 3, windowSave}, []byte{undefinedRule, 30}),
			regs:    []uint64{at(0, 4), stackAt, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, stackAt, at(1, 8) | 0x7f<<48}, // signed
			stack:   []uint64{0, at(2, 4) | 0x11<<50, 0, 0},
			want:    []uint64{at(0, 4), at(1, 8), at(2, 4)}, whole: true,
		},
		"arm64: a stack that does not shrink": {
			machine: ARM64, section: frames(arm, nil), regs: append([]uint64{at(0, 4), stackAt}, slices.Repeat([]uint64{at(0, 8)}, 12)...),
			stack: []uint64{0}, want: []uint64{at(0, 4), at(0, 8)},
		},
		"no table for it: frame pointers": {
			machine: AMD64, section: frames(x86, nil), regs: []uint64{at(100, 4), stackAt, 0, 0, 0, 0, stackAt},
			stack: []uint64{stackAt + 16, at(101, 4), 0, at(102, 4)}, want: []uint64{at(100, 4), at(101, 4), at(102, 4)}, whole: true,
		},
		"a return address that is no code": {
			machine: AMD64, section: frames(x86, nil), regs: []uint64{at(0, 1), stackAt}, stack: []uint64{12}, want: []uint64{at(0, 1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			th := NewThread(tc.machine, tc.regs, false, Memory{stackAt, words(tc.stack...)})
			indexed, err := NewTable(tc.machine, header(tc.section), func(addr uint64) (Section, bool) {
				return Section{framesAt, tc.section}, addr == framesAt
			})
			assert.NilError(t, err)
			for _, table := range []*Table{indexed, NewTableOf(tc.machine, Section{framesAt, tc.section})} {
				got := Walk(th, oneFile{table, bias})
				assert.DeepEqual(t, got, Result{Frames: tc.want, Whole: tc.whole, Beyond: tc.beyond})
			}
		})
	}
}

func Test32Bit(t *testing.T) {
	stack := binary.LittleEndian.AppendUint32(nil, stackAt+8)
	for _, w := range []uint32{codeAt + 4, 0, codeAt + 8} {
		stack = binary.LittleEndian.AppendUint32(stack, w)
	}
	th := NewThread(AMD64, []uint64{codeAt, stackAt, 0, 0, 0, 0, stackAt, 0}, true, Memory{stackAt, stack})
	got := Walk(th, oneFile{NewTableOf(AMD64, Section{framesAt, frames(x86, nil)}), 0})
	assert.DeepEqual(t, got, Result{Frames: []uint64{codeAt, codeAt + 4, codeAt + 8}, Whole: true})
}

// TestHostile: what a file says costs no more than a walk may.
func TestHostile(t *testing.T) {
	loop := []byte{defCFAExpr, 4, opSkip, 0xfd, 0xff, 0}                         // jumps to itself
	grow := append([]byte{defCFAExpr, 65}, slices.Repeat([]byte{opLit0}, 65)...) // more than fits
	for name, section := range map[string][]byte{
		"an endless expression":          frames(x86, loop),
		"too many operands":              frames(x86, grow),
		"too few operands":               frames(x86, []byte{defCFAExpr, 1, opPlus}),
		"states without end":             frames(x86, slices.Repeat([]byte{rememberState}, 1000)),
		"a state that was not kept":      frames(x86, []byte{restoreState}),
		"a block longer than the rest":   frames(x86, []byte{defCFAExpr, 0xff, 0xff, 0xff, 0xff, 0x7f}),
		"instructions without end":       frames(x86, slices.Repeat([]byte{advanceLoc}, 1<<20)),
		"columns that no machine has":    frames(x86, []byte{offsetExtended, 0xff, 0x7f, 1, registerRule, 0xff, 0x7f, 0xff, 0x7f, defCFARegister, 99}),
		"division by zero":               frames(x86, []byte{defCFAExpr, 3, opLit0, opLit0, opDiv}),
		"a long number":                  frames(x86, slices.Concat([]byte{defCFAOffset}, slices.Repeat([]byte{0x80}, 100))),
		"an augmentation nobody knows":   frames(cie("zRQ", 1, 0x78, 16), nil),
		"an augmentation without length": frames(cie("R", 1, 0x78, 16), nil),
		"a length of 64 bits":            slices.Concat([]byte{255, 255, 255, 255}, words(1<<63), make([]byte, 64)),
		"only lengths":                   slices.Repeat([]byte{4, 0, 0, 0, 0, 0, 0, 0}, 1<<20),
		"a function that is its cie":     slices.Concat(fde(0, codeAt, 16), fde(20, codeAt, 16)),
		"nothing":                        nil,
	} {
		t.Run(name, func(t *testing.T) {
			th := NewThread(AMD64, []uint64{codeAt + 1, stackAt, 0, 0, 0, 0, stackAt, 0}, false, Memory{stackAt, make([]byte, 64<<10)})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			table := NewTableOf(AMD64, Section{framesAt, section})
			got := Walk(th, oneFile{table, 0})
			runtime.ReadMemStats(&after)
			assert.Check(t, len(got.Frames) >= 1 && len(got.Frames) <= MaxFrames)
			assert.Check(t, after.TotalAlloc-before.TotalAlloc < 8<<20, "allocated %d bytes", after.TotalAlloc-before.TotalAlloc)
		})
	}
}

func TestBadHeaders(t *testing.T) {
	segment := func(addr uint64) (Section, bool) { return Section{addr, make([]byte, 8)}, addr == framesAt }
	good := header(frames(x86, nil)).Data
	for i := range 12 {
		_, err := NewTable(AMD64, Section{headerAt, good[:i]}, segment)
		assert.Check(t, err != nil, "%d bytes are enough", i)
	}
	for at, b := range map[int]byte{0: 2, 1: 0xff, 4: 1} {
		bad := slices.Clone(good)
		bad[at] = b
		_, err := NewTable(AMD64, Section{headerAt, bad}, segment)
		assert.ErrorIs(t, err, errHeader)
	}
}

func FuzzWalk(f *testing.F) {
	f.Add(header(frames(x86, nil)).Data, frames(x86, []byte{advanceLoc | 1, defCFAOffset, 16, offsetRule | 3, 2}), words(codeAt+1, codeAt+2, 3), true)
	f.Add([]byte{}, frames(cie("zRS", 4, 0x78, 30), []byte{defCFAExpr, 3, opBreg0 + 6, 0x78, opDeref}), words(codeAt, stackAt), false)
	f.Add([]byte{}, frames(x86, []byte{valExpression, 3, 6, opLit0, opBra, 1, 0, rememberState, restoreState}), words(1, 2, 3), true)
	f.Fuzz(func(t *testing.T, head, section, stack []byte, intel bool) {
		m := map[bool]*Machine{true: AMD64, false: ARM64}[intel]
		regs := append([]uint64{codeAt + 2, stackAt}, slices.Repeat([]uint64{stackAt, codeAt + 4}, 6)...)
		th := NewThread(m, regs, false, Memory{stackAt, stack})
		segment := func(addr uint64) (Section, bool) { return Section{addr, section}, addr >= framesAt && addr < headerAt }
		for _, table := range []func() (*Table, error){
			func() (*Table, error) { return NewTable(m, Section{headerAt, head}, segment) },
			func() (*Table, error) { return NewTableOf(m, Section{framesAt, section}), nil },
		} {
			tab, err := table()
			if err != nil {
				continue
			}
			got := Walk(th, oneFile{tab, 0})
			assert.Assert(t, len(got.Frames) >= 1 && len(got.Frames) <= MaxFrames && got.Frames[0] == codeAt+2)
		}
	})
}
