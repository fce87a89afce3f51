// Package unwind walks the user stack of a thread, given its registers and a copy of
// its memory, by the call frame information of its files (.eh_frame), or by frame
// pointers where there is none.
//
// Registers, memory and files are untrusted. A walk takes a bounded number of steps, and
// allocates nothing in proportion to what a file says.
package unwind

import "math/bits"

// MaxFrames bounds a stack.
const MaxFrames = 128

// maxSteps bounds the instructions and operations of one walk.
const maxSteps = 1 << 18

// columns is how many registers have a column in call frame information.
const columns = 33

// Machine says what columns the registers of an architecture have.
type Machine struct {
	sp, fp  uint64
	back    uint64 // of the return address
	link    bool   // calls leave the return address in that register
	address uint64 // bits of a return address; arm64 signs the others
}

// Machines that can be unwound.
var (
	AMD64 = &Machine{sp: 7, fp: 6, back: 16, address: 1<<64 - 1}
	ARM64 = &Machine{sp: 31, fp: 29, back: 30, link: true, address: 1<<48 - 1}
)

// Registers of a thread by their columns. Those that were not set are unknown.
type Registers struct {
	PC    uint64
	value [columns]uint64
	known uint64 // bit per column
}

// Set sets a register by its column; unknown columns are ignored.
func (r *Registers) Set(column, value uint64) {
	if column < columns {
		r.value[column] = value
		r.known |= 1 << column
	}
}

func (r *Registers) get(column uint64) (uint64, bool) {
	if column >= columns || r.known>>column&1 == 0 {
		return 0, false
	}
	return r.value[column], true
}

// Memory is a copy of a part of a process's memory.
type Memory struct {
	Base uint64
	Data []byte
}

// read returns a little-endian value of size bytes.
func (m Memory) read(at uint64, size uint64) (v uint64, ok bool) {
	off := at - m.Base
	if n := uint64(len(m.Data)); at < m.Base || off > n || n-off < size {
		return 0, false
	}
	for i, b := range m.Data[off : off+size] {
		v |= uint64(b) << (8 * i)
	}
	return v, true
}

// Thread is what is known of a thread.
type Thread struct {
	Machine   *Machine
	Registers Registers
	Memory    Memory
	Narrow    bool // a 32-bit program: only frame pointers are followed
}

// Code finds the call frame information of a process.
type Code interface {
	// At returns the table of the code at pc, and how far the process's addresses are
	// from the table's. The table is nil if there is none; ok is false if no code is there.
	At(pc uint64) (t *Table, bias uint64, ok bool)
}

// Result is a stack.
type Result struct {
	Frames []uint64 // return addresses, innermost first; the first one is the thread's PC
	Whole  bool     // it reaches the thread's first function
	Beyond bool     // more memory may give more frames
}

// Walk returns the stack of a thread.
func Walk(t *Thread, code Code) Result {
	w := &walker{Thread: t, code: code, regs: t.Registers, work: work{left: maxSteps}}
	out := Result{Frames: []uint64{w.regs.PC}}
	for len(out.Frames) < MaxFrames {
		switch how := w.step(); how {
		case stepped:
			out.Frames = append(out.Frames, w.regs.PC)
		default:
			out.Whole, out.Beyond = how == outermost, how == beyond
			return out
		}
	}
	return out
}

// Outcomes of a step.
type outcome int

const (
	stepped   outcome = iota
	outermost         // there is no caller
	beyond            // its frame is not in the copied memory
	lost              // neither information nor a frame pointer
)

// work is what may still be done for one walk.
type work struct{ left int }

func (w *work) step() bool {
	w.left--
	return w.left >= 0
}

type walker struct {
	*Thread
	work   work
	code   Code
	regs   Registers
	called bool // PC is a return address; otherwise it was interrupted there
	rules  frameRules
}

