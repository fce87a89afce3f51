package helper

import (
	"errors"
	"time"
)

const unwindTime = 300 * time.Millisecond // to unwind one stack, per lane

// Thread is where a thread was in user space, as the kernel side saw it.
type Thread struct {
	PID, TID  int
	Start     uint64   // clock ticks since boot
	Switches  uint64   // how often it had left its CPU
	Registers []uint64 // instruction and stack pointer, and what calls preserve (enum user_reg)
	Narrow    bool     // 32-bit code
	Base      uint64   // address of Memory
	Memory    []byte   // a copy of its stack of that moment; nil: it is read now
}

// UserStack is the user stack of a thread.
type UserStack struct {
	Addrs       []uint64 // innermost first; at least the instruction pointer
	Approximate bool     // the thread has run since, and may have changed its stack
	Missing     string   // why Addrs may end early; "": it does not, or nobody knows
}

// UserStack unwinds the user stack of a thread.
func (h *Helper) UserStack(t *Thread) UserStack {
	if len(t.Registers) < 2 {
		return UserStack{}
	}
	out := UserStack{Addrs: t.Registers[:1:1]}
	whole := len(t.Memory)
	if whole == 0 {
		exact, err := h.readStack(t)
		if err != nil {
			out.Missing = err.Error()
			return out
		}
		out.Approximate = !exact
	}
	m, err := h.unwind(t)
	if err == nil && m.flags&flagBeyond != 0 && whole > 0 {
		// A deep stack: what is further out is likely to be as it was.
		copied := *t
		if exact, failed := h.readStack(t); failed == nil && copied.over(t) {
			if deeper, failed := h.unwind(t); failed == nil && len(deeper.addrs) > len(m.addrs) {
				m, out.Approximate = deeper, !exact
			}
		}
	}
	switch {
	case err != nil:
		out.Missing = err.Error()
	case len(m.addrs) > 0 && m.addrs[0] == out.Addrs[0]:
		out.Addrs, out.Missing = m.addrs, m.text
	}
	return out
}

// over writes an earlier copy over the same part of a later one.
func (t *Thread) over(later *Thread) bool {
	skip := later.Base - t.Base
	if later.Base < t.Base || skip > uint64(len(t.Memory)) {
		return false
	}
	return copy(later.Memory, t.Memory[skip:]) == len(t.Memory)-int(skip)
}

// readStack reads the memory of a thread. exact: it has not run since.
func (h *Helper) readStack(t *Thread) (exact bool, err error) {
	sp := t.Registers[1]
	m, err := h.read(&request{kind: reqMemory, pid: t.PID, start: t.Start, addrs: []uint64{uint64(t.TID), sp, t.Switches}})
	if err != nil {
		return false, err
	}
	t.Base, t.Memory = sp, append([]byte(nil), m.data...)
	return m.flags&flagExact != 0, nil
}

// unwind asks the helper for names, which is seldom busy, then others.
func (h *Helper) unwind(t *Thread) (message, error) {
	who := payers(t.PID)
	if !h.accounts.allow(time.Now(), who...) {
		h.refused.Add(1)
		return message{}, ErrRefused
	}
	q := func() *request {
		q := &request{kind: reqUnwind, pid: t.PID, addrs: t.Registers, data: t.Memory, base: t.Base}
		if t.Narrow {
			q.narrow = 1
		}
		return q
	}
	var m message
	err := errors.New("no helper")
	for _, l := range []*lane{h.names, h.full} {
		if m, err = l.ask(q(), who, time.Now().Add(unwindTime), answerTime); err == nil {
			break
		}
	}
	if err == nil && m.flags&flagRemote != 0 {
		h.remotes.Add(1)
		if far, err := h.remote.ask(q(), who, time.Now().Add(unwindTime), answerTime); err == nil && len(far.addrs) > len(m.addrs) {
			m = far
		}
	}
	if err != nil {
		h.late.Add(1)
	}
	return m, err
}
