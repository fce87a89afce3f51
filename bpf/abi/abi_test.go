package abi

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// What the objects hold has the size, the offsets and the values of what Go has.
func TestObjectsHaveTheSameLayout(t *testing.T) {
	for name, object := range map[string]struct {
		load  func() (*ebpf.CollectionSpec, error)
		least int // structs of the ABI
	}{"tailcam": {bpf.LoadTailcam, 10}, "pair": {bpf.LoadPair, 10}, "coredump": {bpf.LoadCoredump, 1}, "pagecache": {bpf.LoadPagecache, 3}} {
		t.Run(name, func(t *testing.T) {
			spec, err := object.load()
			assert.NilError(t, err)
			structs, values := 0, 0
			for typ, err := range spec.Types.All() {
				assert.NilError(t, err)
				switch c := typ.(type) {
				case *btf.Struct:
					if g, ok := goTypes[c.Name]; ok {
						structs++
						assert.Check(t, same(c, g), "struct %s", c.Name)
					}
				case *btf.Enum:
					for _, v := range c.Values {
						if g, ok := goConstants[v.Name]; ok {
							values++
							assert.Check(t, g == v.Value, "%s is %d in C and %d in Go", v.Name, v.Value, g)
						}
					}
				}
			}
			t.Logf("%d structs, %d constants", structs, values)
			assert.Check(t, structs >= object.least, "the object holds next to nothing of the ABI")
		})
	}
}

// same compares a type of C with one of Go, and those within it.
func same(c btf.Type, g reflect.Type) error {
	c = btf.UnderlyingType(c)
	size, err := btf.Sizeof(c)
	if err != nil {
		return err
	}
	if uintptr(size) != g.Size() {
		return fmt.Errorf("%d bytes in C, %d in Go", size, g.Size())
	}
	switch c := c.(type) {
	case *btf.Struct:
		if g.NumField() != len(c.Members)+1 { // the first is structs.HostLayout
			return fmt.Errorf("%d members in C, %d in Go", len(c.Members), g.NumField()-1)
		}
		for i, m := range c.Members {
			f, name, typ := g.Field(i+1), m.Name, m.Type
			if u, ok := typ.(*btf.Union); ok {
				name, typ = u.Members[0].Name, u.Members[0].Type
			}
			if f.Name != "_" && !strings.EqualFold(f.Name, strings.ReplaceAll(name, "_", "")) {
				return fmt.Errorf("%s in C is %s in Go", name, f.Name)
			}
			if uintptr(m.Offset.Bytes()) != f.Offset {
				return fmt.Errorf("%s is at %d in C and at %d in Go", name, m.Offset.Bytes(), f.Offset)
			}
			if err := same(typ, f.Type); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	case *btf.Array:
		if g.Kind() != reflect.Array || g.Len() != int(c.Nelems) {
			return fmt.Errorf("%d elements in C, %v in Go", c.Nelems, g)
		}
		return same(c.Type, g.Elem())
	case *btf.Int:
		signed := c.Encoding == btf.Signed && c.Name != "char"
		if signed != (g.Kind() >= reflect.Int && g.Kind() <= reflect.Int64) {
			return fmt.Errorf("%s in C is %v in Go", c.Name, g)
		}
	}
	return nil
}

// Package rules knows no BPF, and has its limits itself.
func TestLimitsOfRulesAreThoseOfTheKernelSide(t *testing.T) {
	for name, n := range rules.KernelLimits() {
		c, ok := goConstants[name]
		assert.Check(t, ok && uint64(n) == c, "%s is %d, package rules has %d", name, c, n)
	}
}

// Nothing but this package says what a number of the ABI is: where the kernel
// side is dealt with, no constant has the name of one of its own.
func TestNoConstantRepeatsTheHeaders(t *testing.T) {
	ours := map[string]bool{}
	for name := range goConstants {
		ours[strings.ToLower(strings.ReplaceAll(name, "_", ""))] = true
	}
	for _, root := range []string{"tracker", "snapshot/trace", "snapshot/flight", "internal/inject", "test/support"} {
		err := filepath.WalkDir("../../"+root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, d := range file.Decls {
				constants, ok := d.(*ast.GenDecl)
				if !ok || constants.Tok != token.CONST {
					continue
				}
				for _, spec := range constants.Specs {
					v := spec.(*ast.ValueSpec)
					for i, name := range v.Names {
						if ours[strings.ToLower(name.Name)] && (i >= len(v.Values) || written(v.Values[i])) {
							t.Errorf("%s: %s: take it from package abi", path, name.Name)
						}
					}
				}
			}
			return nil
		})
		assert.NilError(t, err)
	}
}

// written tells of a number that is written down.
func written(x ast.Expr) (found bool) {
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			found = found || n.Kind == token.INT
		case *ast.Ident:
			found = found || n.Name == "iota"
		}
		return true
	})
	return found
}
