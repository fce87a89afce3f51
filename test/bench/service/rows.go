package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tailcam/tailcam/test/bench/stat"
)

// row is a part, and what the client did with it in and out, in each round.
type row struct {
	part          string
	with, without []window
	together      int // of them have latencies enough for a 99th percentile
}

// tailRounds is that of rounds.
const tailRounds = 5

// rows sums up what was measured: of each part, and of each tailcam as a whole, its programs and
// the daemon with all that is attached, to nothing attached in the same block.
func (b *bench) rows(visits []visit) (rows []row) {
	at := map[string]int{}
	for _, v := range visits {
		i, ok := at[v.part]
		if !ok {
			i = len(rows)
			at[v.part], rows = i, append(rows, row{part: v.part, together: tailRounds})
		}
		if v.in {
			rows[i].with = append(rows[i].with, v.window)
		} else {
			rows[i].without = append(rows[i].without, v.window)
		}
	}
	for i := range b.variants {
		if b.variants[i].ours {
			rows = append(rows, inAll(rows, b.variants[i].name), asAWhole(visits, b.variants[i].name))
		}
	}
	return slices.DeleteFunc(rows, func(r row) bool { return len(r.with) == 0 || len(r.without) == 0 })
}

// inAll is what a tailcam takes beyond empty programs, times what these take: with what it is
// compared with, what it attaches is attached still.
func inAll(rows []row, name string) row {
	r := row{part: name + ": in all, with what empty programs take", together: tailRounds}
	find := func(part string) *row {
		i := slices.IndexFunc(rows, func(r row) bool { return r.part == part })
		if i < 0 {
			return &row{}
		}
		return &rows[i]
	}
	beyond, empty := find(name+withDaemon), find(emptyMostFrequent)
	for k := range min(len(beyond.with), len(empty.with)) {
		more := empty.with[k].ns / empty.without[k].ns
		r.with = append(r.with, window{ns: beyond.with[k].ns * more})
		r.without = append(r.without, window{ns: beyond.without[k].ns})
	}
	return r
}

// asAWhole is a tailcam as a whole, with a window for each block.
func asAWhole(visits []visit, name string) row {
	r := row{part: name + ": as a whole", together: 1}
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
	fmt.Fprintf(out, "%s\twithout\twith it, to without\t99th percentile\t\n", title)
	for i := range rows {
		r := &rows[i]
		var rest, ratio []float64
		for k := range r.with {
			rest = append(rest, r.without[k].ns)
			ratio = append(ratio, r.with[k].ns/r.without[k].ns)
		}
		fmt.Fprintf(out, "%s\t%.2f us\t%s\t%s\t\n", r.part, stat.Of(rest).Median/1000, median(ratio), median(r.tails()))
	}
	fmt.Fprintln(out)
	return out.Flush()
}

// tails are the ratios of the 99th percentiles of as many windows together.
func (r *row) tails() (ratios []float64) {
	for k := 0; k+r.together <= len(r.with); k += r.together {
		with, without := tail(r.with[k:k+r.together]), tail(r.without[k:k+r.together])
		if with > 0 && without > 0 {
			ratios = append(ratios, with/without)
		}
	}
	return ratios
}

// tail is the 99th percentile of all that is told of some windows; 0: nothing is.
func tail(list []window) float64 {
	var all []float64
	for i := range list {
		all = append(all, list[i].took...)
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return stat.Quantile(all, 0.99)
}

func median(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	s := stat.Of(values)
	return fmt.Sprintf("%.3f (%.3f to %.3f)", s.Median, s.Low, s.High)
}
