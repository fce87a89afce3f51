// Command same compares two objects of BPF programs: 0 if they are the same but for the
// order of types that are declared only, which clang takes from addresses in its memory, and
// so from the length of paths.
//
//	go run ./bpf/abi/same A.o B.o
package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: same A.o B.o")
		os.Exit(2)
	}
	var texts [2]string
	for i, path := range os.Args[1:] {
		text, err := describe(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		texts[i] = text
	}
	if texts[0] != texts[1] {
		os.Exit(1)
	}
}

// describe writes all of an object that the kernel is given, without numbers of types.
func describe(path string) (string, error) {
	spec, err := ebpf.LoadCollectionSpec(path)
	if err != nil {
		return "", fmt.Errorf("load %s: %w", path, err)
	}
	var lines []string
	for name, p := range spec.Programs {
		lines = append(lines, fmt.Sprintf("program %s %v %v %q %q %q", name, p.Type, p.AttachType, p.AttachTo, p.SectionName, p.License))
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			lines = append(lines, fmt.Sprintf("%s %05d %q %v %#x %d %q %v %v", name, i, ins.Symbol(), ins, ins.Constant, ins.Offset, ins.Reference(),
				relocation(btf.CORERelocationMetadata(ins)), ins.Source()))
		}
	}
	for name, m := range spec.Maps {
		lines = append(lines, fmt.Sprintf("map %s %v %d %d %d %#x %v %v", name, m, m.KeySize, m.ValueSize, m.MaxEntries, m.Flags, m.InnerMap, m.Contents))
	}
	for name, v := range spec.Variables {
		lines = append(lines, fmt.Sprintf("variable %s %v %v", name, v, v.Value))
	}
	for t, err := range spec.Types.All() {
		if err != nil {
			return "", fmt.Errorf("types of %s: %w", path, err)
		}
		lines = append(lines, typeText(t))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

var numbers = regexp.MustCompile(`local_id=\d+`)

func relocation(r *btf.CORERelocation) string { return numbers.ReplaceAllString(fmt.Sprint(r), "") }

// typeText is a type, with the names of the types that it is made of.
func typeText(t btf.Type) string {
	text := fmt.Sprintf("type %T %q %s", t, t.TypeName(), short(t))
	var members []btf.Member
	switch t := t.(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		text += fmt.Sprintf(" %s@%d:%d %s", m.Name, m.Offset, m.BitfieldSize, short(m.Type))
	}
	return text
}

var addresses = regexp.MustCompile(`:[0-9a-f]{6,}`)

// short is a type without what tells it from one of the same name.
func short(t btf.Type) string { return addresses.ReplaceAllString(fmt.Sprintf("%+1v", t), "") }
