package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/test/support/schema"
)

const schemaDir = "../../configs/schemas"

// TestSchemas: the shipped schemas are those of the Go types. `make schemas` writes them.
func TestSchemas(t *testing.T) {
	dir, err := filepath.Abs(schemaDir)
	assert.NilError(t, err)
	want := map[string]bool{}
	for of, name := range schemaNames {
		file, err := schema.File(schemaID(name))
		assert.NilError(t, err)
		assert.Check(t, !want[file], "two types print %s", schemaID(name))
		want[file] = true
		golden.Assert(t, string(generate(t, of, schemaID(name))), filepath.Join(dir, file))
	}
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	for _, e := range entries {
		assert.Check(t, want[e.Name()], "no type prints %s", e.Name())
	}
}

// generate is the schema of the JSON of a type.
func generate(t *testing.T, of reflect.Type, id string) []byte {
	t.Helper()
	type who explain.Who // it may hold another, so it has a definition
	opts := &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time]():   {Type: "string", Format: "date-time"},
		reflect.TypeFor[explain.Who](): {Ref: "#/$defs/who"},
	}}
	s, err := jsonschema.ForType(of, opts)
	assert.NilError(t, err, "%s", of)
	def, err := jsonschema.ForType(reflect.TypeFor[who](), opts)
	assert.NilError(t, err, "%s", of)
	open(s)
	open(def)
	d := descriptions{packages: map[string]map[string]string{}}
	d.describe(t, s, of)
	d.describe(t, def, reflect.TypeFor[explain.Who]())
	if data, err := json.Marshal(s); err == nil && bytes.Contains(data, []byte("#/$defs/who")) {
		s.Defs = map[string]*jsonschema.Schema{"who": def}
	}
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", id
	name := any(id)
	s.Properties["schema"] = &jsonschema.Schema{Const: &name}
	s.Required = append([]string{"schema"}, s.Required...)
	s.PropertyOrder = append([]string{"schema"}, s.PropertyOrder...)
	data, err := json.Marshal(s)
	assert.NilError(t, err)
	var out bytes.Buffer
	assert.NilError(t, json.Indent(&out, data, "", "  "))
	out.WriteByte('\n')
	return out.Bytes()
}

// open allows what the Go types do: further fields in objects, as releases add them, and null
// for a map that is nil.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Ref != "" {
		s.Types = nil // a pointer that is left out, not null
	}
	isStruct := s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil
	isMap := s.AdditionalProperties != nil && !isStruct
	switch {
	case isStruct:
		s.AdditionalProperties = nil
	case isMap && s.Type == "object":
		s.Type, s.Types = "", []string{"null", "object"}
	}
	slices.Sort(s.Required)
	s.Required = slices.Compact(s.Required)
	open(s.Items)
	open(s.AdditionalProperties)
	for _, p := range slices.Collect(maps.Values(s.Properties)) {
		open(p)
	}
}
