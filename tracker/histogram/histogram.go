// Package histogram counts durations in log-linear buckets, the same as the
// kernel side (bpf/lib/histogram.h): below 8 ns each has a bucket of its own, from
// there on every power of two is divided in 8. No bucket is wider than an
// eighth of its lower bound. Every uint64 has its bucket.
package histogram

import (
	"math"
	"math/bits"
)

const (
	subBits = 3
	sub     = 1 << subBits
	// Buckets is how many there are: 8 for the values below 8, 8 for each of the 61 powers of two above.
	Buckets = sub + (64-subBits)*sub
)

// Index is the bucket of a value, always below Buckets.
func Index(v uint64) int {
	if v < sub {
		return int(v)
	}
	power := bits.Len64(v) - 1 // at least subBits
	return (power-subBits+1)*sub + int(v>>(power-subBits)&(sub-1))
}

// Bounds are the least and the greatest value of a bucket.
func Bounds(i int) (low, high uint64) {
	if i < sub {
		return uint64(i), uint64(i)
	}
	shift := i/sub - 1
	low = uint64(sub+i%sub) << shift
	return low, low + (1<<shift - 1)
}

// Histogram is a distribution of durations in nanoseconds. The zero value is
// empty and ready for use. It is a plain value: copy it, but do not share it.
type Histogram struct {
	Bucket   [Buckets]uint64
	Count    uint64 // of all buckets together
	Sum      uint64 // wraps, after 584 years of delays
	Min, Max uint64 // 0, 0 if it is empty; of a difference: at most a bucket's width off
}

// Add counts a value n times.
func (h *Histogram) Add(v, n uint64) {
	if n == 0 {
		return
	}
	if h.Count == 0 || v < h.Min {
		h.Min = v
	}
	h.Max = max(h.Max, v)
	h.Bucket[Index(v)] += n
	h.Count += n
	h.Sum += v * n
}

// Merge adds all that g has counted.
func (h *Histogram) Merge(g *Histogram) {
	if g.Count == 0 {
		return
	}
	if h.Count == 0 || g.Min < h.Min {
		h.Min = g.Min
	}
	h.Max = max(h.Max, g.Max)
	for i, n := range g.Bucket {
		h.Bucket[i] += n
	}
	h.Count += g.Count
	h.Sum += g.Sum
}

// Sub is what came between an older reading of the same histogram and this
// one. If before has counted more than h anywhere, h has begun anew in
// between, and Sub returns all of it.
func (h *Histogram) Sub(before *Histogram) Histogram {
	var d Histogram
	for i, n := range h.Bucket {
		if n < before.Bucket[i] {
			return *h
		}
		d.Bucket[i] = n - before.Bucket[i]
		d.Count += d.Bucket[i]
	}
	d.Sum = h.Sum - before.Sum
	d.bound(h)
	return d
}

// bound finds Min and Max from the buckets, as near as what is known of the whole allows.
func (h *Histogram) bound(whole *Histogram) {
	h.Min, h.Max = 0, 0
	if h.Count == 0 {
		return
	}
	first, last := 0, Buckets-1
	for h.Bucket[first] == 0 {
		first++
	}
	for h.Bucket[last] == 0 {
		last--
	}
	low, _ := Bounds(first)
	_, high := Bounds(last)
	h.Min, h.Max = max(low, whole.Min), min(high, whole.Max)
}

// Mean is the average; 0 if the histogram is empty.
func (h *Histogram) Mean() float64 {
	if h.Count == 0 {
		return 0
	}
	return float64(h.Sum) / float64(h.Count)
}

// Quantile is the value that a part q of all values does not exceed, at most
// an eighth off; 0 if the histogram is empty. q is kept within 0 and 1.
func (h *Histogram) Quantile(q float64) uint64 {
	if h.Count == 0 {
		return 0
	}
	if !(q > 0) { // NaN as well
		return h.Min
	}
	if q >= 1 {
		return h.Max
	}
	rank := q * float64(h.Count)
	seen := 0.0
	for i, n := range h.Bucket {
		if n == 0 {
			continue
		}
		if seen+float64(n) >= rank {
			low, high := Bounds(i)
			// Spread evenly over the bucket. float64 holds 53 bits: far finer than a bucket.
			part := math.Max(0, rank-seen) / float64(n)
			within := uint64(math.Min(part*float64(high-low), float64(high-low)))
			return min(max(low+min(within, high-low), h.Min), h.Max)
		}
		seen += float64(n)
	}
	return h.Max
}

// Above counts, to the bucket, the values that exceed v: those of v's own bucket are not among them.
func (h *Histogram) Above(v uint64) uint64 {
	var n uint64
	for _, c := range h.Bucket[Index(v)+1:] {
		n += c
	}
	return n
}
