package otlp

import (
	"context"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	colmetricspb "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
)

// sendMetrics sends all metrics each interval, and once more at the end. They are
// cumulative: a request that fails is not repeated, the next one has the same.
func (e *Exporter) sendMetrics(ctx context.Context) {
	wait := rand.N(e.opts.Interval) //nolint:gosec // spreads the load of many hosts
	for pause(ctx, wait) {
		e.sendMetricsOnce(ctx)
		wait = e.opts.Interval
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	e.sendMetricsOnce(last)
}

func (e *Exporter) sendMetricsOnce(ctx context.Context) {
	families, err := e.opts.Metrics.Gather() // and what could be read, if some could not
	if err != nil {
		e.warn("some metrics could not be read", zap.Error(err))
	}
	answer := new(colmetricspb.ExportMetricsServiceResponse)
	err = e.client.send(ctx, metricsSignal, e.metricsRequest(families, time.Now()), answer)
	e.count(metricsSignal, err)
	var refused *refusedError
	if errors.As(err, &refused) && refused.absent {
		if !e.noMetrics {
			e.noMetrics = e.warn("the collector knows no metrics: give it a pipeline for them, or set otlp.signals to [logs]; not said again",
				zap.Error(err))
		}
		return
	}
	e.noMetrics = e.noMetrics && err != nil
	if err != nil {
		e.warn("the collector does not take metrics", zap.Error(err))
	} else if p := answer.GetPartialSuccess(); p.GetRejectedDataPoints() > 0 {
		e.warn("the collector rejected metrics", zap.Int64("data_points", p.GetRejectedDataPoints()), zap.String("reason", clip(p.GetErrorMessage())))
	}
}

func (e *Exporter) metricsRequest(families []*dto.MetricFamily, now time.Time) *colmetricspb.ExportMetricsServiceRequest {
	scope := &metricspb.ScopeMetrics{Scope: e.scope()}
	c := converter{start: unixNano(e.opts.Start), now: unixNano(now)}
	for _, f := range families {
		if m := c.metric(f); m != nil {
			scope.Metrics = append(scope.Metrics, m)
		}
	}
	return &colmetricspb.ExportMetricsServiceRequest{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource: e.resource(), ScopeMetrics: []*metricspb.ScopeMetrics{scope},
	}}}
}

// converter turns what Prometheus would scrape into OTLP. Names stay; nothing is
// approximated.
type converter struct{ start, now uint64 } // Unix nanoseconds

const cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE

// metric returns nil for a type that there is none for.
func (c converter) metric(f *dto.MetricFamily) *metricspb.Metric {
	m := &metricspb.Metric{Name: f.GetName(), Description: f.GetHelp(), Unit: unit(f.GetName())}
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		m.Data = &metricspb.Metric_Sum{Sum: &metricspb.Sum{
			AggregationTemporality: cumulative, IsMonotonic: true, DataPoints: c.numbers(f, c.start),
		}}
	case dto.MetricType_GAUGE, dto.MetricType_UNTYPED:
		m.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: c.numbers(f, 0)}}
	case dto.MetricType_SUMMARY:
		s := &metricspb.Summary{}
		for _, p := range f.GetMetric() {
			s.DataPoints = append(s.DataPoints, c.summary(p))
		}
		m.Data = &metricspb.Metric_Summary{Summary: s}
	case dto.MetricType_HISTOGRAM:
		if len(f.GetMetric()) > 0 && f.GetMetric()[0].GetHistogram().Schema != nil {
			h := &metricspb.ExponentialHistogram{AggregationTemporality: cumulative}
			for _, p := range f.GetMetric() {
				h.DataPoints = append(h.DataPoints, c.exponential(p))
			}
			m.Data = &metricspb.Metric_ExponentialHistogram{ExponentialHistogram: h}
		} else {
			h := &metricspb.Histogram{AggregationTemporality: cumulative}
			for _, p := range f.GetMetric() {
				h.DataPoints = append(h.DataPoints, c.explicit(p))
			}
			m.Data = &metricspb.Metric_Histogram{Histogram: h}
		}
	default:
		return nil
	}
	return m
}

// unit is what a name ends in, as UCUM writes it.
func unit(name string) string {
	switch name = strings.TrimSuffix(name, "_total"); {
	case strings.HasSuffix(name, "_seconds"):
		return "s"
	case strings.HasSuffix(name, "_bytes"):
		return "By"
	}
	return ""
}

