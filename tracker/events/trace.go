package events

import (
	"encoding/hex"
	"strings"
)

// Trace is a trace and a span; zeros: there is none.
type Trace struct {
	ID         [16]byte
	Span       [8]byte
	Attributes *RawAttributes // that stand beside them; nil: none, or nobody wants them
}

// RawAttributes are attributes as a thread has published them: their keys are numbers, which
// its process gives names to. Nothing in them can be trusted.
type RawAttributes struct {
	PID                   int    // of the thread's process
	StartCode, StartStack uint64 // of its program
	Data                  []byte // at most abi.AttributesBytes
}

// IsKnown reports whether there is one.
func (t *Trace) IsKnown() bool { return t.ID != [16]byte{} && t.Span != [8]byte{} }

// Text returns both in hexadecimal; empty: there is none.
func (t *Trace) Text() (id, span string) {
	if !t.IsKnown() {
		return "", ""
	}
	return hex.EncodeToString(t.ID[:]), hex.EncodeToString(t.Span[:])
}

// SetTrace sets TraceID and SpanID, if t has both.
func (o *Outlier) SetTrace(t Trace) {
	if t.IsKnown() {
		o.TraceID, o.SpanID = t.Text()
	}
}

// TraceContext returns the trace and the span in which the work was done, as far as
// its program has said so: a label of a declared pair called traceparent, or
// trace_id and span_id, or a span's key, in the form of W3C Trace Context, which are
// about this work; or else what it has published for its thread. A span of zeros: unknown.
func (o *Outlier) TraceContext() (trace [16]byte, span [8]byte, ok bool) {
	label := func(name string) string {
		s, _ := o.Labels[name].(string)
		return s
	}
	parent := label("traceparent")
	if parent == "" && o.Span != nil {
		parent = o.Span.Key
	}
	id, of := label("trace_id"), label("span_id")
	if parts := strings.Split(parent, "-"); len(parts) >= 4 && len(parts[0]) == 2 && parts[0] != "ff" {
		id, of = parts[1], parts[2]
	}
	if !parseID(trace[:], id) {
		id, of = o.TraceID, o.SpanID
	}
	if !parseID(trace[:], id) {
		return [16]byte{}, [8]byte{}, false
	}
	if !parseID(span[:], of) {
		span = [8]byte{}
	}
	return trace, span, true
}

// parseID decodes an identifier in hexadecimal; zeros are none.
func parseID(id []byte, s string) bool {
	if hex.DecodedLen(len(s)) != len(id) || len(s)%2 != 0 || strings.ToLower(s) != s || strings.Trim(s, "0") == "" {
		return false
	}
	_, err := hex.Decode(id, []byte(s))
	return err == nil
}