// step goes on to the caller.
func (w *walker) step() outcome {
	at := w.regs.PC
	if w.called {
		at-- // the next instruction may belong to another function
	}
	t, bias, ok := w.code.At(at)
	if w.Narrow {
		return w.byFramePointer(4)
	}
	if !ok {
		return lost
	}
	if t != nil && t.machine == w.Machine {
		if signal, ok := t.find(at-bias, &w.rules, &w.work); ok {
			return w.byRules(signal)
		}
	}
	return w.byFramePointer(8)
}

// byFramePointer follows a frame pointer, which points to the caller's, with the return
// address above it: on both machines.
func (w *walker) byFramePointer(size uint64) outcome {
	const maxFrame = 1 << 20
	fp, ok := w.regs.get(w.Machine.fp)
	sp, _ := w.regs.get(w.Machine.sp)
	switch {
	case !ok:
		return lost
	case fp == 0:
		return outermost
	case fp < sp || fp-sp > maxFrame || fp%size != 0:
		return lost
	}
	next, ok1 := w.Memory.read(fp, size)
	back, ok2 := w.Memory.read(fp+size, size)
	if !ok1 || !ok2 {
		return beyond
	}
	to := Registers{PC: back & w.Machine.address}
	to.Set(w.Machine.sp, fp+2*size)
	to.Set(w.Machine.fp, next)
	return w.enter(to, false)
}

// byRules applies w.rules. signal: the frame is that of a signal's handler, whose caller
// was interrupted.
func (w *walker) byRules(signal bool) outcome {
	if r, ok := w.rules.rule(w.Machine.back); ok && r.kind == undefined {
		return outermost
	}
	cfa, how := w.frameAddress()
	if how != stepped {
		return how
	}
	if sp, _ := w.regs.get(w.Machine.sp); !signal && (cfa < sp || cfa == sp && w.called) {
		return lost // a stack only shrinks
	}
	to := Registers{}
	for mask := w.rules.changed | w.regs.known | 1<<w.Machine.back; mask != 0; mask &= mask - 1 {
		column := uint64(bits.TrailingZeros64(mask))
		v, how := w.restore(column, cfa)
		if column == w.Machine.back {
			if how != stepped {
				return how
			}
			to.PC = v & w.Machine.address
		}
		if how == stepped && (column != w.Machine.back || w.Machine.link) {
			to.Set(column, v)
		}
	}
	if _, ok := w.rules.rule(w.Machine.sp); !ok {
		to.Set(w.Machine.sp, cfa)
	}
	return w.enter(to, signal)
}

// frameAddress is the canonical frame address.
func (w *walker) frameAddress() (uint64, outcome) {
	r := &w.rules
	if r.cfaExpression != nil {
		return w.evaluate(r.cfaExpression, nil)
	}
	base, ok := w.regs.get(r.cfaColumn)
	if !ok {
		return 0, lost
	}
	return base + uint64(r.cfaOffset), stepped
}

// restore returns a register of the caller.
func (w *walker) restore(column, cfa uint64) (uint64, outcome) {
	r, ok := w.rules.rule(column)
	if !ok {
		return known(w.regs.get(column))
	}
	at := cfa
	switch r.kind {
	case undefined:
		return 0, lost
	case sameValue:
		return known(w.regs.get(column))
	case inRegister:
		return known(w.regs.get(uint64(r.value)))
	case atOffset, isOffset:
		at += uint64(r.value)
	case atExpression, isExpression:
		v, how := w.evaluate(r.expression, &cfa)
		if how != stepped {
			return 0, how
		}
		at = v
	}
	if r.kind == isOffset || r.kind == isExpression {
		return at, stepped
	}
	v, ok := w.Memory.read(at, 8)
	if !ok {
		return 0, beyond
	}
	return v, stepped
}

func known(v uint64, ok bool) (uint64, outcome) {
	if !ok {
		return 0, lost
	}
	return v, stepped
}

// enter makes the caller the current frame.
func (w *walker) enter(to Registers, signal bool) outcome {
	if to.PC == 0 {
		return outermost
	}
	at := to.PC
	if !signal {
		at--
	}
	if _, _, ok := w.code.At(at); !ok {
		return lost
	}
	w.regs, w.called = to, !signal
	return stepped
}
