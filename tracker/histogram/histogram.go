// Package histogram counts durations in logarithmic buckets, the same as the kernel
// side (bpf/lib/histogram.h): eight for each power of two, which end at 2^(n/8) s.
// So they are those of Prometheus's native histograms of schema 3. Each is 9.1 % wide
// at most; every uint64 has its bucket.
package histogram

import (
	"math"
	"math/bits"
)

const (
	perPower = 8 // buckets for each power of two
	// Buckets is how many there are: one for 0, and those that begin below 2^63 ns.
	Buckets = 1 + 63*perPower + 1
	// Second is the bucket that ends at 1 s. Bucket i ends at 2^((i-Second)/8) s.
	Second = 240
	// Schema is that of native histograms with these buckets; i-Second is the index there.
	Schema = 3
)

// ends are the ends of the buckets from one power of two to the next, scaled to 64
// bits. The last digit is its index, as the kernel side has it: it matters only to
// durations of more than 18 years.
var ends = [perPower]uint64{
	0x81ffa7a9549ca6e0, 0x8dc3b8960164a7d1, 0x9a9867054d512392, 0xa8965f74bf065073,
	0xb7d88a12d0dd9ea4, 0xc87c3e7d03cdbec5, 0xdaa17c2cd19555d6, 0xee6b280000000007,
}

// Index is the bucket of a value, always below Buckets.
func Index(v uint64) int {
	if v == 0 {
		return 0
	}
	power := bits.Len64(v) - 1
	v <<= 63 - power
	i := 1 + power*perPower
	for _, end := range ends {
		if v > end {
			i++
		}
	}
	return min(i, Buckets-1)
}

// Bounds are the least and the greatest value of a bucket. Some buckets below 12 ns
// are empty: then high is low-1.
func Bounds(i int) (low, high uint64) {
	switch i {
	case 0:
		return 0, 0
	case Buckets - 1:
		return last(i-1) + 1, math.MaxUint64
	}
	return last(i-1) + 1, last(i)
}

// last is the greatest value of a bucket but the last one.
func last(i int) uint64 {
	if i == 0 {
		return 0
	}
	return ends[(i-1)%perPower] >> (63 - (i-1)/perPower)
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
// a bucket's width off; 0 if the histogram is empty. q is kept within 0 and 1.
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
