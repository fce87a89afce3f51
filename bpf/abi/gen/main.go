// Command gen writes the Go side of the headers in bpf/abi: it compiles all of
// them into one BPF object, and turns the object's BTF into Go. Run it in bpf/abi.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cilium/ebpf/btf"
)

const constraint = "//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64 || wasm"

// declaration is one type that a header declares.
type declaration struct {
	header string
	kind   string // struct or enum
	name   string
}

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "bpf/abi/gen:", err)
		os.Exit(1)
	}
}

func generate() error {
	list, err := declarations()
	if err != nil {
		return err
	}
	spec, err := compile(list)
	if err != nil {
		return err
	}
	types, registry, err := translate(list, spec)
	if err != nil {
		return err
	}
	for name, source := range map[string][]byte{"abi.go": types, "registry_test.go": registry} {
		formatted, err := format.Source(source)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(name, formatted, 0o644); err != nil { //nolint:gosec // sources that everybody may read
			return err
		}
	}
	return nil
}

var declared = regexp.MustCompile(`(?m)^(struct|enum) (\w+) \{$`)

// declarations finds what the headers declare, in the order of the files and in theirs.
func declarations() ([]declaration, error) {
	headers, err := filepath.Glob("*.h")
	if err != nil || len(headers) == 0 {
		return nil, cmp.Or(err, fmt.Errorf("no headers here: run it in bpf/abi"))
	}
	var list []declaration
	for _, header := range headers {
		source, err := os.ReadFile(header)
		if err != nil {
			return nil, err
		}
		for _, m := range declared.FindAllSubmatch(source, -1) {
			list = append(list, declaration{header: header, kind: string(m[1]), name: string(m[2])})
		}
	}
	return list, nil
}

