package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// FieldBase is where a field begins.
type FieldBase string

// Where fields begin.
const (
	BaseTID      FieldBase = "tid"  // of the task that passes the hook
	BasePID      FieldBase = "pid"  // its process
	BaseUID      FieldBase = "uid"  // its user
	BaseCPU      FieldBase = "cpu"  // where the hook is passed
	BaseReturn   FieldBase = "ret"  // what the function returns
	BaseArgument FieldBase = "args" // an argument or a member of the record, by name
	BaseNumber   FieldBase = "arg"  // an argument by number
)

// Field is a value of a hook's event, as a rule names it: `args.rq->q->disk`.
type Field struct {
	Text   string
	Base   FieldBase
	Name   string // args: of the argument
	Number int    // arg: of the argument
	Cast   string // struct that the base points to, where the kernel does not tell; empty: none
	Steps  []FieldStep
	// Type is u8, u16, u32, u64, s8 … s64 where the field says it itself; empty: it does not.
	Type string
	Pos  Position
}

// FieldStep is one step from a value into what it points to or holds.
type FieldStep struct {
	Arrow  bool   // through a pointer
	Member string // its name; empty: a byte offset, or an element of an array
	Offset int64  // through a pointer: bytes
	Index  int64  // an element of an array
	IsElem bool
}

// String is the field as it was written.
func (f Field) String() string { return f.Text }

// IsTask reports whether the field says which task it is.
func (f Field) IsTask() bool { return f.Base == BaseTID && len(f.Steps) == 0 }

// maxSteps and maxFieldLen bound what one field may be.
const (
	maxSteps    = 16
	maxFieldLen = 200
)

// fieldAllowed is what messages say of fields.
const fieldAllowed = "tid, pid, uid, cpu, ret, arg0 to arg11, args.NAME, each followed by ->MEMBER, .MEMBER or [INDEX]"

var fieldTypes = []string{"u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"}

// ParseField reads a field. Its errors say what is wrong, without the place.
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
			return f, fmt.Errorf("begins with a bracket that holds no struct, as in (struct sock)args.sk->sk_num")
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
				return f, fmt.Errorf("ends with a type that is none of %s", strings.Join(fieldTypes, ", "))
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
			return f, fmt.Errorf("%s is a number, which has no members", f.Base)
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
			return fmt.Errorf("args has no name behind it, as in args.dev")
		}
		if f.Name = p.word(); f.Name == "" {
			return fmt.Errorf("args. has no name behind it, as in args.dev")
		}
	case strings.HasPrefix(word, "arg"):
		n, err := strconv.ParseUint(word[3:], 10, 8)
		if err != nil || n > 11 {
			return fmt.Errorf("%q is no argument", word)
		}
		f.Base, f.Number = BaseNumber, int(n)
	case word == "":
		return fmt.Errorf("begins with no name")
	default:
		return fmt.Errorf("begins with %q", cut(word))
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
				return s, fmt.Errorf("-> is followed by no offset that is a number below 2^31")
			}
			s.Offset = n
			return s, nil
		}
	case p.take("."):
	case p.take("["):
		n, err := strconv.ParseInt(p.word(), 0, 32)
		if err != nil || !p.take("]") {
			return s, fmt.Errorf("[ is followed by no number and ]")
		}
		s.Index, s.IsElem = n, true
		return s, nil
	default:
		return s, fmt.Errorf("has %q where ->, . or [ may stand", cut(p.rest))
	}
	if s.Member = p.word(); s.Member == "" {
		return s, fmt.Errorf("ends without the name of a member")
	}
	return s, nil
}

// Operator compares a field with a number.
type Operator string

// Operators lists them, in the order of the kernel side's numbers from 1 on.
// & holds if any bit of the number is set.
var Operators = []Operator{"==", "!=", "<", "<=", ">", ">=", "&"}

// Compare is one comparison of entry_when or exit_when.
type Compare struct {
	Field Field
	Op    Operator
	Value int64 // above the range of int64: its two's complement
	Text  string
	Pos   Position
}

// ParseCompare reads a comparison, such as `args.newstate == 2`.
func ParseCompare(text string) (Compare, error) {
	c := Compare{Text: text}
	// An arrow is no operator.
	plain := strings.ReplaceAll(text, "->", "\x00\x00")
	i := strings.IndexAny(plain, "=!<>&")
	if i < 0 {
		return c, fmt.Errorf("compares nothing")
	}
	end := i + 1
	if end < len(plain) && plain[end] == '=' {
		end++
	}
	c.Op = Operator(plain[i:end])
	if !contains(operatorNames(), string(c.Op)) {
		return c, fmt.Errorf("has the operator %q", c.Op)
	}
	number := strings.TrimSpace(text[end:])
	if v, err := strconv.ParseInt(number, 0, 64); err == nil {
		c.Value = v
	} else if v, err := strconv.ParseUint(number, 0, 64); err == nil && v > math.MaxInt64 {
		c.Value = int64(v)
	} else {
		return c, fmt.Errorf("compares with %q, which is no whole number", cut(number))
	}
	var err error
	if c.Field, err = ParseField(strings.TrimSpace(text[:i])); err != nil {
		return c, fmt.Errorf("field %w", err)
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
