package record

import (
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// maxSlices is how many slices a run has at most; those of a longer one are longer. It is
// even.
const maxSlices = 48

// counted is what a rule has counted at one moment.
type counted struct {
	delays   histogram.Histogram
	outliers uint64
}

// series collects the slices of a rule.
type series struct {
	last counted
	list []slice
}

type slice struct {
	delays   histogram.Histogram
	outliers uint64
}

// add ends a slice.
func (s *series) add(now counted) {
	s.list = append(s.list, slice{now.delays.Sub(&s.last.delays), less(now.outliers, s.last.outliers)})
	s.last = now
}

// halve makes one slice of each two.
func (s *series) halve() {
	half := s.list[:0]
	for i := 0; i < len(s.list); i += 2 {
		one := s.list[i]
		if i+1 < len(s.list) {
			one.delays.Merge(&s.list[i+1].delays)
			one.outliers += s.list[i+1].outliers
		}
		half = append(half, one)
	}
	s.list = half
}

// slices are those of the report.
func (s *series) slices() []Slice {
	list := []Slice{}
	for i := range s.list {
		one := Slice{Outliers: s.list[i].outliers, Index: []int{}, Count: []uint64{}}
		for b, n := range s.list[i].delays.Bucket {
			if n > 0 {
				one.Index, one.Count = append(one.Index, b), append(one.Count, n)
			}
		}
		list = append(list, one)
	}
	return list
}

// addTo counts the delays of a slice in h.
func (s *Slice) addTo(h *histogram.Histogram) {
	for i, b := range s.Index {
		h.Bucket[b] += s.Count[i]
		h.Count += s.Count[i]
	}
}

// fromInfo is a histogram as the daemon tells it.
func fromInfo(info *api.HistogramInfo) histogram.Histogram {
	h := histogram.Histogram{Count: info.Count, Sum: info.SumNS, Min: info.MinNS, Max: info.MaxNS}
	for _, b := range info.Buckets {
		h.Bucket[histogram.Index(b.FromNS)] += b.Count
	}
	return h
}

// less is a-b of counters that only grow.
func less(a, b uint64) uint64 {
	if a < b {
		return a // it began anew
	}
	return a - b
}
