package unwind

import "runtime"

// Native is the machine of this program.
var Native = map[string]*Machine{"amd64": AMD64, "arm64": ARM64}[runtime.GOARCH]

// saved are the columns of the registers that the kernel side sends after instruction
// and stack pointer (enum user_reg).
var saved = map[*Machine][]uint64{
	AMD64: {15, 14, 13, 12, 6, 3},
	ARM64: {19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30},
}

// NewThread makes a thread of registers as the kernel side sends them.
func NewThread(m *Machine, regs []uint64, narrow bool, memory Memory) *Thread {
	t := &Thread{Machine: m, Memory: memory, Narrow: narrow}
	if len(regs) < 2 {
		return t
	}
	t.Registers.PC = regs[0]
	t.Registers.Set(m.sp, regs[1])
	if narrow && m == ARM64 {
		return t // its frame pointer is in another register
	}
	for i, column := range saved[m] {
		if 2+i < len(regs) {
			t.Registers.Set(column, regs[2+i])
		}
	}
	return t
}
