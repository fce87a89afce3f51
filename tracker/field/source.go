// Package field finds the fields that rules name in what a hook's event
// carries, and tells the kernel side how to read them.
package field

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/tracefs"
)

// Source is what a hook's event carries.
type Source struct {
	Hook   string // for messages
	Args   []Arg
	Return *Arg      // nil: the hook is not at the end of a function
	Kernel *btf.Spec // where struct names are looked up; nil: nowhere
	User   bool      // pointers are those of a program
	// Unnamed: arguments beyond Args may be asked for by number.
	Unnamed []Arg
}

// Arg is one value of an event.
type Arg struct {
	Name  string   // empty: it has none
	Type  btf.Type // nil: a number of eight bytes
	Fetch abi.Fetch
	// Loaded: Fetch is complete, with its loads and shifts.
	Loaded bool
	Signed bool
	Size   uint32 // of text in the record
	Text   uint8
	// Trouble says why it cannot be read; empty: it can.
	Trouble string
}

// ErrNoFunction tells that the kernel's BTF does not know a function.
var ErrNoFunction = errors.New("this kernel has no such function, or does not tell of it")

// RawTracepoint is what a raw tracepoint carries: its arguments.
func RawTracepoint(kernel *btf.Spec, name string) (*Source, error) {
	var t *btf.Typedef
	if err := kernel.TypeByName("btf_trace_"+name, &t); err != nil {
		return nil, fmt.Errorf("%w: %s", tracefs.ErrNoEvent, name)
	}
	proto := protoOf(t.Type)
	// The type has no names of arguments; a function that the kernel makes of it does.
	var f *btf.Func
	if err := kernel.TypeByName("__traceiter_"+name, &f); err == nil {
		proto = protoOf(f.Type)
	}
	if proto == nil || len(proto.Params) == 0 {
		return nil, fmt.Errorf("the kernel does not tell the arguments of %s", name)
	}
	s := &Source{Hook: "raw_tracepoint:" + name, Kernel: kernel}
	for i, p := range proto.Params[1:] { // the first is the tracer's own
		s.Args = append(s.Args, Arg{Name: p.Name, Type: p.Type, Fetch: abi.Fetch{Base: abi.FetchArgument, Index: uint32(i)}})
	}
	return s, nil
}

// Function is what fentry and fexit of a kernel function carry.
func Function(kernel *btf.Spec, hook, name string, returns bool) (*Source, error) {
	proto, err := functionProto(kernel, name)
	if err != nil {
		return nil, err
	}
	s := &Source{Hook: hook, Kernel: kernel}
	for i, p := range proto.Params {
		s.Args = append(s.Args, Arg{Name: p.Name, Type: p.Type, Fetch: abi.Fetch{Base: abi.FetchArgument, Index: uint32(i)}})
	}
	if _, void := proto.Return.(*btf.Void); returns && !void {
		s.Return = &Arg{Name: "ret", Type: proto.Return, Fetch: abi.Fetch{Base: abi.FetchReturn}}
	}
	return s, nil
}

// Registers is what a probe carries: at the begin of a function its arguments,
// at its end its value. types is the function's, nil: not known.
func Registers(kernel *btf.Spec, hook string, types *btf.FuncProto, returns, begins bool) (*Source, error) {
	arguments, value, err := callRegisters(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	s := &Source{Hook: hook, Kernel: kernel}
	if begins {
		for i, offset := range arguments {
			a := Arg{Fetch: abi.Fetch{Base: abi.FetchRegister, Index: offset}}
			if types != nil && i < len(types.Params) {
				a.Name, a.Type = types.Params[i].Name, types.Params[i].Type
				s.Args = append(s.Args, a)
			}
			s.Unnamed = append(s.Unnamed, a)
		}
	}
	if returns {
		s.Return = &Arg{Name: "ret", Fetch: abi.Fetch{Base: abi.FetchRegister, Index: value}, Signed: true}
		if types != nil {
			if _, void := types.Return.(*btf.Void); !void {
				s.Return.Type = types.Return
			}
		}
	}
	return s, nil
}

// FunctionTypes returns the prototype of a kernel function, or nil.
func FunctionTypes(kernel *btf.Spec, name string) *btf.FuncProto {
	proto, err := functionProto(kernel, name)
	if err != nil {
		return nil
	}
	return proto
}

func functionProto(kernel *btf.Spec, name string) (*btf.FuncProto, error) {
	var f *btf.Func
	if err := kernel.TypeByName(name, &f); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNoFunction, name)
	}
	proto := protoOf(f.Type)
	if proto == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoFunction, name)
	}
	return proto, nil
}

