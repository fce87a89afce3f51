package events

import "github.com/tailcam/tailcam/bpf/abi"

// UserState is where a thread was in user space, as the kernel side saw it.
type UserState struct {
	Registers [abi.UserRegs]uint64 // instruction and stack pointer, and what calls preserve (enum user_reg)
	Narrow    bool                 // 32-bit code
	StartNS   uint64               // start of the thread, of CLOCK_BOOTTIME
	Switches  uint64               // how often it had left its CPU
	Memory    *Promise[StackCopy]  // of that moment; nil: there is none
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

// StackCopy is a copy of a part of a user stack.
type StackCopy struct {
	Base uint64 // address of Data
	Data []byte // nil: there is none
}
