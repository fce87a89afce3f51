package otlp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/slim/otlp/logs/v1"

	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/internal/text"
	"github.com/tailcam/tailcam/tracker/events"
)

const (
	eventName = "tailcam.outlier"
	prefix    = "tailcam."
	// maxString is the longest text of an attribute, in bytes; the rest is cut off.
	maxString = 4096
)

// logRecord returns an outlier as a log record. What has a name in OpenTelemetry's
// semantic conventions has that; all else has its name in the JSON of events, with
// tailcam. before it. No text has control characters or invalid UTF-8.
func logRecord(o *events.Outlier, observed time.Time) (*logspb.LogRecord, error) {
	fields, err := jsonFields(o)
	if err != nil {
		return nil, fmt.Errorf("outlier %s: %w", o.ID, err)
	}
	r := &logspb.LogRecord{
		TimeUnixNano:         unixNano(o.Time),
		ObservedTimeUnixNano: unixNano(observed),
		SeverityNumber:       logspb.SeverityNumber_SEVERITY_NUMBER_WARN,
		SeverityText:         "WARN",
		EventName:            eventName,
		Body:                 stringValue(term.Sentence(o)),
	}
	if trace, span, ok := o.TraceContext(); ok {
		r.TraceId = trace[:]
		if span != [8]byte{} {
			r.SpanId = span[:]
		}
	}
	add := func(name string, v *commonpb.AnyValue) {
		r.Attributes = append(r.Attributes, &commonpb.KeyValue{Key: name, Value: v})
	}
	add("log.record.uid", stringValue(o.ID))
	if t := &o.Task; t.TID != 0 {
		add("process.pid", intValue(int64(t.PID)))
		add("thread.id", intValue(int64(t.TID)))
		add("thread.name", stringValue(t.Comm))
		add("process.user.id", intValue(int64(t.UID)))
		if t.Cgroup != "" {
			add("process.linux.cgroup", stringValue(t.Cgroup))
		}
		addPlace(add, t)
	}
	add("cpu.logical_number", intValue(int64(o.CPU)))
	if o.Block != nil {
		add("system.device", stringValue(o.Block.Device))
	}
	flatten(prefix, fields, add)
	addAttributes(r, o.Attributes)
	return r, nil
}

// addText adds an attribute, unless it is empty.
func addText(r *logspb.LogRecord, name, s string) {
	if s != "" {
		r.Attributes = append(r.Attributes, &commonpb.KeyValue{Key: name, Value: stringValue(s)})
	}
}

// addAttributes adds what a program has published by the names that it has there, as the
// operator chose them, but for those that the record has already.
func addAttributes(r *logspb.LogRecord, list map[string]string) {
	taken := func(name string) bool {
		return slices.ContainsFunc(r.Attributes, func(a *commonpb.KeyValue) bool { return a.GetKey() == name })
	}
	for _, key := range slices.Sorted(maps.Keys(list)) {
		name := clean(key)
		if taken(name) {
			name = prefix + "attributes." + name
		}
		if !taken(name) {
			r.Attributes = append(r.Attributes, &commonpb.KeyValue{Key: name, Value: stringValue(list[key])})
		}
	}
}

// addPlace adds the container and the pod of a task. In Kubernetes, the name of a container
// and its labels are its pod's.
func addPlace(add func(name string, v *commonpb.AnyValue), t *events.Task) {
	text := func(name, s string) {
		if s != "" {
			add(name, stringValue(s))
		}
	}
	text("process.title", t.Title)
	text("container.id", t.Container)
	text("container.runtime.name", t.Runtime)
	if image, tag := splitImage(t.Image); image != "" {
		add("container.image.name", stringValue(image))
		if tag != "" {
			tags := &commonpb.ArrayValue{Values: []*commonpb.AnyValue{stringValue(tag)}}
			add("container.image.tags", &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: tags}})
		}
	}
	name, label := "container.name", "container.label."
	if t.Pod != "" {
		name, label = "k8s.container.name", "k8s.pod.label."
	}
	text(name, t.ContainerName)
	text("k8s.pod.name", t.Pod)
	text("k8s.namespace.name", t.Namespace)
	text("k8s.pod.uid", t.PodUID)
	for _, key := range slices.Sorted(maps.Keys(t.Workload)) {
		text(label+clean(key), t.Workload[key])
	}
}

// splitImage splits NAME[:TAG][@DIGEST]; a port of a registry has a slash behind it.
func splitImage(s string) (name, tag string) {
	name, _, _ = strings.Cut(s, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name, tag = name[:i], name[i+1:]
	}
	return name, tag
}

// elsewhere are the fields that have names in the semantic conventions, or that are
// not sent: command lines may have passwords, and source lines are in snapshots.
var elsewhere = [][]string{
	{"id"}, {"time"}, {"cpu"}, {"trace_id"}, {"span_id"}, {"attributes"}, {"block", "device"}, {"stacks", "sources"},
	{"task", "pid"}, {"task", "tid"}, {"task", "comm"}, {"task", "uid"}, {"task", "cgroup"}, {"task", "container"},
	{"task", "cmdline"}, {"task", "title"}, {"task", "runtime"}, {"task", "container_name"}, {"task", "pod"}, {"task", "namespace"},
	{"task", "pod_uid"}, {"task", "workload"}, {"task", "image"},
}

// jsonFields are an outlier's fields by their names in JSON, but those elsewhere.
func jsonFields(o *events.Outlier) (map[string]any, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		return nil, err
	}
	for _, path := range elsewhere {
		in := fields
		for _, name := range path[:len(path)-1] {
			in, _ = in[name].(map[string]any)
		}
		delete(in, path[len(path)-1])
	}
	return fields, nil
}

// flatten adds each field with the names of what it is in before its own.
func flatten(prefix string, fields map[string]any, add func(string, *commonpb.AnyValue)) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch v := fields[name].(type) {
		case nil:
		case map[string]any:
			flatten(prefix+clean(name)+".", v, add)
		default:
			add(prefix+clean(name), value(v))
		}
	}
}

// value converts what encoding/json has decoded.
func value(v any) *commonpb.AnyValue {
	switch v := v.(type) {
	case string:
		return stringValue(v)
	case bool:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return intValue(n)
		}
		if _, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return stringValue(v.String()) // an address: OTLP has no such numbers
		}
		f, err := v.Float64()
		if err != nil {
			return stringValue(v.String())
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: f}}
	case []any:
		list := &commonpb.ArrayValue{}
		for _, e := range v {
			list.Values = append(list.Values, value(e))
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: list}}
	case map[string]any:
		list := &commonpb.KeyValueList{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			list.Values = append(list.Values, &commonpb.KeyValue{Key: clean(name), Value: value(v[name])})
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: list}}
	}
	return &commonpb.AnyValue{}
}

func stringValue(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: clean(s)}}
}

func intValue(n int64) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}
}

// clean makes text that others chose valid UTF-8 of a bounded length on one line.
func clean(s string) string {
	if len(s) > maxString {
		s = s[:maxString] // what is cut in two becomes an escape
	}
	s = text.Clean(s)
	if len(s) <= maxString {
		return s
	}
	s = s[:maxString]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}

func unixNano(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }
