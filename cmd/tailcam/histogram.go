package main

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
)

func newHistogram(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "histogram [RULE|TRACKER]",
		Short: "Show the distribution of all delays, not only outliers",
		Long: `Without an argument, show the percentiles of each tracker, and of each rule with a
histogram (histogram: in its file, or a threshold with quantile). With the name of a
rule or a tracker, show its distribution and its classes.

All delays since the daemon started are counted, in buckets at most 9.1% wide.
Percentiles have this precision; the maximum is exact.`,
		Example: "  tailcam histogram\n" +
			"  tailcam histogram block",
		Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			of := strings.Join(args, "")
			list, err := c.client().Histograms(cmd.Context(), of)
			if err != nil {
				return err
			}
			if c.wantsData() {
				return printList(c, list)
			}
			c.printHistograms(list, of != "")
			return nil
		},
	}
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addSocket(cmd)
	return cmd
}

func (c *cli) printHistograms(list []api.HistogramInfo, bars bool) {
	if len(list) == 0 {
		c.out.Printf("no histograms: disabled, or no tracker is running\n")
		return
	}
	if bars && list[0].Count > 0 {
		c.printBars(list[0].Buckets)
		c.out.Printf("\n")
	}
	t := term.NewTable(term.Column{Title: "NAME"}, term.Column{Title: "CLASS"}, right("COUNT"), right("P50"),
		right("P90"), right("P99"), right("P99.9"), right("MAX"), term.Column{})
	for i := range list {
		h := &list[i]
		of := h.Rule
		if of == "" {
			of = h.Tracker
		}
		undecided := term.Cell{Style: term.Yellow}
		if h.Undecided > 0 {
			undecided.Text = term.Count(h.Undecided) + " unclassified"
		}
		t.Cells(term.Cell{Text: term.Clean(of), Style: term.Cyan}, plain(term.Clean(h.Class)), plain(term.Count(h.Count)),
			delayCell(h, h.P50NS), delayCell(h, h.P90NS), delayCell(h, h.P99NS),
			delayCell(h, h.P999NS), delayCell(h, h.MaxNS), undecided)
	}
	t.Print(c.out, "")
}

func delayCell(h *api.HistogramInfo, ns uint64) term.Cell {
	if h.Count == 0 {
		return term.Cell{Text: "-", Style: term.Dim}
	}
	return plain(term.Duration(int64(min(ns, 1<<63-1))))
}

// barWidth is that of the longest bar.
const barWidth = 50

// printBars prints the buckets, one bar per power of two.
func (c *cli) printBars(buckets []api.BucketInfo) {
	var octaves [65]uint64
	first, last, most := 64, 0, uint64(0)
	for _, b := range buckets {
		i := bits.Len64(b.FromNS)
		octaves[i] += b.Count
		first, last, most = min(first, i), max(last, i), max(most, octaves[i])
	}
	t := term.NewTable(right("FROM"), right("COUNT"), term.Column{})
	for i := first; i <= last; i++ {
		from := uint64(0)
		if i > 0 {
			from = 1 << (i - 1)
		}
		n := octaves[i]
		bar := strings.Repeat("█", int(float64(n)/float64(most)*barWidth))
		if bar == "" && n > 0 {
			bar = "▏" // show the tail, however rare
		}
		t.Cells(plain(term.Duration(int64(from))), plain(term.Count(n)), term.Cell{Text: bar, Style: term.Cyan})
	}
	t.Print(c.out, "")
}

// thresholdCell is a rule's current threshold.
func thresholdCell(r *api.RuleInfo) term.Cell {
	switch {
	case r.Adaptive == nil && r.ThresholdNS == 0:
		return term.Cell{Text: "-", Style: term.Dim}
	case r.Adaptive == nil:
		return plain(term.Setting(r.ThresholdNS))
	case r.Adaptive.Quiet:
		return term.Cell{Text: "quiet", Style: term.Yellow}
	}
	return plain("~" + term.Duration(r.ThresholdNS))
}

// ruleNote is the last column of a rule's row.
func ruleNote(r *api.RuleInfo) term.Cell {
	if r.Inactive != "" {
		return term.Cell{Text: "inactive: " + term.Clean(r.Inactive), Style: term.Yellow}
	}
	notes := runtimeNotes(r)
	if r.Stuck != nil && *r.Stuck > 0 {
		notes = append(notes, fmt.Sprintf("%d past the timeout now", *r.Stuck))
	}
	if r.Attaching != "" {
		notes = append(notes, term.Clean(r.Attaching))
	}
	if r.Adaptive != nil {
		notes = append(notes, adaptiveNote("", r.Adaptive))
	}
	for i := range r.Overrides {
		o := &r.Overrides[i]
		now := "quiet"
		if !o.Adaptive.Quiet {
			now = "~" + term.Duration(o.Adaptive.ThresholdNS)
		}
		notes = append(notes, adaptiveNote(fmt.Sprintf("override %d %s: ", o.Index, now), &o.Adaptive))
	}
	return term.Cell{Text: strings.Join(notes, "; "), Style: term.Dim}
}

func adaptiveNote(of string, a *api.AdaptiveInfo) string {
	if a.Quiet {
		return fmt.Sprintf("%s%s of %s samples", of, term.Count(a.Samples), term.Count(a.MinSamples))
	}
	return fmt.Sprintf("%s%gx p%g %s of %s samples", of, a.Times, 100*a.Quantile, term.Duration(a.QuantileNS),
		term.Count(a.Samples))
}

// configured is a rule's threshold as written in its file.
func configured(r *rules.Rule) string {
	switch {
	case r.Adaptive != nil:
		return r.Adaptive.String()
	case r.Threshold == 0:
		return "-" // only a timeout
	}
	return term.Setting(int64(r.Threshold))
}
