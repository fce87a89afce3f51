package events

import (
	"encoding/hex"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestTraceContext(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for _, tt := range []struct {
		name        string
		o           Outlier
		trace, span string
	}{
		{"nothing", Outlier{}, "", ""},
		{"a key of a span", Outlier{Span: &SpanInfo{Key: "00-" + trace + "-" + span + "-01"}}, trace, span},
		{"another key", Outlier{Span: &SpanInfo{Key: "GET /index-2.html"}}, "", ""},
		{"a label", Outlier{Labels: map[string]any{"traceparent": "00-" + trace + "-" + span + "-00"}}, trace, span},
		{"a later version", Outlier{Labels: map[string]any{"traceparent": "01-" + trace + "-" + span + "-00-more"}}, trace, span},
		{"an invalid version", Outlier{Labels: map[string]any{"traceparent": "ff-" + trace + "-" + span + "-00"}}, "", ""},
		{"two labels", Outlier{Labels: map[string]any{"trace_id": trace, "span_id": span}}, trace, span},
		{"no span", Outlier{Labels: map[string]any{"trace_id": trace, "span_id": uint64(5)}}, trace, "0000000000000000"},
		{"a short one", Outlier{Labels: map[string]any{"trace_id": trace[1:]}}, "", ""},
		{"zeros", Outlier{Labels: map[string]any{"trace_id": "00000000000000000000000000000000"}}, "", ""},
		{"capitals", Outlier{Labels: map[string]any{"trace_id": "4BF92F3577B34DA6A3CE929D0E0E4736"}}, "", ""},
		{"no number", Outlier{Labels: map[string]any{"trace_id": "4bf92f3577b34da6a3ce929d0e0e473x"}}, "", ""},
		{"its thread's", Outlier{TraceID: trace, SpanID: span}, trace, span},
		{"the label is about the work", Outlier{Labels: map[string]any{"trace_id": trace, "span_id": span}, TraceID: span + span, SpanID: span}, trace, span},
		{"bytes", Outlier{Span: &SpanInfo{Key: "00-\xff\n-\x00-01"}}, "", ""},
	} {
		gotTrace, gotSpan, ok := tt.o.TraceContext()
		assert.Check(t, is.Equal(tt.trace != "", ok), tt.name)
		if ok {
			assert.Check(t, is.Equal(tt.trace+tt.span, hex.EncodeToString(gotTrace[:])+hex.EncodeToString(gotSpan[:])), tt.name)
		}
	}
}
