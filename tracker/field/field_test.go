package field

import (
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/tracefs"
	"github.com/tailcam/tailcam/tracker/usdt"
)

// example is a raw tracepoint with one argument, a pointer to
//
//	struct outer {
//		struct inner *next;      // 0
//		union { u32 first; s16 half; }; // 8
//		u32 low:3, high:5;       // 12
//		char name[16];           // 16
//		u8 list[4];              // 32
//		struct { int val; } id;  // 36
//		char *text;              // 40
//	}
func example() *Source {
	u8 := &btf.Int{Name: "u8", Size: 1}
	u32 := &btf.Int{Name: "u32", Size: 4}
	s16 := &btf.Int{Name: "s16", Size: 2, Encoding: btf.Signed}
	char := &btf.Int{Name: "char", Size: 1, Encoding: btf.Char}
	sint := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	inner := &btf.Struct{Name: "inner", Size: 16}
	inner.Members = []btf.Member{{Name: "next", Type: &btf.Pointer{Target: inner}}, {Name: "count", Type: &btf.Const{Type: sint}, Offset: 64}}
	outer := &btf.Struct{Name: "outer", Size: 48, Members: []btf.Member{
		{Name: "next", Type: &btf.Pointer{Target: inner}},
		{Type: &btf.Union{Size: 4, Members: []btf.Member{{Name: "first", Type: u32}, {Name: "half", Type: s16}}}, Offset: 64},
		{Name: "low", Type: u32, Offset: 96, BitfieldSize: 3},
		{Name: "high", Type: u32, Offset: 99, BitfieldSize: 5},
		{Name: "name", Type: &btf.Array{Type: char, Nelems: 16, Index: u32}, Offset: 128},
		{Name: "list", Type: &btf.Array{Type: u8, Nelems: 4, Index: u32}, Offset: 256},
		{Name: "id", Type: &btf.Struct{Name: "kid", Size: 4, Members: []btf.Member{{Name: "val", Type: sint}}}, Offset: 288},
		{Name: "text", Type: &btf.Pointer{Target: char}, Offset: 320},
	}}
	arg := func(name string, t btf.Type, i uint32) Arg {
		return Arg{Name: name, Type: t, Fetch: abi.Fetch{Base: abi.FetchArgument, Index: i}}
	}
	return &Source{Hook: "raw_tracepoint:example", Args: []Arg{
		arg("o", &btf.Pointer{Target: &btf.Const{Type: outer}}, 0), arg("n", s16, 1), arg("any", &btf.Pointer{Target: &btf.Void{}}, 2),
	}}
}

