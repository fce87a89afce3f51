// Package stat sums up what was measured once a round, and holds it against a
// target without letting noise decide.
package stat

import (
	"math/rand/v2"
	"slices"
)

// Confidence is that of the span from Low to High, and fewest are the values
// that it takes: the median lies outside of 5 values with a chance of 1/16.
const (
	Confidence = 0.9
	fewest     = 5
)

// Verdicts.
const (
	Met         = "met"
	Missed      = "missed"
	Undecided   = "undecided"
	NotMeasured = "not measured"
)

// Span describes a set of values. The median of further rounds is expected
// between Low and High, which come closer to each other with the rounds, as
// quartiles do not.
type Span struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Q1     float64 `json:"q1"`
	Q3     float64 `json:"q3"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Of describes values, in any order. It makes no assumption about how they
// are distributed: Low and High are two of them.
func Of(values []float64) Span {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	if n == 0 {
		return Span{}
	}
	k := outer(n)
	return Span{
		N: n, Median: Quantile(v, 0.5), Low: v[k], High: v[n-1-k],
		Q1: Quantile(v, 0.25), Q3: Quantile(v, 0.75), Min: v[0], Max: v[n-1],
	}
}

// outer is how many of n sorted values may be left out at each end so that the
// rest still holds the median with the confidence: each value is on either side
// of it with even chance.
func outer(n int) int {
	chance := 1.0 // of all values on one side
	for range n {
		chance /= 2
	}
	for k, sum := 0, 0.0; ; k++ {
		sum += chance
		if sum > (1-Confidence)/2 {
			return max(k-1, 0)
		}
		chance = chance * float64(n-k) / float64(k+1)
	}
}

// Quantile interpolates in sorted values, of which there is at least one.
func Quantile(sorted []float64, q float64) float64 {
	x := q * float64(len(sorted)-1)
	i := int(x)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (x-float64(i))*(sorted[i+1]-sorted[i])
}

// samples are how often rounds are drawn for a span.
const samples = 500

// OfRounds describes what is a number of n rounds together, such as a quantile of all that they saw:
// for the span, as many rounds are drawn from them again and again, of which some are drawn twice
// (a bootstrap). The draws are the same in each call.
func OfRounds(n int, of func(rounds []int) float64) Span {
	rounds := make([]int, n)
	for i := range rounds {
		rounds[i] = i
	}
	if n == 0 {
		return Span{}
	}
	s := Span{N: n, Median: of(rounds)}
	draw := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, samples)
	for k := range values {
		for i := range rounds {
			rounds[i] = draw.IntN(n)
		}
		values[k] = of(rounds)
	}
	slices.Sort(values)
	s.Low, s.High = Quantile(values, (1-Confidence)/2), Quantile(values, (1+Confidence)/2)
	s.Q1, s.Q3, s.Min, s.Max = Quantile(values, 0.25), Quantile(values, 0.75), values[0], values[samples-1]
	return s
}

// Verdict says whether the median is at most the target: undecided, if the
// span has values on both sides of it or is of too few.
func (s Span) Verdict(target float64) string {
	switch {
	case s.N == 0:
		return NotMeasured
	case s.N < fewest:
		return Undecided
	case s.High <= target:
		return Met
	case s.Low > target:
		return Missed
	default:
		return Undecided
	}
}
