package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// results holds what every variant cost, by column and round.
type results struct {
	columns []column
	costs   map[string][][]cost
}

func (r *results) add(variant string, col, round int, c cost) {
	if r.costs[variant] == nil {
		r.costs[variant] = make([][]cost, len(r.columns))
	}
	if len(r.costs[variant][col]) != round {
		return // cannot be: rounds come in order
	}
	r.costs[variant][col] = append(r.costs[variant][col], c)
}

// row is one table's line, nanoseconds net of programs without a table in the same round.
type row struct {
	Table   string    `json:"table"`
	Waking  []float64 `json:"waking_ns"` // by column
	Switch  []float64 `json:"switch_ns"`
	Pair    []float64 `json:"pair_ns"`        // both: what a wake-up costs
	ByCPUs  float64   `json:"growth_by_cpus"` // all CPUs against one
	ByKeys  float64   `json:"growth_by_keys"` // 100,000 keys against 100
	Verdict []string  `json:"verdict"`        // by column: cheapest, or times the cheapest
}

func (r *results) rows() []row {
	var rows []row
	for _, v := range variants[1:] {
		row := row{Table: v.title}
		for c := range r.columns {
			var waking, swtch, pair []float64
			for round, got := range r.costs[v.name][c] {
				empty := r.costs["empty"][c][round]
				waking = append(waking, got.waking-empty.waking)
				swtch = append(swtch, got.swtch-empty.swtch)
				pair = append(pair, got.waking-empty.waking+got.swtch-empty.swtch)
			}
			row.Waking = append(row.Waking, median(waking))
			row.Switch = append(row.Switch, median(swtch))
			row.Pair = append(row.Pair, median(pair))
		}
		last := len(r.columns) - 1
		row.ByCPUs = row.Pair[last-2] / row.Pair[0]
		row.ByKeys = row.Pair[last] / row.Pair[last-2]
		rows = append(rows, row)
	}
	for c := range r.columns {
		best := rows[0].Pair[c]
		for _, row := range rows {
			best = min(best, row.Pair[c])
		}
		for i := range rows {
			verdict := "cheapest"
			if rows[i].Pair[c] > best {
				verdict = fmt.Sprintf("%.1f times", rows[i].Pair[c]/best)
			}
			rows[i].Verdict = append(rows[i].Verdict, verdict)
		}
	}
	return rows
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// printTable writes Markdown.
func printTable(w io.Writer, columns []column, rows []row) {
	head := []string{"ns a wake-up (waking + switch), net"}
	for _, c := range columns {
		head = append(head, c.Name)
	}
	lines := [][]string{append(head, "growth, 1 CPU to all", "growth, 100 to 100,000 keys")}
	for _, r := range rows {
		line := []string{r.Table}
		for c := range columns {
			line = append(line, fmt.Sprintf("%.0f (%.0f + %.0f)", r.Pair[c], r.Waking[c], r.Switch[c]))
		}
		lines = append(lines, append(line, fmt.Sprintf("%.2f", r.ByCPUs), fmt.Sprintf("%.2f", r.ByKeys)))
	}
	for i, l := range lines {
		fmt.Fprintf(w, "| %s |\n", strings.Join(l, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|%s\n", strings.Repeat(" --- |", len(l)))
		}
	}
}
