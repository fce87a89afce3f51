package field

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
)

// Value is a field as the kernel side reads it.
type Value struct {
	Fetch  abi.Fetch
	Signed bool
	// Pointer: the number is an address.
	Pointer bool
}

// Number finds a field that is a number of at most eight bytes.
func (s *Source) Number(f *rules.Field) (Value, error) {
	w, err := s.walk(f)
	if err != nil {
		return Value{}, err
	}
	return w.number(f)
}

// Text finds a field that is a string: what stands in the record, in an array
// of the kernel, or where a pointer points to. user: that is memory of a program.
func (s *Source) Text(f *rules.Field, user bool) (Value, error) {
	w, err := s.walk(f)
	if err != nil {
		return Value{}, err
	}
	return w.text(abi.FetchString, abi.PairText, user)
}

// Bytes finds size bytes in an order of their own, such as an address of the
// internet. They are at most as many as a label holds.
func (s *Source) Bytes(f *rules.Field, size uint32, user bool) (Value, error) {
	w, err := s.walk(f)
	if err != nil {
		return Value{}, err
	}
	return w.text(abi.FetchBytes, size, user)
}

// walker is a place on the way from a hook's event to a field: a value in
// hand, or, after the first pointer, memory.
type walker struct {
	s        *Source
	arg      Arg
	fetch    abi.Fetch
	typ      btf.Type // nil: not known
	inMemory bool
	offset   int64
	bits     uint32 // of a bit field; 0: it is none
	bitAt    uint32
	what     string // for messages
}

func (s *Source) walk(f *rules.Field) (*walker, error) {
	w := &walker{s: s, what: f.Text}
	arg, err := s.base(f)
	if err != nil {
		return nil, err
	}
	if err := arg.trouble(); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", s.Hook, f.Text, err)
	}
	w.arg, w.fetch, w.typ = arg, arg.Fetch, arg.Type
	if f.Cast != "" {
		t := structOf(s.Kernel, f.Cast)
		if t == nil {
			return nil, fmt.Errorf("this kernel has no struct %s", f.Cast)
		}
		w.typ = &btf.Pointer{Target: t}
	}
	if arg.Text != abi.FetchNumber && len(f.Steps) > 0 {
		return nil, fmt.Errorf("%s is text, which has no members", f.Name)
	}
	for _, step := range f.Steps {
		if err := w.step(step); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Text, err)
		}
	}
	return w, nil
}

// base finds where a field begins.
func (s *Source) base(f *rules.Field) (Arg, error) {
	task := map[rules.FieldBase]uint8{
		rules.BaseTID: abi.FetchTid, rules.BasePID: abi.FetchPid, rules.BaseUID: abi.FetchUid, rules.BaseCPU: abi.FetchCpu,
	}
	if b, ok := task[f.Base]; ok {
		return Arg{Fetch: abi.Fetch{Base: b}, Loaded: true}, nil
	}
	switch f.Base {
	case rules.BaseReturn:
		if s.Return == nil {
			return Arg{}, fmt.Errorf("%s has no ret: ret is of fexit, kretprobe and uretprobe%s", s.Hook, s.listed())
		}
		return *s.Return, nil
	case rules.BaseNumber:
		args := s.Args
		if len(s.Unnamed) > 0 {
			args = s.Unnamed
		}
		if f.Number >= len(args) {
			return Arg{}, fmt.Errorf("%s has %d arguments, so no %s", s.Hook, len(args), f.Text)
		}
		return args[f.Number], nil
	default:
		i := slices.IndexFunc(s.Args, func(a Arg) bool { return a.Name == f.Name })
		if i < 0 {
			return Arg{}, fmt.Errorf("%s: %s%s", s.Hook, rules.Unknown("field", "args."+f.Name, prefixed(s.names())), s.listed())
		}
		return s.Args[i], nil
	}
}

func prefixed(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = "args." + n
	}
	return out
}