func labels(m *dto.Metric) []*commonpb.KeyValue {
	var list []*commonpb.KeyValue
	for _, l := range m.GetLabel() {
		list = append(list, &commonpb.KeyValue{Key: l.GetName(), Value: stringValue(l.GetValue())})
	}
	return list
}

func (c converter) numbers(f *dto.MetricFamily, start uint64) []*metricspb.NumberDataPoint {
	var list []*metricspb.NumberDataPoint
	for _, m := range f.GetMetric() {
		v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() // it has one of them
		p := &metricspb.NumberDataPoint{
			Attributes: labels(m), StartTimeUnixNano: start, TimeUnixNano: c.now,
			Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: v},
		}
		if e := m.GetCounter().GetExemplar(); e != nil {
			p.Exemplars = append(p.Exemplars, exemplar(e))
		}
		list = append(list, p)
	}
	return list
}

func exemplar(e *dto.Exemplar) *metricspb.Exemplar {
	x := &metricspb.Exemplar{Value: &metricspb.Exemplar_AsDouble{AsDouble: e.GetValue()}}
	if t := e.GetTimestamp(); t != nil {
		x.TimeUnixNano = unixNano(t.AsTime())
	}
	for _, l := range e.GetLabel() {
		if id, err := hex.DecodeString(l.GetValue()); l.GetName() == "trace_id" && err == nil && len(id) == 16 {
			x.TraceId = id
			continue
		}
		x.FilteredAttributes = append(x.FilteredAttributes, &commonpb.KeyValue{Key: l.GetName(), Value: stringValue(l.GetValue())})
	}
	return x
}

func (c converter) summary(m *dto.Metric) *metricspb.SummaryDataPoint {
	s := m.GetSummary()
	p := &metricspb.SummaryDataPoint{
		Attributes: labels(m), StartTimeUnixNano: c.start, TimeUnixNano: c.now, Count: s.GetSampleCount(), Sum: s.GetSampleSum(),
	}
	for _, q := range s.GetQuantile() {
		p.QuantileValues = append(p.QuantileValues, &metricspb.SummaryDataPoint_ValueAtQuantile{Quantile: q.GetQuantile(), Value: q.GetValue()})
	}
	return p
}

func (c converter) explicit(m *dto.Metric) *metricspb.HistogramDataPoint {
	h := m.GetHistogram()
	p := &metricspb.HistogramDataPoint{
		Attributes: labels(m), StartTimeUnixNano: c.start, TimeUnixNano: c.now, Count: h.GetSampleCount(), Sum: h.SampleSum,
	}
	before := uint64(0)
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			break
		}
		p.ExplicitBounds = append(p.ExplicitBounds, b.GetUpperBound())
		p.BucketCounts = append(p.BucketCounts, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
	}
	p.BucketCounts = append(p.BucketCounts, h.GetSampleCount()-before)
	return p
}

// exponential converts a native histogram: its bucket n ends at base^n, that of OTLP
// begins there, and schemas are scales.
func (c converter) exponential(m *dto.Metric) *metricspb.ExponentialHistogramDataPoint {
	h := m.GetHistogram()
	p := &metricspb.ExponentialHistogramDataPoint{
		Attributes: labels(m), StartTimeUnixNano: c.start, TimeUnixNano: c.now, Count: h.GetSampleCount(), Sum: h.SampleSum,
		Scale: h.GetSchema(), ZeroCount: h.GetZeroCount(), ZeroThreshold: h.GetZeroThreshold(),
	}
	positive := &metricspb.ExponentialHistogramDataPoint_Buckets{}
	count, deltas := int64(0), h.GetPositiveDelta()
	for i, span := range h.GetPositiveSpan() {
		if i == 0 {
			positive.Offset = span.GetOffset() - 1
		} else {
			positive.BucketCounts = append(positive.BucketCounts, make([]uint64, max(span.GetOffset(), 0))...)
		}
		for range min(int(span.GetLength()), len(deltas)) {
			count, deltas = count+deltas[0], deltas[1:]
			positive.BucketCounts = append(positive.BucketCounts, uint64(max(count, 0)))
		}
	}
	p.Positive = positive
	return p
}
