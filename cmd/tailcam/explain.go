package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/explainer"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/internal/timeline"
	"github.com/tailcam/tailcam/snapshot"
)

// explainOptions are the flags of `tailcam explain`.
type explainOptions struct {
	format  string
	out     string // file; "-": standard output
	force   bool
	outlier int // from 1; 0: all
	path    bool
}

// Formats of `tailcam explain`.
var explainFormats = []string{"text", "svg", "json"}

func newExplain(c *cli) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain DIR|ID",
		Short: "Tell where the time of a snapshot's outliers went, and who is to blame",
		Long: `Read a snapshot, and tell for each of its outliers where the time went, to the
microsecond, whom it waited for, and how that came about: the critical path, drawn
as a time line with a row for each task. It needs neither root nor the daemon. The
rules are in docs/explain.md; json is what explain.json holds.`,
		Example: `  tailcam explain 20261121T013004
  tailcam explain --path /var/lib/tailcam/snapshots/20261121T013004.557441426Z-wakeup-000001
  tailcam explain 20261121T013004 --format svg -O slow.svg`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("explain wants one snapshot, its directory or its id: see \"tailcam snapshots list\"")
			}
			return nil
		},
		ValidArgsFunction: c.completeDirs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.output == jsonOutput && !cmd.Flags().Changed("format") {
				o.format = "json"
			}
			dir, err := c.findSnapshot(cmd.Context(), cmd, args[0])
			if err != nil {
				return err
			}
			return c.explain(dir, &o)
		},
	}
	c.addOutput(cmd)
	c.addDir(cmd)
	cmd.Flags().StringVar(&o.format, "format", "text", "`format`: text, svg (a picture), or json")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(explainFormats, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().StringVarP(&o.out, "out", "O", "-", "`path` to write, - is the standard output")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace what is there")
	cmd.Flags().IntVar(&o.outlier, "outlier", 0, "only this one of several, a `number` from 1")
	cmd.Flags().BoolVar(&o.path, "path", false, "text: list each step of the critical path, too")
	return cmd
}

func (c *cli) explain(dir string, o *explainOptions) error {
	switch o.format {
	case "text", "svg", "json":
	default:
		return fmt.Errorf("--format %s: allowed are text, svg and json", o.format)
	}
	r, m, err := explainer.Snapshot(dir)
	if err != nil {
		return dirError(dir, err)
	}
	if n := len(r.Outliers); o.outlier < 0 || o.outlier > n {
		return fmt.Errorf("--outlier %d: the snapshot has %s", o.outlier, plural(n, "outlier"))
	}
	if o.outlier > 0 {
		r.Outliers = r.Outliers[o.outlier-1 : o.outlier]
		m.Outliers = m.Outliers[o.outlier-1 : o.outlier]
	}
	if o.out == "-" {
		return c.printExplanation(r, m, o)
	}
	if st, err := os.Stat(o.out); err == nil && st.Mode().IsRegular() && !o.force {
		return fmt.Errorf("%s is there already: --force replaces it", o.out)
	}
	f, err := os.Create(o.out)
	if err != nil {
		return fmt.Errorf("write explanation: %w", err)
	}
	to := *c
	to.out = term.New(f, nil)
	err = to.printExplanation(r, m, o)
	if err == nil {
		err = to.out.Err()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", o.out, err)
	}
	return nil
}

func (c *cli) printExplanation(r *explain.Report, m *snapshot.Meta, o *explainOptions) error {
	switch o.format {
	case "json":
		return c.printJSON(r)
	case "svg":
		return timeline.SVG(c.out, r.Outliers)
	}
	for i := range r.Outliers {
		if i > 0 {
			c.out.Printf("\n")
		}
		c.out.Printf("%s\n", c.out.Paint(term.Dim, fmt.Sprintf("%s  rule %s", term.Time(m.Outliers[i].Time), term.Clean(r.Outliers[i].Rule))))
		timeline.Print(c.out, &r.Outliers[i])
		if o.path {
			c.out.Printf("\n")
			r.Outliers[i].WritePath(c.out)
		}
	}
	if len(r.Outliers) == 0 {
		c.out.Printf("no outlier: the snapshot was taken by hand\n")
	}
	for _, n := range append(r.Notes, m.Notes...) {
		c.out.Printf("\n%s %s\n", c.out.Paint(term.Yellow, "note:"), term.Clean(n))
	}
	return nil
}
