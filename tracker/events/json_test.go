package events

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestEventKeys: whatever an event may have, its keys are in snake_case.
func TestEventKeys(t *testing.T) {
	good := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	seen := map[reflect.Type]bool{}
	var walk func(at string, of reflect.Type)
	walk = func(at string, of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Array || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] || of.PkgPath() == "time" {
			return
		}
		seen[of] = true
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported():
				continue
			case f.Anonymous && name == "":
			case !good.MatchString(name):
				t.Errorf("%s.%s has the key %q", at, f.Name, name)
			}
			walk(at+"."+f.Name, f.Type)
		}
	}
	walk("Outlier", reflect.TypeFor[Outlier]())
	assert.Check(t, len(seen) >= 3, "only %d types were looked at", len(seen))
}
