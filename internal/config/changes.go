package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Change is a key whose value differs.
type Change struct{ Key, Before, After string }

// secret stands for the values of keys that may hold secrets.
const secret = "(secret)"

// Changes lists the keys that differ, in the order of the configuration file. Those
// that may hold secrets are without their values.
func Changes(before, after *Config) []Change {
	a, b := map[string]string{}, map[string]string{}
	flatten("", reflect.ValueOf(*before), a)
	flatten("", reflect.ValueOf(*after), b)
	var list []Change
	for _, k := range keys() {
		if a[k.name] != b[k.name] {
			if k.secret {
				a[k.name], b[k.name] = secret, secret
			}
			list = append(list, Change{k.name, a[k.name], b[k.name]})
		}
	}
	return list
}

// Value is a key with its value.
type Value struct{ Key, Value string }

// Values lists all keys, in the order of the configuration file. Those that may hold
// secrets and are set are without their values.
func Values(c *Config) []Value {
	values := map[string]string{}
	flatten("", reflect.ValueOf(*c), values)
	var list []Value
	for _, k := range keys() {
		v := values[k.name]
		if k.secret && v != "" {
			v = secret
		}
		list = append(list, Value{k.name, v})
	}
	return list
}

// flatten formats the fields of a struct by the names of their keys.
func flatten(prefix string, v reflect.Value, into map[string]string) {
	for field, value := range v.Fields() {
		name := prefix + keyName(field.Name)
		switch {
		case value.Kind() == reflect.Struct:
			flatten(name+".", value, into)
		case value.Kind() == reflect.Slice:
			into[name] = strings.Trim(fmt.Sprint(value.Interface()), "[]")
		case value.Kind() == reflect.Map:
			into[name] = strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(value.Interface()), "map["), "]")
		default:
			into[name] = fmt.Sprint(value.Interface())
		}
	}
}

// keyName is the name of a field in lower case with underscores.
func keyName(field string) string {
	var name []rune
	runes := []rune(field)
	for i, c := range runes {
		next := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if i > 0 && unicode.IsUpper(c) && (next || unicode.IsLower(runes[i-1])) {
			name = append(name, '_')
		}
		name = append(name, unicode.ToLower(c))
	}
	return string(name)
}

// Within reports whether a key is one of names, or below it: snapshots.keep covers
// snapshots.keep.count.
func Within(key string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return key == name || strings.HasPrefix(key, name+".") })
}
