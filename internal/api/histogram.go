package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/tracker/histogram"
)

// HistogramInfo is the distribution of all delays of a tracker, a rule, or a class
// of a rule, since the daemon started. The JSON form is stable; fields are only
// added.
type HistogramInfo struct {
	Rule    string `json:"rule,omitempty"` // empty: of the tracker
	Tracker string `json:"track"`
	By      string `json:"by,omitempty"`    // what the classes are
	Class   string `json:"class,omitempty"` // empty: all of the rule

	Count     uint64 `json:"count"`
	SumNS     uint64 `json:"sum_ns"`
	MinNS     uint64 `json:"min_ns"`
	MaxNS     uint64 `json:"max_ns"`
	P50NS     uint64 `json:"p50_ns"`
	P90NS     uint64 `json:"p90_ns"`
	P99NS     uint64 `json:"p99_ns"`
	P999NS    uint64 `json:"p999_ns"`
	Undecided uint64 `json:"undecided"` // delays in no class: a cgroup or device was not known yet

	Buckets []BucketInfo `json:"buckets"` // those that are not empty, in order
}

// ByName is HistogramInfo.By of a tracker's classes by names that programs choose.
const ByName = "name"

// BucketInfo is how many delays were from FromNS to ToNS, both included.
type BucketInfo struct {
	FromNS uint64 `json:"from_ns"`
	ToNS   uint64 `json:"to_ns"`
	Count  uint64 `json:"count"`
}

// NewHistogram completes what it is about with the numbers of h.
func NewHistogram(h *histogram.Histogram, about HistogramInfo) HistogramInfo {
	about.Count, about.SumNS, about.MinNS, about.MaxNS = h.Count, h.Sum, h.Min, h.Max
	about.P50NS, about.P90NS = h.Quantile(0.5), h.Quantile(0.9)
	about.P99NS, about.P999NS = h.Quantile(0.99), h.Quantile(0.999)
	about.Buckets = []BucketInfo{}
	for i, n := range h.Bucket {
		if n > 0 {
			from, to := histogram.Bounds(i)
			about.Buckets = append(about.Buckets, BucketInfo{from, to, n})
		}
	}
	return about
}

// AdaptiveInfo is how a threshold that follows the load stands.
type AdaptiveInfo struct {
	Quantile    float64 `json:"quantile"`
	Times       float64 `json:"times"`
	FloorNS     int64   `json:"floor_ns"`
	CeilingNS   int64   `json:"ceiling_ns"`
	WindowNS    int64   `json:"window_ns"`
	MinSamples  uint64  `json:"min_samples"`
	Samples     uint64  `json:"samples"`     // in the window
	QuantileNS  int64   `json:"quantile_ns"` // of the window, or of the last seconds if that is more
	ThresholdNS int64   `json:"threshold_ns"`
	Quiet       bool    `json:"quiet"` // fewer samples than it needs: nothing fires
}

// OverrideInfo is an override whose threshold follows the load.
type OverrideInfo struct {
	Index    int          `json:"place"` // in the rule, from 1
	Adaptive AdaptiveInfo `json:"adaptive"`
}

func (s *server) histograms(w http.ResponseWriter, r *http.Request) {
	list, err := s.backend.Histograms()
	if err != nil {
		s.fail(w, http.StatusInternalServerError, err)
		return
	}
	of := r.URL.Query().Get("of")
	if of == "" {
		s.reply(w, http.StatusOK, noNull(list))
		return
	}
	var some []HistogramInfo
	var names []string
	for i := range list {
		name := list[i].Rule
		name = cmp.Or(name, list[i].Tracker)
		if name == of {
			some = append(some, list[i])
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(some) == 0 {
		have := "must be one of " + strings.Join(names, ", ")
		if len(names) == 0 {
			have = "histograms are disabled, or no tracker is running"
		}
		s.fail(w, http.StatusNotFound, fmt.Errorf("no histogram %q: %s", of, have))
		return
	}
	s.reply(w, http.StatusOK, some)
}

// Histograms lists those of trackers and rules; of names one tracker or rule, "" all.
func (c *Client) Histograms(ctx context.Context, of string) ([]HistogramInfo, error) {
	return get[[]HistogramInfo](ctx, c, "/v1/histograms?"+url.Values{"of": {of}}.Encode())
}
