// Package schema holds what tailcam prints against the JSON Schemas that it ships.
package schema

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// id is the value of the field schema.
var id = regexp.MustCompile(`^tailcam/([a-z-]+)/(v[0-9]+)$`)

// File is the name of the file of a schema: tailcam/status/v1 is in status.v1.json.
func File(name string) (string, error) {
	m := id.FindStringSubmatch(name)
	if m == nil {
		return "", fmt.Errorf("%q is not the name of a schema", name)
	}
	return m[1] + "." + m[2] + ".json", nil
}

// read caches schemas by their paths.
var read sync.Map

// Check returns what is wrong with a JSON object by the schema that it names, which is read
// from dir (configs/schemas), and the name. It may be called from any goroutine.
func Check(dir string, object []byte) (name string, err error) {
	var instance map[string]any
	if err := json.Unmarshal(object, &instance); err != nil {
		return "", fmt.Errorf("%q: %w", object, err)
	}
	name, _ = instance["schema"].(string)
	file, err := File(name)
	if err != nil {
		return name, fmt.Errorf("%s: %w", object, err)
	}
	resolved, err := load(filepath.Join(dir, file))
	if err != nil {
		return name, err
	}
	if err := resolved.Validate(instance); err != nil {
		return name, fmt.Errorf("%s: %w", object, err)
	}
	return name, nil
}

func load(path string) (*jsonschema.Resolved, error) {
	if known, ok := read.Load(path); ok {
		return known.(*jsonschema.Resolved), nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", path, err)
	}
	read.Store(path, resolved)
	return resolved, nil
}
