package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"gotest.tools/v3/assert"
)

const modulePath = "github.com/tailcam/tailcam"

// descriptions are the comments of Go types and fields, which the schemas get as descriptions.
type descriptions struct {
	packages map[string]map[string]string // by import path: "Type" and "Type.Field"
}

// describe gives the schema of a type, and those within, their descriptions.
func (d *descriptions) describe(t *testing.T, s *jsonschema.Schema, of reflect.Type) {
	t.Helper()
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case s == nil || s.Ref != "":
	case of.Kind() == reflect.Slice || of.Kind() == reflect.Array:
		d.describe(t, s.Items, of.Elem())
	case of.Kind() == reflect.Map:
		d.describe(t, s.AdditionalProperties, of.Elem())
	case of.Kind() == reflect.Struct:
		if s.Description == "" {
			s.Description = d.of(t, of, of.Name())
		}
		for _, f := range reflect.VisibleFields(of) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := s.Properties[name]
			if f.Anonymous && name == "" || p == nil {
				continue // its fields follow
			}
			owner := of
			if len(f.Index) > 1 {
				owner = of.FieldByIndex(f.Index[:len(f.Index)-1]).Type
				for owner.Kind() == reflect.Pointer {
					owner = owner.Elem()
				}
			}
			if text := d.of(t, owner, owner.Name()+"."+f.Name); text != "" {
				p.Description = text // of the field, and not of its type
			}
			d.describe(t, p, f.Type)
		}
	}
}

// of is the comment of a type or a field; "": it has none, or is none of ours.
func (d *descriptions) of(t *testing.T, of reflect.Type, what string) string {
	t.Helper()
	dir, ours := strings.CutPrefix(of.PkgPath(), modulePath)
	if of.PkgPath() == "main" || strings.HasSuffix(of.PkgPath(), "/cmd/tailcam") {
		dir, ours = "/cmd/tailcam", true
	}
	if !ours {
		return ""
	}
	if d.packages[dir] == nil {
		d.packages[dir] = comments(t, filepath.Join("../..", dir))
	}
	return d.packages[dir][what]
}

// comments reads those of the types of a package, each as one line.
func comments(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	assert.NilError(t, err)
	found := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		assert.NilError(t, err)
		for _, decl := range file.Decls {
			if g, ok := decl.(*ast.GenDecl); ok {
				addComments(found, g)
			}
		}
	}
	return found
}

func addComments(found map[string]string, decl *ast.GenDecl) {
	text := func(groups ...*ast.CommentGroup) string {
		for _, g := range groups {
			if words := strings.Fields(g.Text()); len(words) > 0 {
				return strings.Join(words, " ")
			}
		}
		return ""
	}
	for _, spec := range decl.Specs {
		spec, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		found[spec.Name.Name] = text(spec.Doc, decl.Doc)
		of, ok := spec.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range of.Fields.List {
			for _, name := range f.Names {
				found[spec.Name.Name+"."+name.Name] = text(f.Doc, f.Comment)
			}
		}
	}
}
