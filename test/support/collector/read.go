package collector

import (
	"slices"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
)

// Record is a log record with the attributes of its resource.
type Record struct {
	*logspb.LogRecord
	Attributes, Resource map[string]any
}

// Records returns the log records received so far.
func (c *Collector) Records() (list []Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, request := range c.logs {
		for _, r := range request.GetResourceLogs() {
			resource := Attributes(r.GetResource().GetAttributes())
			for _, s := range r.GetScopeLogs() {
				for _, l := range s.GetLogRecords() {
					list = append(list, Record{l, Attributes(l.GetAttributes()), resource})
				}
			}
		}
	}
	return list
}

// Metrics returns the metrics of the latest request by their names, and the
// attributes of its resource.
func (c *Collector) Metrics() (metrics map[string]*metricspb.Metric, resource map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.metrics) == 0 {
		return nil, nil
	}
	metrics = map[string]*metricspb.Metric{}
	for _, r := range c.metrics[len(c.metrics)-1].GetResourceMetrics() {
		resource = Attributes(r.GetResource().GetAttributes())
		for _, s := range r.GetScopeMetrics() {
			for _, m := range s.GetMetrics() {
				metrics[m.GetName()] = m
			}
		}
	}
	return metrics, resource
}

// Headers returns those of each request that was kept.
func (c *Collector) Headers() []map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.headers)
}

// Attributes are attributes as Go values: string, int64, float64, bool, []any, or a
// map for a list of them.
func Attributes(list []*commonpb.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range list {
		m[a.GetKey()] = goValue(a.GetValue())
	}
	return m
}

func goValue(v *commonpb.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		return v.DoubleValue
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	case *commonpb.AnyValue_ArrayValue:
		list := []any{}
		for _, e := range v.ArrayValue.GetValues() {
			list = append(list, goValue(e))
		}
		return list
	case *commonpb.AnyValue_KvlistValue:
		return Attributes(v.KvlistValue.GetValues())
	}
	return nil
}
