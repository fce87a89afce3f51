package published

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of the messages ProcessContext, KeyValue, AnyValue and ArrayValue of OpenTelemetry.
const (
	contextAttributes = 2
	keyValueKey       = 1
	keyValueValue     = 2
	anyString         = 1
	anyArray          = 5
	arrayValues       = 1
)

const (
	schemaKey = "threadlocal.schema_version"
	keyMapKey = "threadlocal.attribute_key_map"
	maxKeys   = 256 // a number is one byte
)

// schemas are the versions of the record that the kernel side reads. The OTEP names the first,
// and the one that it is to become.
var schemas = []string{"tlsdesc_v1_dev", "tls_v1"}

var errNoKeys = errors.New("its process context has no keys of attributes")

// Parse returns the names of attributes, by their numbers, that a process context has. Names
// that are no strings are empty.
func Parse(payload []byte) (keys []string, err error) {
	schema := ""
	err = fields(payload, func(number protowire.Number, b []byte) error {
		if number != contextAttributes {
			return nil
		}
		key, value, err := keyValue(b)
		switch {
		case err != nil:
			return err
		case string(key) == schemaKey:
			schema, err = stringValue(value)
		case string(key) == keyMapKey:
			keys, err = arrayValue(value)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("parse its process context: %w", err)
	case len(keys) == 0:
		return nil, errNoKeys
	case !slices.Contains(schemas, schema):
		return nil, fmt.Errorf("its contexts of threads have the schema %.64q; known: %q", schema, schemas)
	}
	return keys, nil
}

// fields calls each with the bytes of each field that has a length. Others are skipped.
func fields(b []byte, each func(number protowire.Number, b []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := each(number, value); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func keyValue(b []byte) (key, value []byte, err error) {
	err = fields(b, func(number protowire.Number, b []byte) error {
		switch number {
		case keyValueKey:
			key = b
		case keyValueValue:
			value = b
		}
		return nil
	})
	return key, value, err
}

// stringValue returns the string of an AnyValue; empty: it has another value.
func stringValue(b []byte) (s string, err error) {
	err = fields(b, func(number protowire.Number, b []byte) error {
		if number == anyString {
			s = string(b)
		}
		return nil
	})
	return s, err
}

// arrayValue returns the strings of an AnyValue with an array, up to maxKeys.
func arrayValue(b []byte) (list []string, err error) {
	err = fields(b, func(number protowire.Number, b []byte) error {
		if number != anyArray {
			return nil
		}
		list = nil
		return fields(b, func(number protowire.Number, b []byte) error {
			if number != arrayValues || len(list) == maxKeys {
				return nil
			}
			s, err := stringValue(b)
			list = append(list, s)
			return err
		})
	})
	return list, err
}
