package usdt

import (
	"debug/elf"
	"fmt"
	"strconv"
	"strings"
)

// Arg says where an argument of a probe is.
type Arg struct {
	Size     uint8 // bytes
	Signed   bool
	Constant *int64 // nil: in a register, or where one points to
	Register uint32 // byte offset in struct pt_regs
	Memory   bool   // the argument stands at the register plus Disp
	Disp     int32
	// Unknown says why the argument cannot be read; empty: it can.
	Unknown string
}

// maxArgs is the most that <sys/sdt.h> writes.
const maxArgs = 12

// ParseArgs reads the arguments of a probe as the assembler has written them:
// `-4@%edi 8@-16(%rbp) 4@$5`, on arm64 `-4@w0 8@[sp, 16] 4@5`. An argument
// in a form that is not known is Unknown; others are still good.
func ParseArgs(machine elf.Machine, text string) ([]Arg, error) {
	var args []Arg
	for _, s := range splitArgs(text) {
		if len(args) == maxArgs {
			return nil, fmt.Errorf("more than %d arguments", maxArgs)
		}
		args = append(args, parseArg(machine, s))
	}
	return args, nil
}

// splitArgs splits at spaces that are not inside brackets.
func splitArgs(text string) []string {
	var list []string
	depth, begin := 0, -1
	for i, c := range text {
		switch {
		case c == '[' || c == '(':
			depth++
		case (c == ']' || c == ')') && depth > 0:
			depth--
		}
		if c == ' ' && depth == 0 {
			if begin >= 0 {
				list = append(list, text[begin:i])
			}
			begin = -1
		} else if begin < 0 {
			begin = i
		}
	}
	if begin >= 0 {
		list = append(list, text[begin:])
	}
	return list
}

func parseArg(machine elf.Machine, s string) Arg {
	size, where, ok := strings.Cut(s, "@")
	n, err := strconv.ParseInt(size, 10, 8)
	if !ok || err != nil {
		return Arg{Unknown: fmt.Sprintf("%q is no argument of a probe", s)}
	}
	a := Arg{Signed: n < 0}
	if n < 0 {
		n = -n
	}
	if n != 1 && n != 2 && n != 4 && n != 8 {
		return Arg{Unknown: fmt.Sprintf("argument %q has %d bytes", s, n)}
	}
	a.Size = uint8(n)
	where = strings.TrimSpace(where)
	good := false
	switch machine {
	case elf.EM_X86_64:
		good = a.x86(where)
	case elf.EM_AARCH64:
		good = a.arm64(where)
	}
	if !good {
		return Arg{Unknown: fmt.Sprintf("argument %q is in a form that cannot be read", s)}
	}
	return a
}

// x86 reads $5, %edi, -16(%rbp).
func (a *Arg) x86(where string) bool {
	if c, ok := strings.CutPrefix(where, "$"); ok {
		return a.constant(c)
	}
	if r, ok := strings.CutPrefix(where, "%"); ok {
		offset, ok := x86Register(r)
		a.Register = offset
		return ok
	}
	disp, rest, ok := strings.Cut(where, "(%")
	register, ok2 := strings.CutSuffix(rest, ")")
	offset, ok3 := x86Register(register)
	a.Memory, a.Register = true, offset
	return ok && ok2 && ok3 && a.displacement(disp)
}

// arm64 reads 5, w0, [sp, 16], [x1].
func (a *Arg) arm64(where string) bool {
	if inside, ok := strings.CutPrefix(where, "["); ok {
		inside, ok = strings.CutSuffix(inside, "]")
		register, disp, _ := strings.Cut(inside, ",")
		offset, ok2 := arm64Register(strings.TrimSpace(register))
		a.Memory, a.Register = true, offset
		return ok && ok2 && a.displacement(strings.TrimPrefix(strings.TrimSpace(disp), "#"))
	}
	if offset, ok := arm64Register(where); ok {
		a.Register = offset
		return true
	}
	return a.constant(where)
}

func (a *Arg) constant(s string) bool {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		return false
	}
	a.Constant = &n
	return true
}

func (a *Arg) displacement(s string) bool {
	if s == "" {
		return true
	}
	n, err := strconv.ParseInt(s, 0, 32)
	a.Disp = int32(n)
	return err == nil
}

// x86Registers are the names of each register in its four sizes, in the order of struct pt_regs.
var x86Registers = [][]string{
	{"r15", "r15d", "r15w", "r15b"}, {"r14", "r14d", "r14w", "r14b"}, {"r13", "r13d", "r13w", "r13b"}, {"r12", "r12d", "r12w", "r12b"},
	{"rbp", "ebp", "bp", "bpl"}, {"rbx", "ebx", "bx", "bl"}, {"r11", "r11d", "r11w", "r11b"}, {"r10", "r10d", "r10w", "r10b"},
	{"r9", "r9d", "r9w", "r9b"}, {"r8", "r8d", "r8w", "r8b"}, {"rax", "eax", "ax", "al"}, {"rcx", "ecx", "cx", "cl"},
	{"rdx", "edx", "dx", "dl"}, {"rsi", "esi", "si", "sil"}, {"rdi", "edi", "di", "dil"},
	nil, {"rip"}, nil, nil, {"rsp", "esp", "sp", "spl"},
}

func x86Register(name string) (uint32, bool) {
	for i, names := range x86Registers {
		for _, n := range names {
			if n == name && n != "rip" { // relative to the instruction: a variable, which has an address of its own
				return uint32(i * 8), true
			}
		}
	}
	return 0, false
}

func arm64Register(name string) (uint32, bool) {
	if name == "sp" {
		return 31 * 8, true
	}
	if len(name) < 2 || name[0] != 'x' && name[0] != 'w' {
		return 0, false
	}
	n, err := strconv.ParseUint(name[1:], 10, 8)
	return uint32(n * 8), err == nil && n <= 30
}
