package stat

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestOf(t *testing.T) {
	s := Of([]float64{9, 1, 8, 2, 7, 3, 6, 4, 5})
	// Of nine, one may be left out at each end: the median is below both of the
	// lowest, or above both of the highest, with a chance of 2 * 10/512.
	want := Span{N: 9, Median: 5, Low: 2, High: 8, Q1: 3, Q3: 7, Min: 1, Max: 9}
	assert.Check(t, is.Equal(s, want))
	s = Of([]float64{4, 1})
	assert.Check(t, s.Median == 2.5 && s.Low == 1 && s.High == 4, "of two: %+v", s)
	s = Of(nil)
	assert.Check(t, s == (Span{}), "of none: %+v", s)
}

// TestOuter compares with tables of the sign test for 90 % (two-sided 0.10).
func TestOuter(t *testing.T) {
	for n, want := range map[int]int{1: 0, 4: 0, 5: 0, 7: 0, 8: 1, 9: 1, 10: 1, 11: 2, 13: 3, 20: 5, 25: 7, 30: 10} {
		got := outer(n)
		assert.Check(t, got == want, "of %d values %d may be left out at each end, not %d", n, want, got)
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{nil, NotMeasured},
		{[]float64{1, 1, 1, 1}, Undecided}, // too few
		{[]float64{1, 1.01, 1.02, 1, 1}, Met},
		{[]float64{1.03, 1.04, 1.05, 1.03, 1.1}, Missed},
		{[]float64{1, 1, 1, 1, 1.03}, Undecided},
		{[]float64{1, 1, 1, 1, 1, 1, 1, 1, 1.5}, Met},         // one bad round of nine
		{[]float64{1, 1, 1, 1, 1, 1, 1, 1.5, 1.5}, Undecided}, // two
		{[]float64{0.9, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5}, Missed},
	} {
		assert.Check(t, is.Equal(Of(c.values).Verdict(1.02), c.want), "%v", c.values)
	}
}

// TestOfRounds: the span of a mean is that of the textbook, and of few rounds it is wide.
func TestOfRounds(t *testing.T) {
	mean := func(values []float64) func([]int) float64 {
		return func(rounds []int) (sum float64) {
			for _, r := range rounds {
				sum += values[r]
			}
			return sum / float64(len(rounds))
		}
	}
	values := make([]float64, 100)
	for i := range values {
		values[i] = float64(i % 10) // of standard deviation 2.87
	}
	s := OfRounds(100, mean(values))
	assert.Check(t, is.Equal(s.Median, 4.5))
	const half = 1.645 * 2.87 / 10
	assert.Check(t, s.Low > 4.5-1.2*half && s.Low < 4.5-0.8*half && s.High > 4.5+0.8*half && s.High < 4.5+1.2*half, "%+v", s)
	assert.Check(t, is.Equal(s, OfRounds(100, mean(values))), "draws differ")
	assert.Check(t, OfRounds(0, mean(nil)) == (Span{}))
	one := OfRounds(1, mean([]float64{3}))
	assert.Check(t, one.Median == 3 && one.Low == 3 && one.High == 3 && one.Verdict(4) == Undecided, "%+v", one)
}