func parse(t *testing.T, text string) *rules.Field {
	t.Helper()
	f, err := rules.ParseField(text)
	assert.NilError(t, err)
	return &f
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]abi.Fetch{
		"tid":                   {Base: abi.FetchTid},
		"args.n":                {Base: abi.FetchArgument, Index: 1, Left: 48, Right: 48, Sign: 1},
		"arg1":                  {Base: abi.FetchArgument, Index: 1, Left: 48, Right: 48, Sign: 1},
		"args.o":                {Base: abi.FetchArgument},
		"args.o->first":         {Base: abi.FetchArgument, Loads: 1, Bytes: 4, Left: 32, Right: 32, Offset: [6]int32{8}},
		"args.o->half":          {Base: abi.FetchArgument, Loads: 1, Bytes: 2, Left: 48, Right: 48, Sign: 1, Offset: [6]int32{8}},
		"args.o->low":           {Base: abi.FetchArgument, Loads: 1, Bytes: 8, Left: 64 - 32 - 3, Right: 61, Offset: [6]int32{8}},
		"args.o->high":          {Base: abi.FetchArgument, Loads: 1, Bytes: 8, Left: 64 - 35 - 5, Right: 59, Offset: [6]int32{8}},
		"args.o->list[3]":       {Base: abi.FetchArgument, Loads: 1, Bytes: 1, Left: 56, Right: 56, Offset: [6]int32{35}},
		"args.o->id":            {Base: abi.FetchArgument, Loads: 1, Bytes: 4, Left: 32, Right: 32, Sign: 1, Offset: [6]int32{36}},
		"args.o->id.val":        {Base: abi.FetchArgument, Loads: 1, Bytes: 4, Left: 32, Right: 32, Sign: 1, Offset: [6]int32{36}},
		"args.o->next->count":   {Base: abi.FetchArgument, Loads: 2, Bytes: 4, Left: 32, Right: 32, Sign: 1, Offset: [6]int32{0, 8}},
		"args.any->16->8:u16":   {Base: abi.FetchArgument, Index: 2, Loads: 2, Bytes: 2, Left: 48, Right: 48, Offset: [6]int32{16, 8}},
		"args.o->next->next":    {Base: abi.FetchArgument, Loads: 2, Bytes: 8, Offset: [6]int32{0, 0}},
		"args.o->next[2].count": {Base: abi.FetchArgument, Loads: 2, Bytes: 4, Left: 32, Right: 32, Sign: 1, Offset: [6]int32{0, 40}},
	} {
		got, err := example().Number(parse(t, text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if d := cmp.Diff(want, got.Fetch); d != "" {
			t.Errorf("%s: (-want +got)\n%s", text, d)
		}
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]abi.Fetch{
		"args.o->name": {Base: abi.FetchArgument, Text: abi.FetchString, Bytes: 16, Offset: [6]int32{16}},
		"args.o->text": {Base: abi.FetchArgument, Loads: 1, Text: abi.FetchString, Bytes: 32, User: 2, Offset: [6]int32{40}},
		"args.any":     {Base: abi.FetchArgument, Index: 2, Text: abi.FetchString, Bytes: 32, User: 1},
	} {
		got, err := example().Text(parse(t, text), text != "args.o->name")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if want.Loads > 0 {
			want.Bytes = 32
		}
		d := cmp.Diff(want, got.Fetch)
		assert.Check(t, d == "", "%s: (-want +got)\n%s", text, d)
	}
}

func TestWrongFields(t *testing.T) {
	for text, want := range map[string]string{
		"args.p":          `raw_tracepoint:example: unknown field "args.p"`,
		"args.nn":         `did you mean "args.n"; it has args.o, args.n, args.any`,
		"arg3":            "has 3 arguments, so no arg3",
		"ret":             "ret is of fexit, kretprobe and uretprobe; it has args.o",
		"args.o->frist":   `unknown member "frist", did you mean "first"; struct outer has next, first, half, low, high, name, list, id, text`,
		"args.o.first":    "write ->first",
		"args.n->x":       "->x follows s16, which is no pointer",
		"args.any->x":     "void has no members",
		"args.o->list":    "is *btf.Array, not a number",
		"args.o->list[4]": "[4] is outside the array, which has 4",
		"args.o->low->x":  "is no pointer",
		"args.o->next->next->next->next->next->count": "more than 4 pointers to follow",
		"(struct nothing)args.any->x":                 "this kernel has no struct nothing",
	} {
		_, err := example().Number(parse(t, text))
		assert.Check(t, is.ErrorContains(err, want), "%s", text)
	}
}

const format = `name: sched_switch
ID: 314
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:char prev_comm[16];	offset:8;	size:16;	signed:0;
	field:pid_t prev_pid;	offset:24;	size:4;	signed:1;
	field:const struct outer * skb;	offset:32;	size:8;	signed:0;
	field:__data_loc char[] name;	offset:40;	size:4;	signed:0;
	field:unsigned char list[6];	offset:44;	size:6;	signed:0;

print fmt: "x"
`

func TestRecord(t *testing.T) {
	fields, err := tracefs.ParseFormat(format)
	assert.NilError(t, err)
	s := Record(nil, "tracepoint:a:b", fields)
	got, err := s.Number(parse(t, "args.prev_pid"))
	d := cmp.Diff(abi.Fetch{Base: abi.FetchRecord, Index: 24, Left: 32, Right: 32, Sign: 1}, got.Fetch)
	assert.Check(t, err == nil && d == "", "%v (-want +got)\n%s", err, d)
	for text, want := range map[string]abi.Fetch{
		"args.prev_comm": {Base: abi.FetchInside, Index: 8, Text: abi.FetchString, Bytes: 16},
		"args.name":      {Base: abi.FetchDataLoc, Index: 40, Text: abi.FetchString, Bytes: 32},
	} {
		got, err := s.Text(parse(t, text), false)
		d := cmp.Diff(want, got.Fetch)
		assert.Check(t, err == nil && d == "", "%s: %v (-want +got)\n%s", text, err, d)
	}
	for _, text := range []string{"args.prev_comm", "args.list", "args.common_type", "args.skb->x"} {
		_, err := s.Number(parse(t, text))
		assert.Check(t, err != nil, "%s is a number", text)
	}
}

func TestStatic(t *testing.T) {
	five := int64(5)
	s := Static("usdt:/a:b:c", []usdt.Arg{{Size: 4, Signed: true, Register: 80, Memory: true, Disp: -4}, {Size: 8, Constant: &five}, {Unknown: "strange"}})
	got, err := s.Number(parse(t, "arg0"))
	d := cmp.Diff(abi.Fetch{Base: abi.FetchRegister, Index: 80, Loads: 1, User: 1, Bytes: 4, Left: 32, Right: 32, Sign: 1, Offset: [6]int32{-4}}, got.Fetch)
	assert.Check(t, err == nil && d == "", "%v (-want +got)\n%s", err, d)
	got, err = s.Number(parse(t, "arg1"))
	assert.Check(t, err == nil && got.Fetch.Base == abi.FetchConstant && got.Fetch.Constant == 5,
		"%+v, %v", got, err)
	_, err = s.Number(parse(t, "arg2"))
	assert.Check(t, is.ErrorContains(err, "strange"), "an argument that cannot be read")
}

// FuzzResolve proves that whatever a rule names, what the kernel side is told stays within its bounds.
func FuzzResolve(f *testing.F) {
	for _, s := range []string{"args.o->next->count", "args.o->list[3]", "args.any->16->8:u16", "args.o->high", "args.n", "(struct x)arg0"} {
		f.Add(s)
	}
	source := example()
	f.Fuzz(func(t *testing.T, text string) {
		field, err := rules.ParseField(text)
		if err != nil {
			return
		}
		number, err1 := source.Number(&field)
		str, err2 := source.Text(&field, true)
		for _, v := range []struct {
			fetch abi.Fetch
			err   error
		}{{number.Fetch, err1}, {str.Fetch, err2}} {
			assert.Check(t, v.err != nil || v.fetch.Loads <= abi.FetchLoads && v.fetch.Left <= 63 &&
				v.fetch.Right <= 63 && v.fetch.Bytes <= abi.PairText, "%q: %+v", text, v.fetch)
		}
	})
}
