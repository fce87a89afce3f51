package otlp

import (
	"encoding/hex"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"

	"github.com/tailcam/tailcam/test/support/collector"
)

// TestMetrics: each type arrives at the official services with its values.
func TestMetrics(t *testing.T) {
	both(t, func(t *testing.T, c *collector.Collector, protocol string) {
		r := prometheus.NewRegistry()
		counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slow_seconds_total", Help: "Slow."}, []string{"rule"})
		gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "size_bytes"})
		classic := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "classic", Buckets: []float64{1, 2}})
		native := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "native_seconds", NativeHistogramBucketFactor: math.Exp2(1.0 / 8)})
		summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "summary", Objectives: map[float64]float64{0.5: 0.1}})
		r.MustRegister(counter, gauge, classic, native, summary)
		counter.WithLabelValues("evil\n").(prometheus.ExemplarAdder).AddWithExemplar(2.5, prometheus.Labels{"snapshot_id": "s1", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"})
		gauge.Set(-3)
		for _, v := range []float64{0.5, 1, 1.5, 9} {
			classic.Observe(v)
			summary.Observe(v)
		}
		observed := []float64{0, 1, 1, 1.05, 2, 1024, 0.001}
		for _, v := range observed {
			native.Observe(v)
		}
		start := time.Unix(1000, 0)
		run(t, &Options{Endpoint: c.URL, Protocol: protocol, Metrics: r, Interval: 10 * time.Millisecond, Start: start})
		var got map[string]*metricspb.Metric
		var resource map[string]any
		eventually(t, "metrics arrive", func() bool {
			got, resource = c.Metrics()
			return got != nil
		})
		assert.Check(t, is.Equal("tailcam", resource["service.name"]))
		assert.Check(t, is.Len(got, 5))

		sum := got["slow_seconds_total"].GetSum()
		p := sum.GetDataPoints()[0]
		assert.Check(t, sum.GetIsMonotonic() && sum.GetAggregationTemporality() == metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE)
		assert.Check(t, got["slow_seconds_total"].GetUnit() == "s" && got["slow_seconds_total"].GetDescription() == "Slow." && p.GetAsDouble() == 2.5 &&
			p.GetStartTimeUnixNano() == uint64(start.UnixNano()))
		assert.Check(t, is.DeepEqual(map[string]any{"rule": `evil\x0a`}, collector.Attributes(p.GetAttributes())))
		x := p.GetExemplars()[0]
		assert.Check(t, x.GetAsDouble() == 2.5 && x.GetTimeUnixNano() > 0 && collector.Attributes(x.GetFilteredAttributes())["snapshot_id"] == "s1")
		assert.Check(t, is.Equal("4bf92f3577b34da6a3ce929d0e0e4736", hex.EncodeToString(x.GetTraceId())))
		assert.Check(t, is.Len(x.GetFilteredAttributes(), 1))

		assert.Check(t, got["size_bytes"].GetUnit() == "By" && got["size_bytes"].GetGauge().GetDataPoints()[0].GetAsDouble() == -3)
		h := got["classic"].GetHistogram().GetDataPoints()[0]
		assert.Check(t, is.DeepEqual([]float64{1, 2}, h.GetExplicitBounds()))
		assert.Check(t, is.DeepEqual([]uint64{2, 1, 1}, h.GetBucketCounts()))
		assert.Check(t, h.GetCount() == 4 && h.GetSum() == 12)
		s := got["summary"].GetSummary().GetDataPoints()[0]
		assert.Check(t, s.GetCount() == 4 && s.GetSum() == 12 && s.GetQuantileValues()[0].GetQuantile() == 0.5)

		e := got["native_seconds"].GetExponentialHistogram().GetDataPoints()[0]
		assert.Check(t, e.GetScale() == 3 && e.GetCount() == uint64(len(observed)) && e.GetZeroCount() == 1)
		want := map[int32]uint64{} // bucket n is (2^(n/8), 2^((n+1)/8)]
		for _, v := range observed {
			if v > 0 {
				want[int32(math.Ceil(8*math.Log2(v)))-1]++
			}
		}
		for i, n := range e.GetPositive().GetBucketCounts() {
			index := e.GetPositive().GetOffset() + int32(i)
			assert.Check(t, is.Equal(want[index], n), "bucket %d", index)
			delete(want, index)
		}
		assert.Check(t, is.Len(want, 0))
	})
}

// TestNoMetrics: a collector without a pipeline for metrics is told of once, with what to change.
func TestNoMetrics(t *testing.T) {
	both(t, func(t *testing.T, c *collector.Collector, protocol string) {
		if protocol == HTTP {
			s := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(s.Close)
			c.URL = s.URL
		}
		c.Answer = func() error { return status.Error(codes.Unimplemented, "unknown service") }
		core, said := observer.New(zap.WarnLevel)
		e, _ := run(t, &Options{
			Endpoint: c.URL, Protocol: protocol, Metrics: prometheus.NewRegistry(), Interval: 10 * time.Millisecond, Log: zap.New(core),
		})
		more := func(than uint64) uint64 {
			refused := uint64(0)
			eventually(t, "metrics are refused", func() bool {
				for _, r := range e.Results() {
					if r.Signal == "metrics" && r.Result == "refused" {
						refused = r.Count
					}
				}
				return refused > than
			})
			return refused
		}
		more(more(0))
		e.warning.Lock()
		e.warned = time.Time{} // as after a minute
		e.warning.Unlock()
		more(more(more(0)))
		assert.Assert(t, is.Len(said.All(), 1))
		assert.Check(t, is.Contains(said.All()[0].Message, "otlp.signals"))
	})
}

// TestMetricsOfNothing: no families are a valid request.
func TestMetricsOfNothing(t *testing.T) {
	e, err := New(&Options{Endpoint: "http://localhost", Protocol: HTTP})
	assert.NilError(t, err)
	_, err = proto.Marshal(e.metricsRequest(nil, time.Now()))
	assert.NilError(t, err)
}
