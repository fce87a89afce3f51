package perfetto

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tailcam/tailcam/export/fields"
	"github.com/tailcam/tailcam/tracker/events"
)

// interned is what the reader was told once, by its number.
type interned struct {
	functions, paths, sources, mappings map[string]uint64
	frames                              map[frameKey]uint64
	callstacks                          map[string]uint64
}

type frameKey struct {
	function, mapping, source, address uint64
	line                               int
}

func newInterned() interned {
	return interned{
		functions: map[string]uint64{}, paths: map[string]uint64{}, sources: map[string]uint64{}, mappings: map[string]uint64{},
		frames: map[frameKey]uint64{}, callstacks: map[string]uint64{},
	}
}

// Fields of InternedData.
const (
	dataFunctions  protowire.Number = 5
	dataFrames     protowire.Number = 6
	dataCallstacks protowire.Number = 7
	dataPaths      protowire.Number = 17
	dataSources    protowire.Number = 18
	dataMappings   protowire.Number = 19
	dataSymbols    protowire.Number = 26
)

// kernelModule stands for frames of the kernel itself.
const kernelModule = "[kernel]"

// callstack returns the number of a stack, user and kernel side together; 0: none.
func (w *Writer) callstack(s *events.Stacks) uint64 {
	if len(s.Kernel)+len(s.User) == 0 {
		return 0
	}
	var ids message
	for _, f := range fields.Frames(s) {
		ids = ids.uint(2, w.frame(&f))
	}
	if id, ok := w.stacks.callstacks[string(ids)]; ok {
		return id
	}
	id := uint64(len(w.stacks.callstacks) + 1)
	w.stacks.callstacks[string(ids)] = id
	w.interned = w.interned.sub(dataCallstacks, append(message{}.uint(1, id), ids...))
	return id
}

func (w *Writer) frame(f *fields.Frame) uint64 {
	module := f.Module
	switch {
	case module == "" && f.Kernel:
		module = kernelModule
	case module == "":
		module = "[unknown]"
	}
	path := w.intern(w.stacks.paths, module, dataPaths)
	mapping, ok := w.stacks.mappings[module]
	if !ok {
		mapping = uint64(len(w.stacks.mappings) + 1)
		w.stacks.mappings[module] = mapping
		w.interned = w.interned.sub(dataMappings, message{}.uint(1, mapping).uint(7, path))
	}
	name := f.Function
	if f.Inlined {
		name += " (inlined)"
	}
	if f.Address != 0 { // one row of a flame graph for each, as there is no name to tell them apart
		name = fmt.Sprintf("%s %#x", name, f.Address)
	}
	key := frameKey{function: w.intern(w.stacks.functions, name, dataFunctions), mapping: mapping, address: f.Address, line: f.Line}
	if f.File != "" {
		key.source = w.intern(w.stacks.sources, f.File, dataSources)
	}
	id, ok := w.stacks.frames[key]
	if !ok {
		id = uint64(len(w.stacks.frames) + 1)
		w.stacks.frames[key] = id
		m := message{}.uint(1, id).uint(2, key.function).uint(3, mapping)
		if f.Address != 0 {
			m = m.uint(4, f.Address)
		}
		if key.source != 0 {
			m = m.uint(5, key.source).uint(6, uint64(max(f.Line, 0)))
		}
		w.interned = w.interned.sub(dataFrames, m)
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
