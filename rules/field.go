package rules

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// FieldBase is what a field starts from.
type FieldBase string

// The bases of fields.
const (
	BaseTID      FieldBase = "tid"  // of the current task
	BasePID      FieldBase = "pid"  // its process
	BaseUID      FieldBase = "uid"  // its user
	BaseCPU      FieldBase = "cpu"  // the current CPU
	BaseReturn   FieldBase = "ret"  // the return value
	BaseArgument FieldBase = "args" // an argument or a member of the record, by name
	BaseNumber   FieldBase = "arg"  // an argument by number
)

// Field is a value of a hook's event, such as `args.rq->q->disk`.
type Field struct {
	Text   string
	Base   FieldBase
	Name   string // args: of the argument
	Number int    // arg: of the argument
	Cast   string // struct that the base points to, if the kernel's BTF does not say; empty: none
	Steps  []FieldStep
	// Type is an explicit type: u8, u16, u32, u64, s8 … s64; empty: none.
	Type string
	Pos  Position
}

// FieldStep is one step from a value to a member, an element, or what it points to.
type FieldStep struct {
	Arrow  bool   // through a pointer
	Member string // its name; empty: a byte offset, or an element of an array
	Offset int64  // through a pointer: bytes
	Index  int64  // an element of an array
	IsElem bool
}

// String returns the field as written.
func (f Field) String() string { return f.Text }

// IsTask reports whether the field is the task's id.
func (f Field) IsTask() bool { return f.Base == BaseTID && len(f.Steps) == 0 }

// Bounds of one field.
const (
	maxSteps    = 16
	maxFieldLen = 200
)

// fieldAllowed describes fields in messages.
const fieldAllowed = "tid, pid, uid, cpu, ret, arg0 to arg11, args.NAME, each followed by ->MEMBER, .MEMBER or [INDEX]"

var fieldTypes = []string{"u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"}

// ParseField parses a field. Its errors do not include the position.
func ParseField(text string) (Field, error) {
	f := Field{Text: text}
	if len(text) > maxFieldLen {
		return f, fmt.Errorf("longer than %d characters", maxFieldLen)
	}
	p := fieldParser{rest: strings.TrimSpace(text)}
	if p.take("(") {
		p.space()
		name := p.word()
		p.space()
		if second := p.word(); second != "" && name == "struct" {
			name = second
		}
		p.space()
		p.take("*")
		p.space()
		if name == "" || !p.take(")") {
			return f, errors.New("invalid cast: must be as in (struct sock)args.sk->sk_num")
		}
		f.Cast = name
		p.space()
	}
	if err := p.base(&f); err != nil {
		return f, err
	}
	for p.rest != "" && len(f.Steps) <= maxSteps {
		if p.take(":") {
			f.Type = p.word()
			if !contains(fieldTypes, f.Type) || p.rest != "" {
				return f, fmt.Errorf("unknown type: must be one of %s", strings.Join(fieldTypes, ", "))
			}
			break
		}
		step, err := p.step()
		if err != nil {
			return f, err
		}
		f.Steps = append(f.Steps, step)
	}
	if len(f.Steps) > maxSteps {
		return f, fmt.Errorf("more than %d steps", maxSteps)
	}
	switch f.Base {
	case BaseTID, BasePID, BaseUID, BaseCPU:
		if len(f.Steps) > 0 || f.Cast != "" || f.Type != "" {
			return f, fmt.Errorf("%s is a number and has no members", f.Base)
		}
	}
	return f, nil
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

type fieldParser struct{ rest string }

func (p *fieldParser) take(token string) bool {
	rest, ok := strings.CutPrefix(p.rest, token)
	p.rest = rest
	return ok
}

func (p *fieldParser) space() { p.rest = strings.TrimLeft(p.rest, " ") }

// word takes a name.
func (p *fieldParser) word() string {
	i := 0
	for i < len(p.rest) && isNameByte(p.rest[i]) {
		i++
	}
	w := p.rest[:i]
	p.rest = p.rest[i:]
	return w
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (p *fieldParser) base(f *Field) error {
	word := p.word()
	switch b := FieldBase(word); {
	case b == BaseTID || b == BasePID || b == BaseUID || b == BaseCPU || b == BaseReturn:
		f.Base = b
	case b == BaseArgument:
		f.Base = b
		if !p.take(".") {
			return errors.New("missing name after args, as in args.dev")
		}
		if f.Name = p.word(); f.Name == "" {
			return errors.New("missing name after args., as in args.dev")
		}
	case strings.HasPrefix(word, "arg"):
		n, err := strconv.ParseUint(word[3:], 10, 8)
		if err != nil || n > 11 {
			return fmt.Errorf("unknown argument %q", word)
		}
		f.Base, f.Number = BaseNumber, int(n)
	case word == "":
		return errors.New("missing name")
	default:
		return fmt.Errorf("unknown base %q", cut(word))
	}
	return nil
}

func (p *fieldParser) step() (FieldStep, error) {
	var s FieldStep
	switch {
	case p.take("->"):
		s.Arrow = true
		if p.rest != "" && p.rest[0] >= '0' && p.rest[0] <= '9' {
			n, err := strconv.ParseInt(p.word(), 0, 32)
			if err != nil {
				return s, errors.New("invalid offset after ->")
			}
			s.Offset = n
			return s, nil
		}
	case p.take("."):
	case p.take("["):
		n, err := strconv.ParseInt(p.word(), 0, 32)
		if err != nil || !p.take("]") {
			return s, errors.New("invalid index after [")
		}
		s.Index, s.IsElem = n, true
		return s, nil
	default:
		return s, fmt.Errorf("unexpected %q: must be ->, . or [", cut(p.rest))
	}
	if s.Member = p.word(); s.Member == "" {
		return s, errors.New("missing member name")
	}
	return s, nil
}

// Operator compares a field with a number.
type Operator string

// Operators lists them in the order of the kernel side's numbers, from 1.
// & is true if any bit of the number is set.
var Operators = []Operator{"==", "!=", "<", "<=", ">", ">=", "&"}

// Compare is one comparison of entry_when or exit_when.
type Compare struct {
	Field Field
	Op    Operator
	Value int64 // two's complement if above the range of int64
	Text  string
	Pos   Position
}

// ParseCompare parses a comparison such as `args.newstate == 2`.
func ParseCompare(text string) (Compare, error) {
	c := Compare{Text: text}
	// An arrow is not an operator.
	plain := strings.ReplaceAll(text, "->", "\x00\x00")
	i := strings.IndexAny(plain, "=!<>&")
	if i < 0 {
		return c, errors.New("missing operator")
	}
	end := i + 1
	if end < len(plain) && plain[end] == '=' {
		end++
	}
	c.Op = Operator(plain[i:end])
	if !contains(operatorNames(), string(c.Op)) {
		return c, fmt.Errorf("unknown operator %q", c.Op)
	}
	number := strings.TrimSpace(text[end:])
	if v, err := strconv.ParseInt(number, 0, 64); err == nil {
		c.Value = v
	} else if v, err := strconv.ParseUint(number, 0, 64); err == nil && v > math.MaxInt64 {
		c.Value = int64(v)
	} else {
		return c, fmt.Errorf("%q is not an integer", cut(number))
	}
	var err error
	if c.Field, err = ParseField(strings.TrimSpace(text[:i])); err != nil {
		return c, fmt.Errorf("invalid field: %w", err)
	}
	return c, nil
}

func operatorNames() []string {
	var names []string
	for _, o := range Operators {
		names = append(names, string(o))
	}
	return names
}
