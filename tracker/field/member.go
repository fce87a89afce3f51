package field

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"
)

const maxDepth = 16 // of structs without a name in one another

func membersOf(t btf.Type) []btf.Member {
	switch s := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		return s.Members
	case *btf.Union:
		return s.Members
	}
	return nil
}

// findMember looks into structs and unions without a name, too. The offset is in bits.
func findMember(members []btf.Member, name string, depth int) (at uint32, m btf.Member, ok bool) {
	for _, m := range members {
		if m.Name == name {
			return uint32(m.Offset), m, true
		}
		if m.Name != "" || depth > maxDepth {
			continue
		}
		if at, inner, ok := findMember(membersOf(m.Type), name, depth+1); ok {
			return uint32(m.Offset) + at, inner, true
		}
	}
	return 0, btf.Member{}, false
}

func memberNames(members []btf.Member, depth int) []string {
	var names []string
	for _, m := range members {
		if m.Name != "" {
			names = append(names, m.Name)
		} else if depth <= maxDepth {
			names = append(names, memberNames(membersOf(m.Type), depth+1)...)
		}
	}
	return names
}

// shortList is a list for a message: structs of the kernel have hundreds of members.
func shortList(names []string) string {
	const most = 40
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// typeOf is size and sign of u8 … s64.
func typeOf(name string) (size uint32, signed bool) {
	switch name[1:] {
	case "8":
		size = 1
	case "16":
		size = 2
	case "32":
		size = 4
	default:
		size = 8
	}
	return size, name[0] == 's'
}

func numberType(t btf.Type) (size uint32, signed, pointer bool, err error) {
	switch u := btf.UnderlyingType(t).(type) {
	case *btf.Int:
		size, signed = u.Size, u.Encoding == btf.Signed
	case *btf.Enum:
		size, signed = u.Size, u.Signed
	case *btf.Pointer:
		size, pointer = 8, true
	case *btf.Struct, *btf.Union:
		// One number in a struct, as kuid_t: that number.
		if members := membersOf(u); len(members) == 1 {
			return numberType(members[0].Type)
		}
		return 0, false, false, fmt.Errorf("%s, not a number: name one of its members, %s", nameOf(t), shortList(memberNames(membersOf(u), 0)))
	default:
		return 0, false, false, fmt.Errorf("%s, not a number", nameOf(t))
	}
	if size != 1 && size != 2 && size != 4 && size != 8 {
		return 0, false, false, fmt.Errorf("a number of %d bytes", size)
	}
	return size, signed, pointer, nil
}

// nameOf names a type for people.
func nameOf(t btf.Type) string {
	switch u := t.(type) {
	case nil:
		return "a number of unknown meaning"
	case *btf.Struct:
		return "struct " + u.Name
	case *btf.Union:
		return "union " + u.Name
	case *btf.Pointer:
		return "a pointer to " + nameOf(u.Target)
	case *btf.Void:
		return "void"
	case *btf.Const:
		return nameOf(u.Type)
	case *btf.Volatile:
		return nameOf(u.Type)
	}
	if n := t.TypeName(); n != "" {
		return n
	}
	return fmt.Sprintf("%T", t)
}
