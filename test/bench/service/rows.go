package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tailcam/tailcam/test/bench/stat"
)

// row is a part, and what the client did with it in and out, in each round.
type row struct {
	part          string
	with, without []window
	times         []float64 // what each round's ratio is multiplied by; nil: nothing
}

// rows sums up what was measured: of each part, and of each tailcam as a whole, its programs and
// the daemon with all that is attached, to nothing attached in the same block.
func (b *bench) rows(visits []visit) (rows []row) {
	at := map[string]int{}
	for _, v := range visits {
		i, ok := at[v.part]
		if !ok {
			i = len(rows)
			at[v.part], rows = i, append(rows, row{part: v.part})
		}
		if v.in {
			rows[i].with = append(rows[i].with, v.window)
		} else {
			rows[i].without = append(rows[i].without, v.window)
		}
	}
	for i := range b.variants {
		v := &b.variants[i]
		if v.ours {
			rows = append(rows, inAll(rows, v.name))
		}
		if v.ours && !v.limited() {
			rows = append(rows, asAWhole(visits, v.name))
		}
	}
	return slices.DeleteFunc(rows, func(r row) bool { return len(r.with) == 0 || len(r.without) == 0 })
}

// inAll is what a tailcam takes beyond empty programs, times what these take where it has its own:
// with what it is compared with, what it attaches is attached still.
func inAll(rows []row, name string) row {
	r := row{part: name + ": in all, with what empty programs take"}
	find := func(part string) *row {
		i := slices.IndexFunc(rows, func(r row) bool { return r.part == part })
		if i < 0 {
			return &row{}
		}
		return &rows[i]
	}
	beyond, empty := find(name+withDaemon), find(emptyOf(name))
	for k := range min(len(beyond.with), len(empty.with)) {
		r.with, r.without = append(r.with, window{ns: beyond.with[k].ns}), append(r.without, window{ns: beyond.without[k].ns})
		r.times = append(r.times, empty.with[k].ns/empty.without[k].ns)
	}
	return r
}

// asAWhole is a tailcam as a whole, with a window for each block.
func asAWhole(visits []visit, name string) row {
	r := row{part: name + ": as a whole"}
	for block := 0; ; block++ {
		var with, without []window
		for _, v := range visits {
			switch {
			case v.block != block:
			case v.in && strings.HasPrefix(v.part, name+": "): // the others are in as well
				with = append(with, v.window)
			case v.nothing:
				without = append(without, v.window)
			}
		}
		if len(with) == 0 || len(without) == 0 {
			return r
		}
		r.with, r.without = append(r.with, pooled(with)), append(r.without, pooled(without))
	}
}

// pooled is one window of several: the median time of a request, and all latencies.
func pooled(list []window) (w window) {
	var ns []float64
	for i := range list {
		ns, w.took = append(ns, list[i].ns), append(w.took, list[i].took...)
	}
	w.ns = stat.Of(ns).Median
	return w
}

// printRows prints the table of a load.
func printRows(w io.Writer, title string, rows []row) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "%s\twithout\twith it, to without\t99th percentile\tof a window\t\n", title)
	for i := range rows {
		r := &rows[i]
		var rest []float64
		for k := range r.without {
			rest = append(rest, r.without[k].ns)
		}
		fmt.Fprintf(out, "%s\t%.2f us\t%s\t%s\t%s\t\n", r.part, stat.Of(rest).Median/1000,
			spanned(r.ratio()), spanned(r.tail()), spanned(r.windowTail()))
	}
	fmt.Fprintln(out)
	return out.Flush()
}

// ratio is the median of the rounds' ratios of a request's time.
func (r *row) ratio() stat.Span {
	ratios := make([]float64, min(len(r.with), len(r.without)))
	for k := range ratios {
		ratios[k] = r.with[k].ns / r.without[k].ns
	}
	if r.times == nil {
		return stat.Of(ratios)
	}
	return stat.OfRounds(len(ratios), func(rounds []int) float64 {
		return medianOf(ratios, rounds) * medianOf(r.times, rounds)
	})
}

func medianOf(values []float64, rounds []int) float64 {
	some := make([]float64, len(rounds))
	for i, k := range rounds {
		some[i] = values[k]
	}
	slices.Sort(some)
	return stat.Quantile(some, 0.5)
}

// tail is the ratio of the 99th percentiles of all that is told of the rounds; of none, if not enough is.
func (r *row) tail() stat.Span {
	var with, without []counts
	for k := range min(len(r.with), len(r.without)) {
		if len(r.with[k].took) == 0 || len(r.without[k].took) == 0 {
			return stat.Span{}
		}
		with, without = append(with, countsOf(r.with[k].took)), append(without, countsOf(r.without[k].took))
	}
	return stat.OfRounds(len(with), func(rounds []int) float64 { return tailOf(with, rounds) / tailOf(without, rounds) })
}

// windowTail is the median of the rounds' ratios of 99th percentiles: a stall of the machine is in one
// window or the other, and of all rounds together, few such decide.
func (r *row) windowTail() stat.Span {
	var ratios []float64
	for k := range min(len(r.with), len(r.without)) {
		with, without := slices.Sorted(slices.Values(r.with[k].took)), slices.Sorted(slices.Values(r.without[k].took))
		if len(with) == 0 || len(without) == 0 {
			return stat.Span{}
		}
		ratios = append(ratios, stat.Quantile(with, 0.99)/stat.Quantile(without, 0.99))
	}
	return stat.Of(ratios)
}

// counts are how many latencies are in each bucket, of which a latency that is twice as long is so many further on.
type counts map[int]int

const perOctave = 4096 // each is 0.02 % wide

func countsOf(took []float64) counts {
	c := counts{}
	for _, ns := range took {
		c[int(math.Log2(max(ns, 1))*perOctave)]++
	}
	return c
}

// tailOf is the 99th percentile of some rounds.
func tailOf(list []counts, rounds []int) float64 {
	var sum [64 * perOctave]int
	all := 0
	for _, k := range rounds {
		for bucket, n := range list[k] {
			sum[bucket] += n
			all += n
		}
	}
	left := all / 100
	bucket := len(sum)
	for left >= 0 && bucket > 0 {
		bucket--
		left -= sum[bucket]
	}
	return math.Exp2((float64(bucket) + 0.5) / perOctave)
}

func spanned(s stat.Span) string {
	if s.N == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f (%.3f to %.3f)", s.Median, s.Low, s.High)
}
