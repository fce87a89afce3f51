package unwind

// Kinds of rules.
const (
	sameValue = iota
	undefined
	atOffset     // in memory, at an offset from the frame address
	isOffset     // the frame address and an offset
	inRegister   // in another register
	atExpression // in memory
	isExpression
)

// rule says where the caller's register is.
type rule struct {
	kind       int
	value      int64
	expression []byte
}

// ruleSet is a row of the table that call frame information describes.
type ruleSet struct {
	cfaColumn     uint64
	cfaOffset     int64
	cfaExpression []byte
	rules         [columns]rule
	changed       uint64 // columns that have a rule, as bits
}

func (r *ruleSet) rule(column uint64) (rule, bool) {
	if column >= columns || r.changed>>column&1 == 0 {
		return rule{}, false
	}
	return r.rules[column], true
}

func (r *ruleSet) set(column uint64, to rule) {
	if column < columns {
		r.rules[column] = to
		r.changed |= 1 << column
	}
}

const maxRemembered = 8 // states; compilers nest one or two

// frameRules executes the instructions of one function.
type frameRules struct {
	ruleSet
	initial    ruleSet
	remembered [maxRemembered]ruleSet
	depth      int
}

// Instructions; the first three have an operand in their low six bits.
const (
	advanceLoc     = 0x40
	offsetRule     = 0x80
	restoreRule    = 0xc0
	advanceLoc1    = 0x02
	advanceLoc2    = 0x03
	advanceLoc4    = 0x04
	offsetExtended = 0x05
	restoreExt     = 0x06
	undefinedRule  = 0x07
	sameValueRule  = 0x08
	registerRule   = 0x09
	rememberState  = 0x0a
	restoreState   = 0x0b
	defCFA         = 0x0c
	defCFARegister = 0x0d
	defCFAOffset   = 0x0e
	defCFAExpr     = 0x0f
	expressionRule = 0x10
	offsetExtSF    = 0x11
	defCFASF       = 0x12
	defCFAOffsetSF = 0x13
	valOffset      = 0x14
	valOffsetSF    = 0x15
	valExpression  = 0x16
	windowSave     = 0x2d // arm64: whether the return address is signed
	gnuArgsSize    = 0x2e
	gnuNegativeOff = 0x2f
)

// run executes instructions up to the row of pc. false: they are malformed, or too many.
func (f *frameRules) run(c *common, code []byte, start, pc uint64, w *work) bool {
	r := reader{b: code}
	loc := start
	for !r.done() && !r.bad {
		if !w.step() {
			return false
		}
		op := uint64(r.u8())
		low := op & 0x3f
		switch op &^ 0x3f {
		case advanceLoc:
			loc += low * c.codeAlign
		case offsetRule:
			f.set(low, rule{kind: atOffset, value: int64(r.uleb()) * c.dataAlign})
		case restoreRule:
			f.restore(low)
		default:
			if !f.extended(c, op, &r, &loc) {
				return false
			}
		}
		if loc > pc {
			return !r.bad
		}
	}
	return !r.bad
}

func (f *frameRules) restore(column uint64) {
	if r, ok := f.initial.rule(column); ok {
		f.set(column, r)
	} else if column < columns {
		f.changed &^= 1 << column
	}
}

// extended executes an instruction without operand in its opcode.
func (f *frameRules) extended(c *common, op uint64, r *reader, loc *uint64) bool {
	switch op {
	case 0: // nop
	case advanceLoc1:
		*loc += uint64(r.u8()) * c.codeAlign
	case advanceLoc2:
		*loc += r.fixed(2) * c.codeAlign
	case advanceLoc4:
		*loc += r.fixed(4) * c.codeAlign
	case rememberState:
		if f.depth == maxRemembered {
			return false
		}
		f.remembered[f.depth] = f.ruleSet
		f.depth++
	case restoreState:
		if f.depth == 0 {
			return false
		}
		f.depth--
		f.ruleSet = f.remembered[f.depth]
	case gnuArgsSize:
		r.uleb()
	case windowSave:
	case defCFA, defCFASF, defCFARegister, defCFAOffset, defCFAOffsetSF, defCFAExpr:
		f.defineFrame(c, op, r)
	default:
		return f.defineRegister(c, op, r)
	}
	return true
}

func (f *frameRules) defineFrame(c *common, op uint64, r *reader) {
	switch op {
	case defCFA, defCFASF, defCFARegister:
		f.cfaColumn, f.cfaExpression = r.uleb(), nil
	case defCFAExpr:
		f.cfaExpression = r.block()
	}
	switch op {
	case defCFA, defCFAOffset:
		f.cfaOffset = int64(r.uleb())
	case defCFASF, defCFAOffsetSF:
		f.cfaOffset = r.sleb() * c.dataAlign
	}
}

func (f *frameRules) defineRegister(c *common, op uint64, r *reader) bool {
	column := r.uleb()
	switch op {
	case offsetExtended:
		f.set(column, rule{kind: atOffset, value: int64(r.uleb()) * c.dataAlign})
	case offsetExtSF:
		f.set(column, rule{kind: atOffset, value: r.sleb() * c.dataAlign})
	case gnuNegativeOff:
		f.set(column, rule{kind: atOffset, value: -int64(r.uleb()) * c.dataAlign})
	case valOffset:
		f.set(column, rule{kind: isOffset, value: int64(r.uleb()) * c.dataAlign})
	case valOffsetSF:
		f.set(column, rule{kind: isOffset, value: r.sleb() * c.dataAlign})
	case registerRule:
		f.set(column, rule{kind: inRegister, value: int64(r.uleb())})
	case expressionRule:
		f.set(column, rule{kind: atExpression, expression: r.block()})
	case valExpression:
		f.set(column, rule{kind: isExpression, expression: r.block()})
	case undefinedRule:
		f.set(column, rule{kind: undefined})
	case sameValueRule:
		f.set(column, rule{kind: sameValue})
	case restoreExt:
		f.restore(column)
	default:
		return false
	}
	return true
}
