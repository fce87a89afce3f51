package timeline

import "github.com/tailcam/tailcam/explain"

// cell is an interval of a row as drawn.
type cell struct {
	cause explain.Cause
	state string
	text  string
	share float64 // covered share
}

// took is what one cause took of a cell.
type took struct {
	cause       explain.Cause
	ns, longest uint64
	state, text string // of the longest bar
}

// cells splits a row into n equal intervals. Each shows one of its causes, and as many show a
// cause as its time asks for: what a cell does not show of the time of its other causes is
// owed to them until a later cell shows them (Bresenham's rule).
func (p *Picture) cells(row *Row, n int) []cell {
	out := make([]cell, n)
	owed := map[explain.Cause]float64{}
	for i, list := range p.taken(row, n) {
		if len(list) == 0 {
			continue
		}
		wide := max(float64(p.To-p.From)/float64(n), 1)
		sum := 0.0
		best := &list[0]
		for j := range list {
			t := &list[j]
			sum += float64(t.ns)
			owed[t.cause] += float64(t.ns)
			if owed[t.cause] > owed[best.cause] {
				best = t
			}
		}
		owed[best.cause] -= sum
		out[i] = cell{cause: best.cause, state: best.state, text: best.text, share: min(sum/wide, 1)}
	}
	return out
}

// taken returns the causes in each of n equal intervals, in the order of their first bars.
func (p *Picture) taken(row *Row, n int) [][]took {
	out := make([][]took, n)
	whole := p.To - p.From
	at := func(i int) uint64 { return p.From + uint64(float64(whole)*float64(i)/float64(n)) }
	for b := range row.Bars {
		bar := &row.Bars[b]
		first := int(float64(bar.From-p.From) / float64(whole) * float64(n))
		for i := max(first-1, 0); i < n && at(i) < bar.To; i++ {
			end := p.To
			if i+1 < n {
				end = at(i + 1)
			}
			if lo, hi := max(bar.From, at(i)), min(bar.To, end); lo < hi {
				out[i] = appendTook(out[i], bar, hi-lo)
			}
		}
	}
	return out
}

func appendTook(list []took, bar *Bar, ns uint64) []took {
	for i := range list {
		t := &list[i]
		if t.cause != bar.Cause {
			continue
		}
		t.ns += ns
		if ns > t.longest {
			t.longest, t.state, t.text = ns, bar.State, bar.Text
		}
		return list
	}
	return append(list, took{cause: bar.Cause, ns: ns, longest: ns, state: bar.State, text: bar.Text})
}
