package perfetto

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tailcam/tailcam/tracker"
)

// interned is what the reader was told once, by its number.
type interned struct {
	functions, paths, mappings map[string]uint64
	frames                     map[[2]uint64]uint64
	callstacks                 map[string]uint64
}

func newInterned() interned {
	return interned{
		functions: map[string]uint64{}, paths: map[string]uint64{}, mappings: map[string]uint64{},
		frames: map[[2]uint64]uint64{}, callstacks: map[string]uint64{},
	}
}

// Fields of InternedData.
const (
	dataFunctions  protowire.Number = 5
	dataFrames     protowire.Number = 6
	dataCallstacks protowire.Number = 7
	dataPaths      protowire.Number = 17
	dataMappings   protowire.Number = 19
	dataSymbols    protowire.Number = 26
)

// kernelModule stands for frames of the kernel itself.
const kernelModule = "[kernel]"

// callstack returns the number of a stack, user and kernel side together; 0: none.
func (w *Writer) callstack(s *tracker.Stacks) uint64 {
	if len(s.Kernel)+len(s.User) == 0 {
		return 0
	}
	key := strings.Join(s.User, "\n") + "\n\n" + strings.Join(s.Kernel, "\n")
	if id, ok := w.stacks.callstacks[key]; ok {
		return id
	}
	m := message{}.uint(1, uint64(len(w.stacks.callstacks)+1))
	for i := len(s.User) - 1; i >= 0; i-- {
		m = m.uint(2, w.frame(s.User[i], "[unknown]"))
	}
	for i := len(s.Kernel) - 1; i >= 0; i-- {
		m = m.uint(2, w.frame(s.Kernel[i], kernelModule))
	}
	id := uint64(len(w.stacks.callstacks) + 1)
	w.stacks.callstacks[key] = id
	w.interned = w.interned.sub(dataCallstacks, m)
	return id
}

// frame returns the number of "symbol+0xoff (module)".
func (w *Writer) frame(text, module string) uint64 {
	name := text
	if before, after, ok := strings.Cut(text, " ("); ok {
		name, module = before, strings.TrimSuffix(after, ")")
	}
	if i := strings.LastIndex(name, "+0x"); i > 0 {
		name = name[:i]
	}
	path := w.intern(w.stacks.paths, module, dataPaths)
	mapping, ok := w.stacks.mappings[module]
	if !ok {
		mapping = uint64(len(w.stacks.mappings) + 1)
		w.stacks.mappings[module] = mapping
		w.interned = w.interned.sub(dataMappings, message{}.uint(1, mapping).uint(7, path))
	}
	function := w.intern(w.stacks.functions, name, dataFunctions)
	key := [2]uint64{function, mapping}
	id, ok := w.stacks.frames[key]
	if !ok {
		id = uint64(len(w.stacks.frames) + 1)
		w.stacks.frames[key] = id
		w.interned = w.interned.sub(dataFrames, message{}.uint(1, id).uint(2, function).uint(3, mapping))
	}
	return id
}

func (w *Writer) intern(known map[string]uint64, s string, field protowire.Number) uint64 {
	id, ok := known[s]
	if !ok {
		id = uint64(len(known) + 1)
		known[s] = id
		w.interned = w.interned.sub(field, message{}.uint(1, id).text(2, s))
	}
	return id
}

// symbol tells the name of a function of the kernel, once.
func (w *Writer) symbol(address uint64, name string) {
	if !w.symbols[address] {
		w.symbols[address] = true
		w.interned = w.interned.sub(dataSymbols, message{}.uint(1, address).text(2, name))
	}
}
