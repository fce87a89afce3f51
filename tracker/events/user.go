package events

import (
	"sync"
	"time"

	"github.com/tailcam/tailcam/bpf/abi"
)

// UserState is where a thread was in user space, as the kernel side saw it.
type UserState struct {
	Registers [abi.UserRegs]uint64 // instruction and stack pointer, and what calls preserve (enum user_reg)
	Narrow    bool                 // 32-bit code
	StartNS   uint64               // start of the thread, of CLOCK_BOOTTIME
	Switches  uint64               // how often it had left its CPU
	Memory    *UserMemory          // copy of its stack of that moment; nil: there is none
}

// UserNote says in words what is not right about the user stack; "": nothing.
func (s *Stacks) UserNote() string {
	switch {
	case s.UserMissing != "":
		return "more is not known: " + s.UserMissing
	case s.Approximate:
		return "approximate: the task ran on before its stack was read"
	}
	return ""
}

// UserMemory is a copy of a part of a user stack. Its methods may be called from any
// goroutine.
type UserMemory struct {
	once sync.Once
	done chan struct{}
	base uint64
	data []byte
}

// NewUserMemory promises a copy.
func NewUserMemory() *UserMemory { return &UserMemory{done: make(chan struct{})} }

// IsKnown reports whether Wait would not wait.
func (m *UserMemory) IsKnown() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// Fill sets the copy, which it keeps; nil: there is none. Only the first call counts.
func (m *UserMemory) Fill(base uint64, data []byte) {
	m.once.Do(func() {
		m.base, m.data = base, data
		close(m.done)
	})
}

// Wait returns the copy, or nil if it does not come in time. m may be nil.
func (m *UserMemory) Wait(limit time.Duration) (base uint64, data []byte) {
	if m == nil {
		return 0, nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-m.done:
		return m.base, m.data
	case <-timer.C:
		return 0, nil
	}
}
