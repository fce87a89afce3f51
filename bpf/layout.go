package bpf

import (
	"crypto/sha256"
	_ "embed" // the numbers
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// numbers is the source of package abi: enumerations are not among the types of an object.
//
//go:embed abi/abi.go
var numbers string

// layoutOf hashes the maps of an object, the types in them, variables apart from constants,
// and what package abi shares.
func layoutOf(spec *ebpf.CollectionSpec, meaning int) string {
	h := sha256.New()
	w := &layoutWriter{to: h, seen: map[btf.Type]int{}}
	fmt.Fprintln(h, meaning, numbers)
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		if strings.HasPrefix(name, ".rodata") {
			continue // of the programs, not of what they work on
		}
		fmt.Fprintln(h, name, m.Type, m.KeySize, m.ValueSize, m.Flags)
		w.write(m.Key)
		w.write(m.Value)
		if m.InnerMap != nil {
			fmt.Fprintln(h, m.InnerMap.Type, m.InnerMap.KeySize, m.InnerMap.ValueSize, m.InnerMap.Flags)
			w.write(m.InnerMap.Value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Variables)) {
		if v := spec.Variables[name]; !v.Constant() {
			fmt.Fprintln(h, name, v.SectionName, v.Offset, v.Size())
			w.write(v.Type)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// layoutWriter writes types down, each once.
type layoutWriter struct {
	to   io.Writer
	seen map[btf.Type]int
}

func (w *layoutWriter) write(t btf.Type) {
	if t == nil {
		fmt.Fprintln(w.to, "none")
		return
	}
	t = btf.UnderlyingType(t)
	if n, ok := w.seen[t]; ok {
		fmt.Fprintln(w.to, "type", n)
		return
	}
	w.seen[t] = len(w.seen)
	switch t := t.(type) {
	case *btf.Struct:
		fmt.Fprintln(w.to, "struct", t.Name, t.Size)
		w.members(t.Members)
	case *btf.Union:
		fmt.Fprintln(w.to, "union", t.Name, t.Size)
		w.members(t.Members)
	case *btf.Array:
		fmt.Fprintln(w.to, "array", t.Nelems)
		w.write(t.Type)
	case *btf.Int:
		fmt.Fprintln(w.to, "int", t.Size, t.Encoding)
	case *btf.Var:
		fmt.Fprintln(w.to, "variable", t.Name)
		w.write(t.Type)
	default: // pointers: what they point to is the kernel's
		fmt.Fprintf(w.to, "%T\n", t)
	}
}

func (w *layoutWriter) members(list []btf.Member) {
	for _, m := range list {
		fmt.Fprintln(w.to, m.Name, m.Offset, m.BitfieldSize)
		w.write(m.Type)
	}
}
