package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/internal/timeline"
	"github.com/tailcam/tailcam/snapshot"
)

// explainOptions are the flags of `tailcam explain`.
type explainOptions struct {
	format   string
	out      string // file; "-": standard output
	force    bool
	outliers []int // from 1; empty: all
	path     bool
	dir      string // of the snapshot
}

// Formats of `tailcam explain`.
var explainFormats = []string{"text", "svg", "html", "json", "yaml"}

func newExplain(c *cli) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain [DIR|ID|FILE|-]",
		Short: "Explain where the time of a snapshot's outliers went",
		Long: `Read a snapshot, the newest by default, and explain each of its outliers: where
the time went, to the microsecond, what it waited for and why. The critical path is
drawn as a timeline with a row for each task. Needs neither root nor the daemon. The
method is described in docs/explain.md. - is a packed snapshot (*.tailcam) on standard input.

  text  for the terminal
  svg   a picture
  html  a page that loads nothing, to be mailed: a time line that zooms, stacks, parts
  json  the contents of explain.json, with the field schema

Exit status: 3 there is no snapshot yet, and no other was asked for.`,
		Example: `  tailcam explain
  tailcam explain 20261121T013004 --outlier 1,3
  tailcam explain --path /var/lib/tailcam/snapshots/20261121T013004.557441426Z-wakeup-000001
  tailcam explain 20261121T013004 --format html -O slow.html
  ssh db1 tailcam snapshots pack -O - | tailcam explain -`,
		Args:              maxArgs(1),
		ValidArgsFunction: c.completeDirs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("format") {
				o.format = string(c.output)
			} else if cmd.Flags().Changed("output") && o.format != string(c.output) {
				return usagef("-o %s and --format %s contradict each other", c.output, o.format)
			}
			if !slices.Contains(explainFormats, o.format) {
				return usagef("invalid --format %s: must be one of %s", o.format, oneOf(explainFormats))
			}
			dir, err := c.findSnapshot(cmd.Context(), cmd, append(args, latest)[0])
			if err != nil {
				return err
			}
			o.dir = dir
			return c.explain(&o)
		},
	}
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addDir(cmd)
	cmd.Flags().StringVar(&o.format, "format", "text", "output `format`: one of "+oneOf(explainFormats))
	_ = cmd.RegisterFlagCompletionFunc("format",
		cobra.FixedCompletions(explainFormats, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().StringVarP(&o.out, "out", "O", "-", "output `path`, - for standard output")
	cmd.Flags().BoolVar(&o.force, "force", false, "overwrite an existing file")
	cmd.Flags().IntSliceVar(&o.outliers, "outlier", nil, "explain only these outliers, `numbers` from 1")
	cmd.Flags().BoolVar(&o.path, "path", false, "with text, also list each step of the critical path")
	return cmd
}

func (c *cli) explain(o *explainOptions) error {
	r, m, err := catalog.Explain(o.dir)
	if err != nil {
		return dirError(o.dir, err)
	}
	if err := selectOutliers(r, m, o.outliers); err != nil {
		return err
	}
	if o.out == "-" {
		return c.printExplanation(r, m, o)
	}
	if st, err := os.Stat(o.out); err == nil && st.Mode().IsRegular() && !o.force {
		return fmt.Errorf("%s already exists: use --force to overwrite it", o.out)
	}
	f, err := os.Create(o.out)
	if err != nil {
		return fmt.Errorf("write explanation: %w", err)
	}
	to := *c
	to.out = term.New(f, nil)
	c.applyColor(to.out)
	err = to.printExplanation(r, m, o)
	if err == nil {
		err = to.out.Err()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", o.out, err)
	}
	return nil
}

// selectOutliers keeps those with the given numbers, from 1; all if there is none.
func selectOutliers(r *explain.Report, m *snapshot.Meta, numbers []int) error {
	if len(numbers) == 0 {
		return nil
	}
	results, outliers := r.Outliers, m.Outliers
	r.Outliers, m.Outliers = nil, nil
	for _, n := range numbers {
		if n < 1 || n > len(results) {
			return fmt.Errorf("invalid --outlier %d: the snapshot has %s", n, plural(len(results), "outlier"))
		}
		r.Outliers = append(r.Outliers, results[n-1])
		m.Outliers = append(m.Outliers, outliers[n-1])
	}
	return nil
}

func (c *cli) printExplanation(r *explain.Report, m *snapshot.Meta, o *explainOptions) error {
	switch o.format {
	case string(jsonOutput), string(yamlOutput):
		return c.printAs(outputFormat(o.format), r)
	case "svg":
		return timeline.SVG(c.out, r.Outliers)
	case "html":
		return timeline.HTML(c.out, page(o.dir, r, m))
	}
	for i := range r.Outliers {
		if i > 0 {
			c.out.Printf("\n")
		}
		c.out.Printf("%s\n", c.out.Paint(term.Dim,
			fmt.Sprintf("%s  rule %s", term.Time(m.Outliers[i].Time), term.Clean(r.Outliers[i].Rule))))
		if usual := term.Usual(&m.Outliers[i]); usual != "" {
			c.out.Printf("%s\n", c.out.Paint(term.Dim, "usually "+usual))
		}
		timeline.Print(c.out, &r.Outliers[i])
		if o.path {
			c.out.Printf("\n")
			r.Outliers[i].WritePath(c.out)
		}
	}
	if len(r.Outliers) == 0 {
		c.out.Printf("no outlier: the snapshot was taken manually\n")
	}
	for _, n := range append(r.Notes, m.Notes...) {
		c.out.Printf("\n%s %s\n", c.out.Paint(term.Yellow, "note:"), term.Clean(n))
	}
	return nil
}

// page is what the page of an explanation shows.
func page(dir string, r *explain.Report, m *snapshot.Meta) *timeline.Page {
	p := &timeline.Page{Title: m.ID, Results: r.Outliers, Outliers: m.Outliers, Notes: slices.Concat(r.Notes, m.Notes)}
	fact := func(name, value string) {
		if value != "" {
			p.Facts = append(p.Facts, timeline.Fact{Name: name, Value: value})
		}
	}
	fact("taken", term.Time(m.Time))
	fact("because of", m.Reason)
	fact("host", m.Host.Name)
	fact("kernel", m.Host.Kernel+" "+m.Host.Arch)
	fact("tailcam", m.Host.Tailcam)
	fact("history", plural(len(m.Coverage), "CPU")+", "+plural(int(min(m.Records, 1<<60)), "record"))
	details, err := catalog.ReadDetails(dir)
	if err != nil {
		return p // without neighbours
	}
	for _, s := range []*catalog.Snapshot{details.Before, details.After} {
		if s != nil {
			text := cmp.Or(s.Verdict, "rule "+s.Rule+", "+term.Duration(s.DelayNS))
			p.Neighbours = append(p.Neighbours, timeline.Neighbour{When: term.Time(s.Time), ID: s.ID, Text: text})
		}
	}
	return p
}