// listed says which fields there are.
func (s *Source) listed() string {
	names := prefixed(s.names())
	if s.Return != nil {
		names = append(names, "ret")
	}
	switch {
	case len(names) > 0:
		return "; it has " + strings.Join(names, ", ")
	case len(s.Unnamed) > 0:
		return fmt.Sprintf("; it has arg0 to arg%d", len(s.Unnamed)-1)
	case len(s.Args) > 0:
		return fmt.Sprintf("; it has arg0 to arg%d", len(s.Args)-1)
	}
	return "; it has none"
}

func (w *walker) step(step rules.FieldStep) error {
	switch {
	case step.IsElem:
		return w.element(step.Index)
	case step.Arrow && step.Member == "":
		if err := w.follow(); err != nil {
			return err
		}
		w.offset, w.typ = step.Offset, nil
		return nil
	case step.Arrow:
		p, ok := btf.UnderlyingType(w.typ).(*btf.Pointer)
		if !ok {
			return fmt.Errorf("->%s follows %s, which is no pointer%s", step.Member, nameOf(w.typ), w.castHint())
		}
		if err := w.follow(); err != nil {
			return err
		}
		w.typ, w.offset = p.Target, 0
		return w.member(step.Member)
	default:
		if _, ok := btf.UnderlyingType(w.typ).(*btf.Pointer); ok {
			return fmt.Errorf(".%s follows a pointer: write ->%s", step.Member, step.Member)
		}
		return w.member(step.Member)
	}
}

func (w *walker) castHint() string {
	if w.typ == nil {
		return fmt.Sprintf(" that is known: name it, as in (struct sock)%s", w.what)
	}
	return ""
}

// follow goes to where a pointer points.
func (w *walker) follow() error {
	if w.bits != 0 {
		return fmt.Errorf("a bit field is no pointer")
	}
	if w.inMemory {
		if err := w.load(8); err != nil {
			return err
		}
	}
	w.inMemory, w.offset = true, 0
	return nil
}

// load reads what stands here.
func (w *walker) load(bytes uint8) error {
	if int(w.fetch.Loads) >= abi.FetchLoads {
		return fmt.Errorf("more than %d pointers to follow", abi.FetchLoads-1)
	}
	if w.offset != int64(int32(w.offset)) {
		return fmt.Errorf("offset %d is too large", w.offset)
	}
	n := w.fetch.Loads
	w.fetch.Offset[n] = int32(w.offset)
	if w.s.User {
		w.fetch.User |= 1 << n
	}
	w.fetch.Bytes = bytes
	w.fetch.Loads++
	return nil
}

func (w *walker) element(index int64) error {
	switch t := btf.UnderlyingType(w.typ).(type) {
	case *btf.Array:
		if index < 0 || index >= int64(t.Nelems) && t.Nelems > 0 {
			return fmt.Errorf("[%d] is outside the array, which has %d", index, t.Nelems)
		}
		return w.advance(t.Type, index)
	case *btf.Pointer:
		if err := w.follow(); err != nil {
			return err
		}
		return w.advance(t.Target, index)
	}
	return fmt.Errorf("[%d] follows %s, which is no array", index, nameOf(w.typ))
}

func (w *walker) advance(elem btf.Type, index int64) error {
	size, err := btf.Sizeof(elem)
	if err != nil || size <= 0 {
		return fmt.Errorf("elements of %s have no size", nameOf(elem))
	}
	if index > math.MaxInt32/int64(size) || index < math.MinInt32/int64(size) {
		return fmt.Errorf("[%d] is too far away", index)
	}
	w.offset += index * int64(size)
	w.typ = elem
	return nil
}

