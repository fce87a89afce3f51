package unwind

// Operations of expressions (DWARF 5, 7.7.1).
const (
	opDeref      = 0x06
	opConst1u    = 0x08
	opConst8s    = 0x0f
	opConstu     = 0x10
	opConsts     = 0x11
	opDup        = 0x12
	opDrop       = 0x13
	opOver       = 0x14
	opPick       = 0x15
	opSwap       = 0x16
	opRot        = 0x17
	opAbs        = 0x19
	opAnd        = 0x1a
	opDiv        = 0x1b
	opMinus      = 0x1c
	opMod        = 0x1d
	opMul        = 0x1e
	opNeg        = 0x1f
	opNot        = 0x20
	opOr         = 0x21
	opPlus       = 0x22
	opPlusUconst = 0x23
	opShl        = 0x24
	opShr        = 0x25
	opShra       = 0x26
	opXor        = 0x27
	opBra        = 0x28
	opEq         = 0x29
	opNe         = 0x2e
	opSkip       = 0x2f
	opLit0       = 0x30
	opLit31      = 0x4f
	opBreg0      = 0x70
	opBreg31     = 0x8f
	opBregx      = 0x92
	opDerefSize  = 0x94
	opNop        = 0x96
)

const maxOperands = 64

// operands is the stack of an expression. Below its bottom are zeros, which set bad.
type operands struct {
	list [maxOperands]uint64
	n    int
	bad  bool
}

func (s *operands) push(v uint64) {
	if s.n == maxOperands {
		s.bad = true
		return
	}
	s.list[s.n] = v
	s.n++
}

func (s *operands) pop() uint64 {
	if s.n == 0 {
		s.bad = true
		return 0
	}
	s.n--
	return s.list[s.n]
}

// pick copies the element n below the top.
func (s *operands) pick(n int) {
	if n >= s.n {
		s.bad = true
		return
	}
	s.push(s.list[s.n-1-n])
}

// evaluate evaluates an expression that begins with first on its stack, if it is not nil.
func (w *walker) evaluate(code []byte, first *uint64) (uint64, outcome) {
	var s operands
	if first != nil {
		s.push(*first)
	}
	r := reader{b: code}
	for !r.done() {
		if !w.work.step() {
			return 0, lost
		}
		how := w.operate(&s, &r)
		if how != stepped {
			return 0, how
		}
		if s.bad || r.bad {
			return 0, lost
		}
	}
	v := s.pop()
	if s.bad {
		return 0, lost
	}
	return v, stepped
}

func (w *walker) operate(s *operands, r *reader) outcome {
	switch op := r.u8(); {
	case op >= opLit0 && op <= opLit31:
		s.push(uint64(op - opLit0))
	case op >= opConst1u && op <= opConst8s:
		size := uint64(1) << ((op - opConst1u) / 2)
		v := r.fixed(size)
		if (op-opConst1u)%2 == 1 {
			v = extend(v, size)
		}
		s.push(v)
	case op >= opBreg0 && op <= opBreg31:
		return w.pushRegister(s, uint64(op-opBreg0), r.sleb())
	case op == opBregx:
		column := r.uleb()
		return w.pushRegister(s, column, r.sleb())
	case op == opDeref:
		return w.pushMemory(s, 8)
	case op == opDerefSize:
		size := uint64(r.u8())
		if size == 0 || size > 8 {
			return lost
		}
		return w.pushMemory(s, size)
	case op == opBra || op == opSkip:
		by := extend(r.fixed(2), 2)
		if op == opSkip || s.pop() != 0 {
			r.jump(by)
		}
	default:
		s.compute(op, r)
	}
	return stepped
}

func (w *walker) pushRegister(s *operands, column uint64, offset int64) outcome {
	v, ok := w.regs.get(column)
	if column == w.Machine.back && !w.Machine.link {
		v, ok = w.regs.PC, true // as expressions of PLT entries want it
	}
	if !ok {
		return lost
	}
	s.push(v + uint64(offset))
	return stepped
}

func (w *walker) pushMemory(s *operands, size uint64) outcome {
	v, ok := w.Memory.read(s.pop(), size)
	if !ok {
		return beyond
	}
	s.push(v)
	return stepped
}

// compute does what needs nothing but the stack.
func (s *operands) compute(op byte, r *reader) {
	switch op {
	case opNop:
	case opConstu:
		s.push(r.uleb())
	case opConsts:
		s.push(uint64(r.sleb()))
	case opDup:
		s.pick(0)
	case opDrop:
		s.pop()
	case opOver:
		s.pick(1)
	case opPick:
		s.pick(int(r.u8()))
	case opSwap:
		a, b := s.pop(), s.pop()
		s.push(a)
		s.push(b)
	case opRot:
		a, b, c := s.pop(), s.pop(), s.pop()
		s.push(a)
		s.push(c)
		s.push(b)
	case opAbs:
		if v := s.pop(); int64(v) < 0 {
			s.push(-v)
		} else {
			s.push(v)
		}
	case opNeg:
		s.push(-s.pop())
	case opNot:
		s.push(^s.pop())
	case opPlusUconst:
		s.push(s.pop() + r.uleb())
	default:
		b, a := s.pop(), s.pop()
		s.push(s.binary(op, a, b))
	}
}

func (s *operands) binary(op byte, a, b uint64) uint64 {
	switch op {
	case opAnd:
		return a & b
	case opOr:
		return a | b
	case opXor:
		return a ^ b
	case opPlus:
		return a + b
	case opMinus:
		return a - b
	case opMul:
		return a * b
	case opShl:
		return a << b
	case opShr:
		return a >> b
	case opShra:
		return uint64(int64(a) >> b)
	case opDiv, opMod:
		if b == 0 {
			s.bad = true
			return 0
		}
		if op == opMod {
			return a % b
		}
		return uint64(int64(a) / int64(b))
	}
	if op >= opEq && op <= opNe {
		x, y := int64(a), int64(b)
		// eq, ge, gt, le, lt, ne
		if [...]bool{x == y, x >= y, x > y, x <= y, x < y, x != y}[op-opEq] {
			return 1
		}
		return 0
	}
	s.bad = true
	return 0
}