// compile makes an object with a variable of each type, and returns its BTF.
func compile(list []declaration) (*btf.Spec, error) {
	var stub strings.Builder
	header := ""
	for i, d := range list {
		if d.header != header {
			header = d.header
			fmt.Fprintf(&stub, "#include \"abi/%s\"\n", header)
		}
		fmt.Fprintf(&stub, "%s %s v%d;\n", d.kind, d.name, i)
	}
	dir, err := os.MkdirTemp("", "tailcam-abi-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a directory for temporary files
	object := filepath.Join(dir, "abi.o")
	clang := exec.Command("clang-19", "-target", "bpfel", "-g", "-O2", "-Wall", "-Werror", //nolint:gosec // the variable is a path of our own
		"-x", "c", "-", "-c", "-o", object, "-I..", "-I/usr/include/x86_64-linux-gnu", "-I/usr/include/aarch64-linux-gnu")
	clang.Stdin, clang.Stderr = strings.NewReader(stub.String()), os.Stderr
	if err := clang.Run(); err != nil {
		return nil, fmt.Errorf("clang-19: %w", err)
	}
	return btf.LoadSpec(object)
}

// translate writes the Go types and constants, and a table of them for tests.
func translate(list []declaration, spec *btf.Spec) (types, registry []byte, err error) {
	var out, structs, constants bytes.Buffer
	const generated = "// Code generated from the headers of bpf/abi by bpf/abi/gen; DO NOT EDIT.\n"
	fmt.Fprintf(&out, "%s%s\n\npackage abi\n\nimport (\n\"structs\"\n\"unsafe\"\n)\n", generated, constraint)
	gf := &btf.GoFormatter{Names: map[btf.Type]string{}, Identifier: fieldName}
	if err := nameTypes(gf, list, spec); err != nil {
		return nil, nil, err
	}
	for _, d := range list {
		if d.kind == "enum" {
			var e *btf.Enum
			if err := spec.TypeByName(d.name, &e); err != nil {
				return nil, nil, fmt.Errorf("enum %s: %w", d.name, err)
			}
			fmt.Fprintf(&out, "\n// enum %s, %s.\nconst (\n", d.name, d.header)
			for _, v := range e.Values {
				number := fmt.Sprint(v.Value)
				switch {
				case e.Signed:
					number = fmt.Sprint(int64(v.Value))
				case v.Value > 1<<12:
					number = fmt.Sprintf("%#x", v.Value)
				}
				fmt.Fprintf(&out, "%s = %s\n", camel(v.Name), number)
				fmt.Fprintf(&constants, "%q: uint64(%s),\n", v.Name, camel(v.Name))
			}
			fmt.Fprint(&out, ")\n")
			continue
		}
		var s *btf.Struct
		if err := spec.TypeByName(d.name, &s); err != nil {
			return nil, nil, fmt.Errorf("struct %s: %w", d.name, err)
		}
		if err := padded(s); err != nil {
			return nil, nil, err
		}
		name := camel(d.name)
		text, err := gf.TypeDeclaration(name, s)
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(&out, "\n// %s is struct %s, %s.\n%s\n", name, d.name, d.header, text)
		if d.name == "record" {
			fmt.Fprint(&out, "\n// Offsets in struct record, of its own members and of those of its bodies.\nconst (\n")
			offsets(&out, s, "Record", "")
			fmt.Fprint(&out, ")\n")
		}
		fmt.Fprintf(&structs, "%q: reflect.TypeFor[%s](),\n", d.name, name)
	}
	registry = fmt.Appendf(nil, "%s%s\n\npackage abi\n\nimport \"reflect\"\n\nvar goTypes = map[string]reflect.Type{\n%s}\n\nvar goConstants = map[string]uint64{\n%s}\n",
		generated, constraint, &structs, &constants)
	return out.Bytes(), registry, nil
}

// nameTypes lets structs refer to each other by name, and makes bytes of C's char.
func nameTypes(gf *btf.GoFormatter, list []declaration, spec *btf.Spec) error {
	var char *btf.Int
	if err := spec.TypeByName("char", &char); err != nil {
		return fmt.Errorf("char: %w", err)
	}
	gf.Names[char] = "byte"
	for _, d := range list {
		var s *btf.Struct
		if d.kind != "struct" {
			continue
		}
		if err := spec.TypeByName(d.name, &s); err != nil {
			return fmt.Errorf("struct %s: %w", d.name, err)
		}
		gf.Names[s] = camel(d.name)
	}
	return nil
}

// offsets writes where the members of a struct are that is found at base, in
// Go's terms, so that what holds for the Go structs holds for them.
func offsets(out *bytes.Buffer, s *btf.Struct, name, base string) {
	prefix := strings.TrimPrefix(name, "Record")
	for _, m := range s.Members {
		members := []btf.Member{m}
		if u, ok := m.Type.(*btf.Union); ok {
			members = u.Members
		}
		at := fmt.Sprintf("%sint(unsafe.Offsetof(%s{}.%s))", base, name, fieldName(members[0].Name))
		for _, m := range members {
			if body, ok := m.Type.(*btf.Struct); ok {
				offsets(out, body, camel(body.Name), "OffRaw + ")
			} else if fieldName(m.Name) != "_" {
				fmt.Fprintf(out, "Off%s%s = %s\n", prefix, fieldName(m.Name), at)
			}
		}
	}
}

// fieldName is the Go name of a member; padding has none.
func fieldName(s string) string {
	if strings.HasPrefix(s, "_") {
		return "_"
	}
	return camel(s)
}

// camel turns a C name, some_name or SOME_NAME, into SomeName.
func camel(s string) string {
	var out strings.Builder
	for word := range strings.SplitSeq(strings.ToLower(s), "_") {
		if word != "" {
			out.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return out.String()
}

// padded refuses a struct with holes between its members: what is in them would
// differ from one copy to the next. A union must be as large as its first
// member, which Go has of it.
func padded(s *btf.Struct) error {
	end := uint32(0)
	for _, m := range s.Members {
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			return fmt.Errorf("struct %s: %s: %w", s.Name, m.Name, err)
		}
		if m.Offset.Bytes() != end || m.BitfieldSize != 0 {
			return fmt.Errorf("struct %s: a hole of %d bytes before %s: write padding out", s.Name, m.Offset.Bytes()-end, m.Name)
		}
		end += uint32(size)
		if u, ok := m.Type.(*btf.Union); ok {
			if first, err := btf.Sizeof(u.Members[0].Type); err != nil || first != size {
				return fmt.Errorf("struct %s: the first member of a union must fill it: %w", s.Name, err)
			}
		}
	}
	if end != s.Size {
		return fmt.Errorf("struct %s: a hole of %d bytes at its end: write padding out", s.Name, s.Size-end)
	}
	return nil
}