// member goes to a member of the struct or union that stands here.
func (w *walker) member(name string) error {
	if !w.inMemory {
		return fmt.Errorf(".%s follows %s, which is no struct in memory", name, nameOf(w.typ))
	}
	members := membersOf(w.typ)
	if members == nil {
		return fmt.Errorf("%s has no members", nameOf(w.typ))
	}
	at, m, ok := findMember(members, name, 0)
	if !ok {
		all := memberNames(members, 0)
		return fmt.Errorf("%s; %s has %s", rules.Unknown("member", name, all), nameOf(w.typ), shortList(all))
	}
	w.bits = uint32(m.BitfieldSize)
	w.bitAt = at
	if w.bits == 0 {
		w.offset += int64(at / 8)
	}
	w.typ = m.Type
	return nil
}

// number ends the walk at a number.
func (w *walker) number(f *rules.Field) (Value, error) {
	if w.arg.Text == abi.FetchBytes && (w.arg.Size == 2 || w.arg.Size == 4 || w.arg.Size == 8) {
		// An array of bytes in a record, such as an address: as good as a number.
		w.fetch.Base, w.fetch.Left = abi.FetchRecord, uint8(64-8*w.arg.Size)
		w.fetch.Right = w.fetch.Left
		return Value{Fetch: w.fetch}, nil
	}
	if w.arg.Text != abi.FetchNumber {
		return Value{}, fmt.Errorf("%s is text, not a number", f.Text)
	}
	size, signed, pointer := uint32(8), w.arg.Signed, false
	if w.typ != nil {
		var err error
		if size, signed, pointer, err = numberType(w.typ); err != nil {
			return Value{}, fmt.Errorf("%s is %w", f.Text, err)
		}
	}
	if f.Type != "" {
		size, signed = typeOf(f.Type)
		w.bits = 0
	}
	if w.arg.Loaded && !w.inMemory && f.Type == "" {
		return Value{Fetch: w.fetch, Signed: w.arg.Signed, Pointer: pointer}, nil
	}
	left, right := uint8(64-8*size), uint8(64-8*size)
	if w.inMemory {
		bytes := uint8(size)
		if w.bits != 0 {
			at := w.bitAt % 64
			if at+w.bits > 64 {
				return Value{}, fmt.Errorf("%s is a bit field over two words", f.Text)
			}
			w.offset += int64(w.bitAt / 64 * 8)
			bytes, left, right = 8, uint8(64-at-w.bits), uint8(64-w.bits)
		}
		if err := w.load(bytes); err != nil {
			return Value{}, fmt.Errorf("%s: %w", f.Text, err)
		}
	}
	w.fetch.Left, w.fetch.Right, w.fetch.Sign = left, right, sign(signed)
	return Value{Fetch: w.fetch, Signed: signed, Pointer: pointer}, nil
}

// text ends the walk at text, or at bytes that are no number.
func (w *walker) text(kind uint8, size uint32, user bool) (Value, error) {
	if w.arg.Text != abi.FetchNumber { // it stands in the record
		w.fetch.Text = kind
		w.fetch.Bytes = uint8(min(size, max(w.arg.Size, 1)))
		return Value{Fetch: w.fetch}, nil
	}
	_, pointer := btf.UnderlyingType(w.typ).(*btf.Pointer)
	if w.typ == nil || pointer {
		if err := w.follow(); err != nil {
			return Value{}, fmt.Errorf("%s: %w", w.what, err)
		}
	}
	if !w.inMemory || w.bits != 0 {
		return Value{}, fmt.Errorf("%s is a number, not text", w.what)
	}
	if a, ok := btf.UnderlyingType(w.typ).(*btf.Array); ok && kind == abi.FetchString && a.Nelems > 0 {
		size = min(size, a.Nelems)
	}
	if w.offset != int64(int32(w.offset)) {
		return Value{}, fmt.Errorf("%s: offset %d is too large", w.what, w.offset)
	}
	n := w.fetch.Loads
	w.fetch.Offset[n] = int32(w.offset)
	if user || w.s.User {
		w.fetch.User |= 1 << n
	}
	w.fetch.Text, w.fetch.Bytes = kind, uint8(size)
	return Value{Fetch: w.fetch}, nil
}
