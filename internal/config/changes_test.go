package config

import (
	"reflect"
	"testing"

	"gotest.tools/v3/assert"
)

// TestChanges: every key has a field of its name, and a difference is found.
func TestChanges(t *testing.T) {
	before, after := Default(), Default()
	assert.Equal(t, len(Changes(&before, &after)), 0)
	all := map[string]string{}
	flatten("", reflect.ValueOf(before), all)
	for _, k := range keys() {
		_, ok := all[k.name]
		assert.Check(t, ok, "no field for key %s", k.name)
	}
	after.OTLP.Headers, after.OTLP.Resource = map[string]string{"authorization": "Bearer x"}, map[string]string{"a": "b"}
	after.Snapshots.Keep.Count, after.Recorder.IRQFloor, after.Rules = 5, 0, []string{"/a", "/b"}
	assert.DeepEqual(t, Changes(&before, &after), []Change{
		{"rules", "/usr/lib/tailcam/rules.d /etc/tailcam/rules.d", "/a /b"},
		{"recorder.irq_floor", "10µs", "0s"},
		{"snapshots.keep.count", "100", "5"},
		{"otlp.headers", "(secret)", "(secret)"},
		{"otlp.resource", "", "a:b"},
	})
	values := Values(&after)
	assert.Check(t, len(values) == len(keys()) && values[0] == Value{"rules", "/a /b"}, "%v", values)
	for _, v := range values {
		assert.Check(t, v.Key != "otlp.headers" || v.Value == "(secret)", "%v", v)
	}
	assert.Assert(t, Within("snapshots.keep.count", "log", "snapshots.keep") && !Within("rules_more", "rules"))
}
