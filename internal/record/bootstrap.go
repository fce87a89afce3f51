package record

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// numbers is how many numbers of a run are compared: its percentiles, and the rate of its
// outliers.
const numbers = len(percentiles) + 1

// sample is what a rule has seen in one run.
type sample struct {
	slices   []Slice
	verdicts []Verdict
	sliceNS  int64
	seconds  float64
	total    histogram.Histogram
	logs     [numbers]float64 // logarithms of the numbers of the whole run
}

func newSample(r *Report, rule *Rule) *sample {
	s := &sample{
		slices: rule.Slices, verdicts: rule.Verdicts, sliceNS: max(r.SliceNS, 1),
		seconds: max(float64(r.DurationNS)/1e9, 1e-9),
	}
	s.total.Max = math.MaxUint64 // of single delays only the bucket is known
	for i := range s.slices {
		s.slices[i].addTo(&s.total)
	}
	s.logs = s.numbersOf(&s.total, float64(s.outliers()))
	return s
}

func (s *sample) outliers() (n uint64) {
	for i := range s.slices {
		n += s.slices[i].Outliers
	}
	return n
}

// numbersOf are the logarithms of the numbers of such delays and outliers.
func (s *sample) numbersOf(h *histogram.Histogram, outliers float64) (logs [numbers]float64) {
	for i, p := range percentiles {
		logs[i] = math.Log(float64(max(h.Quantile(p.quantile), 1)))
	}
	logs[len(percentiles)] = math.Log((outliers + 0.5) / s.seconds)
	return logs
}

// blocks is how many stretches of slices a run is drawn from.
const blocks = 8

// again draws stretches of neighbouring slices, with replacement, and counts them into h:
// delays that are near in time are alike, so it is no use to draw single ones. The outliers
// of a rate are themselves a matter of chance, even if none came.
func (s *sample) again(random *rand.Rand, h *histogram.Histogram) [numbers]float64 {
	*h = histogram.Histogram{Max: math.MaxUint64}
	outliers, n := uint64(0), len(s.slices)
	length := (n + blocks - 1) / blocks
	for drawn := 0; drawn < n; {
		from := random.IntN(n)
		for i := 0; i < length && drawn < n; i++ {
			one := &s.slices[(from+i)%n]
			one.addTo(h)
			outliers += one.Outliers
			drawn++
		}
	}
	logs := s.numbersOf(h, 0)
	rate := distuv.Gamma{Alpha: float64(outliers) + 0.5, Beta: s.seconds, Src: random}
	logs[len(percentiles)] = math.Log(max(rate.Rand(), 1e-12))
	return logs
}

// bootstrap is a run beside earlier ones, drawn again many times.
type bootstrap struct {
	after  *sample
	before []*sample
	ratios [numbers][]float64 // logarithms
}

// newBootstrap draws the replicates. The same runs give the same result.
func newBootstrap(after *sample, before []*sample) *bootstrap {
	b := &bootstrap{after: after, before: before}
	random := rand.New(rand.NewPCG(6, 5)) //nolint:gosec // the same each time, on purpose
	runs := float64(len(before))
	var spread [numbers]float64
	for i := range spread {
		spread[i] = b.spread(i)
	}
	var h histogram.Histogram
	for range replicates {
		ratio := after.again(random, &h)
		for _, s := range before {
			for i, log := range s.again(random, &h) {
				ratio[i] -= log / runs
			}
		}
		for i := range ratio {
			b.ratios[i] = append(b.ratios[i], ratio[i])
		}
	}
	for i := range b.ratios {
		b.widen(i, spread[i], random)
	}
	return b
}

// widen makes up for what few stretches and few runs do not show: it stretches the
// replicates as Student's distribution is wider than the normal one, and lets this run
// differ from the mean of the earlier ones as these differ among each other.
func (b *bootstrap) widen(i int, spread float64, random *rand.Rand) {
	few := student(blocks-1, nil).Quantile(1-(1-confidence)/2) / distuv.UnitNormal.Quantile(1-(1-confidence)/2)
	center := b.after.logs[i] - b.meanBefore(i)
	runs := float64(len(b.before))
	own := student(runs-1, random)
	for j := range b.ratios[i] {
		r := &b.ratios[i][j]
		*r = center + few*(*r-center)
		if runs > 1 {
			*r += spread * math.Sqrt(1+1/runs) * own.Rand()
		}
	}
}

func student(freedom float64, random *rand.Rand) distuv.StudentsT {
	t := distuv.StudentsT{Sigma: 1, Nu: freedom}
	if random != nil {
		t.Src = random
	}
	return t
}

// spread is the deviation of a number from one earlier run to the next; 0: there is one.
func (b *bootstrap) spread(i int) float64 {
	if len(b.before) < 2 {
		return 0
	}
	mean, sum := b.meanBefore(i), 0.0
	for _, s := range b.before {
		sum += (s.logs[i] - mean) * (s.logs[i] - mean)
	}
	return math.Sqrt(sum / float64(len(b.before)-1))
}

func (b *bootstrap) meanBefore(i int) (mean float64) {
	for _, s := range b.before {
		mean += s.logs[i] / float64(len(b.before))
	}
	return mean
}

// who is a culprit.
type who struct{ name, kind string }

// cluster has the verdicts on outliers of one slice, which may have one reason.
type cluster struct {
	of  map[who]int
	all int
}

func clusters(runs ...*sample) (list []cluster) {
	for _, s := range runs {
		at := map[int64]int{}
		for i := range s.verdicts {
			v := &s.verdicts[i]
			slot := v.AtNS / s.sliceNS
			n, ok := at[slot]
			if !ok {
				n = len(list)
				at[slot] = n
				list = append(list, cluster{of: map[who]int{}})
			}
			list[n].of[who{snapshot.CulpritName(v.ByKind, v.By), v.ByKind}]++
			list[n].all++
		}
	}
	return list
}

func share(list []cluster, w who) float64 {
	of, all := 0, 0
	for i := range list {
		of, all = of+list[i].of[w], all+list[i].all
	}
	return float64(of) / float64(all)
}

// shareReplicates are differences of a culprit's share.
func shareReplicates(now, old []cluster, w who) []float64 {
	random := rand.New(rand.NewPCG(6, 5)) //nolint:gosec // the same each time, on purpose
	draw := func(list []cluster) float64 {
		of, all := 0, 0
		for range list {
			c := &list[random.IntN(len(list))]
			of, all = of+c.of[w], all+c.all
		}
		return distuv.Beta{Alpha: float64(of) + 0.5, Beta: float64(all-of) + 0.5, Src: random}.Rand()
	}
	values := make([]float64, replicates)
	for i := range values {
		values[i] = draw(now) - draw(old)
	}
	return values
}
