package explain

import (
	"reflect"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// readFirst sees that names are asked for after all events: who asks for them waits.
type readFirst struct {
	Source
	t     testing.TB
	asked string // the field of Names
}

// Next implements Source.
func (f *readFirst) Next() (trace.Event, error) {
	assert.Assert(f.t, f.asked == "", "%s was asked before all events were read", f.asked)
	return f.Source.Next()
}

// watch notes who is asked, but for those that have the answer.
func (f *readFirst) watch(n Names) Names {
	if n.Timer == nil {
		n.Timer = n.Function
	}
	fields := reflect.ValueOf(&n).Elem()
	for i := range fields.NumField() {
		field, name := fields.Field(i), fields.Type().Field(i).Name
		if field.Kind() != reflect.Func || field.IsNil() || name == "Timer" || name == "Syscall" {
			continue
		}
		ask := reflect.ValueOf(field.Interface())
		field.Set(reflect.MakeFunc(field.Type(), func(args []reflect.Value) []reflect.Value {
			f.asked = name
			return ask.Call(args)
		}))
	}
	return n
}