func protoOf(t btf.Type) *btf.FuncProto {
	if p, ok := t.(*btf.Pointer); ok {
		t = p.Target
	}
	proto, _ := t.(*btf.FuncProto)
	return proto
}

// callRegisters are the byte offsets in struct pt_regs of the arguments of a
// call, and of its value (the x86-64 and arm64 calling conventions).
func callRegisters(arch string) (arguments []uint32, value uint32, err error) {
	switch arch {
	case "amd64": // di, si, dx, cx, r8, r9; ax
		return []uint32{14 * 8, 13 * 8, 12 * 8, 11 * 8, 9 * 8, 8 * 8}, 10 * 8, nil
	case "arm64": // x0 to x7; x0
		return []uint32{0, 8, 16, 24, 32, 40, 48, 56}, 0, nil
	default:
		return nil, 0, fmt.Errorf("probes are known for amd64 and arm64, not for %s", arch)
	}
}

// Record is what the record of a tracepoint carries.
func Record(kernel *btf.Spec, hook string, fields []tracefs.Field) *Source {
	s := &Source{Hook: hook, Kernel: kernel}
	for _, f := range fields {
		a := Arg{Name: f.Name, Fetch: abi.Fetch{Base: abi.FetchRecord, Index: f.Offset}, Loaded: true, Signed: f.Signed, Size: f.Size}
		switch {
		case f.DataLoc:
			a.Fetch.Base, a.Text, a.Size = abi.FetchDataLoc, abi.FetchString, abi.PairText
		case f.Array || f.Size > 8:
			a.Fetch.Base, a.Text = abi.FetchInside, abi.FetchBytes
			if strings.HasPrefix(f.Type, "char") || strings.HasPrefix(f.Type, "const char") {
				a.Text = abi.FetchString
			}
		case f.Size == 0:
			continue
		default:
			a.Fetch.Left = uint8(64 - 8*f.Size)
			a.Fetch.Right = a.Fetch.Left
			a.Fetch.Sign = sign(f.Signed)
			if f.Size == 8 {
				a.Type = recordPointer(kernel, f.Type)
			}
		}
		s.Args = append(s.Args, a)
	}
	return s
}

// recordPointer is the type of a field such as `const struct sk_buff *`; nil: it is none.
func recordPointer(kernel *btf.Spec, text string) btf.Type {
	target, ok := strings.CutSuffix(text, "*")
	if !ok {
		return nil
	}
	words := strings.Fields(strings.TrimPrefix(target, "const "))
	if len(words) == 1 && words[0] == "char" {
		return &btf.Pointer{Target: &btf.Int{Name: "char", Size: 1, Encoding: btf.Char}}
	}
	if len(words) != 2 || words[0] != "struct" {
		return &btf.Pointer{Target: &btf.Void{}}
	}
	if t := structOf(kernel, words[1]); t != nil {
		return &btf.Pointer{Target: t}
	}
	return &btf.Pointer{Target: &btf.Void{}}
}

func structOf(kernel *btf.Spec, name string) btf.Type {
	if kernel == nil {
		return nil
	}
	types, err := kernel.AnyTypesByName(name)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(types, func(t btf.Type) bool {
		switch s := t.(type) {
		case *btf.Struct:
			return len(s.Members) > 0
		case *btf.Union:
			return len(s.Members) > 0
		}
		return false
	})
	if i < 0 {
		return nil
	}
	return types[i]
}

func sign(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

// names lists what may stand behind args.
func (s *Source) names() []string {
	var names []string
	for _, a := range s.Args {
		if a.Name != "" {
			names = append(names, a.Name)
		}
	}
	return names
}
