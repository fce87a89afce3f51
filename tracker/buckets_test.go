package tracker

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// needKernel loads the kernel side for rules, without attaching it.
func needKernel(t *testing.T, list []rules.Rule, opts *Options) *Tracker {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	k, err := New(list, opts)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, k.Close()) })
	return k
}

// The kernel side puts every delay into the bucket that Go looks for it in, up to
// 18 years.
func TestBucketsOfTheKernelSide(t *testing.T) {
	k := needKernel(t, nil, nil)
	program := k.Calls().HistogramBucket
	check := func(v uint64) {
		t.Helper()
		got, err := program.Run(&ebpf.RunOptions{Context: abi.BucketOf{Value: v}})
		assert.NilError(t, err)
		want := histogram.Index(v)
		assert.Check(t, int(got) == want, "%d is in bucket %d, in Go %d", v, got, want)
	}
	for i := range histogram.Index(1 << 59) { // both edges of every bucket, so all values next to one
		low, high := histogram.Bounds(i)
		check(low)
		check(high)
	}
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for range 20000 {
		check(r.Uint64() >> (5 + r.IntN(59)))
	}
}
