package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// Classic buckets end with each power of two from 2^-20 s, 1 us, to 2^6 s, 64 s.
const firstPower, lastPower = -20, 6

// zeroThreshold is the width of the bucket of zero in native histograms.
const zeroThreshold = prometheus.DefNativeHistogramZeroThreshold

// delayCounts is a distribution as the kernel side counts it.
type delayCounts struct {
	bucket       [histogram.Buckets]uint64
	count, sumNS uint64
}

func (c *delayCounts) add(h *api.HistogramInfo) {
	for _, b := range h.Buckets {
		c.bucket[histogram.Index(b.FromNS)] += b.Count
	}
	c.count += h.Count
	c.sumNS += h.SumNS
}

// metric returns the distribution as a native histogram, and as a classic one for
// those who cannot read that. Every limit is one of the kernel side's.
func (c *delayCounts) metric(d *definition, labels ...string) prometheus.Metric {
	return &delayMetric{d: d, counts: c, labels: labels}
}

// delayMetric implements prometheus.Metric.
type delayMetric struct {
	d      *definition
	counts *delayCounts
	labels []string
}

// Desc implements prometheus.Metric.
func (m *delayMetric) Desc() *prometheus.Desc { return m.d.desc }

// Write implements prometheus.Metric.
func (m *delayMetric) Write(out *dto.Metric) error {
	c := m.counts
	h := &dto.Histogram{
		SampleCount: new(c.count), SampleSum: new(seconds(c.sumNS)),
		Schema: new(int32(histogram.Schema)), ZeroThreshold: new(float64(zeroThreshold)), ZeroCount: new(c.bucket[0]),
	}
	var n, before uint64
	for i, count := range c.bucket {
		n += count
		if power := (i - histogram.Second) / 8; i%8 == 0 && power >= firstPower && power <= lastPower {
			h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: new(math.Exp2(float64(power))), CumulativeCount: new(n)})
		}
	}
	next := 0 // native index after the last span
	for i := 1; i < len(c.bucket); i++ {
		if c.bucket[i] == 0 {
			continue
		}
		index := i - histogram.Second
		if len(h.PositiveSpan) == 0 || index != next {
			h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: new(int32(index - next)), Length: new(uint32(0))})
		}
		*h.PositiveSpan[len(h.PositiveSpan)-1].Length++
		h.PositiveDelta = append(h.PositiveDelta, int64(c.bucket[i]-before))
		before, next = c.bucket[i], index+1
	}
	out.Label = prometheus.MakeLabelPairs(m.d.desc, m.labels)
	out.Histogram = h
	return nil
}
