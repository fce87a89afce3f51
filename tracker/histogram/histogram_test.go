package histogram

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// edges are all values next to which a bucket may end.
func edges() []uint64 {
	list := []uint64{0, math.MaxUint64}
	for power := range 64 {
		for part := range uint64(16) {
			v := uint64(1)<<power + part*(uint64(1)<<power)/16
			list = append(list, v-1, v, v+1)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Every value has a bucket that holds it; buckets are in order, without a gap, and no wider than they may be.
func TestBuckets(t *testing.T) {
	next := uint64(0)
	for i := range Buckets {
		low, high := Bounds(i)
		if low < 12 && high == low-1 {
			continue // no integer is in it
		}
		assert.Assert(t, low == next && high >= low,
			"bucket %d is from %d to %d, but should begin with %d", i, low, high, next)
		assert.Check(t, Index(low) == i && Index(high) == i && Index(low+(high-low)/2) == i,
			"bucket %d: its values are in %d, %d", i, Index(low), Index(high))
		assert.Check(t, i == Buckets-1 || float64(high) <= float64(low)*math.Exp2(1.0/8), "bucket %d from %d to %d is too wide", i, low, high)
		next = high + 1
	}
	assert.Check(t, next == 0, "the last bucket ends with %d", next-1)
	for _, v := range edges() {
		i := Index(v)
		assert.Check(t, i >= 0 && i < Buckets, "%d is in bucket %d of %d", v, i, Buckets)
	}
}

// Bucket i ends at 2^((i-Second)/8) s, rounded down to nanoseconds, up to 18 years.
func TestNativeBuckets(t *testing.T) {
	for i := 1; i <= 1+59*perPower; i++ {
		// The eighth power of the end: 10^72 * 2^(i-Second) ns^8.
		want := new(big.Int).Exp(big.NewInt(10), big.NewInt(72), nil)
		if i < Second {
			want.Rsh(want, uint(Second-i))
		} else {
			want.Lsh(want, uint(i-Second))
		}
		for range 3 {
			want.Sqrt(want)
		}
		_, high := Bounds(i)
		assert.Check(t, want.Uint64() == high, "bucket %d ends at %d, not at %d", i, high, want)
	}
	_, high := Bounds(Second)
	assert.Check(t, high == 1e9 && Index(1e9) == Second && Index(1e9+1) == Second+1)
}

func FuzzIndex(f *testing.F) {
	for _, v := range []uint64{0, 7, 8, 1 << 20, math.MaxUint64} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v uint64) {
		i := Index(v)
		assert.Assert(t, i >= 0 && i < Buckets, "%d is in bucket %d", v, i)
		low, high := Bounds(i)
		assert.Assert(t, v >= low && v <= high, "%d is in bucket %d from %d to %d", v, i, low, high)
		var h Histogram
		h.Add(v, 1)
		for _, q := range []float64{math.NaN(), -1, 0, 0.5, 0.999, 1, 2} {
			got := h.Quantile(q)
			assert.Assert(t, got == v, "quantile %v of %d alone is %d", q, v, got)
		}
	})
}

// Quantiles are at most a bucket's width from those of the sorted values.
func TestQuantile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var h Histogram
		var all []uint64
		shape := r.Float64() * 20
		for range 5000 {
			v := uint64(math.Exp(r.Float64()*shape + r.NormFloat64()))
			h.Add(v, 1)
			all = append(all, v)
		}
		slices.Sort(all)
		assert.Assert(t, h.Min == all[0] && h.Max == all[len(all)-1] && h.Count == 5000,
			"from %d to %d, %d of them; want %d to %d", h.Min, h.Max, h.Count, all[0], all[len(all)-1])
		for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999} {
			want := all[int(math.Ceil(q*5000))-1]
			got := h.Quantile(q)
			assert.Check(t, math.Abs(float64(got)-float64(want)) <= float64(want)*(math.Exp2(1.0/8)-1)+1,
				"quantile %v is %d, want %d", q, got, want)
		}
	}
	var empty Histogram
	assert.Check(t, empty.Quantile(0.5) == 0 && empty.Mean() == 0, "an empty histogram has a quantile")
}

func TestMergeAndSub(t *testing.T) {
	var a, b Histogram
	a.Add(100, 3)
	a.Add(5000, 1)
	b.Add(7, 2)
	both := a
	both.Merge(&b)
	assert.Check(t, both.Count == 6 && both.Min == 7 && both.Max == 5000 && both.Sum == 5314,
		"merged: %d, from %d to %d, sum %d", both.Count, both.Min, both.Max, both.Sum)
	d := both.Sub(&a)
	assert.Check(t, d.Count == 2 && d.Min == 7 && d.Max == 7 && d.Sum == 14,
		"difference: %d, from %d to %d, sum %d", d.Count, d.Min, d.Max, d.Sum)
	d = both.Sub(&both)
	assert.Check(t, d.Count == 0 && d.Min == 0 && d.Max == 0 && d.Sum == 0,
		"nothing came: %d, from %d to %d, sum %d", d.Count, d.Min, d.Max, d.Sum)
	assert.Check(t, b.Sub(&both) == b, "one that began anew is not returned whole")
	var empty Histogram
	a.Merge(&empty)
	assert.Check(t, a.Min == 100 && a.Count == 4, "merging nothing changes something")
	n := both.Above(100)
	assert.Check(t, n == 1, "%d above 100", n)
}
