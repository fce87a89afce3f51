package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/explainer"
	"github.com/tailcam/tailcam/internal/term"
)

func newExplain(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain DIR",
		Short: "Tell where the time of a snapshot's outliers went, and who is to blame",
		Long: `Read a snapshot's directory, and tell for each of its outliers where the time
went, to the microsecond, whom it waited for, and how that came about: the
critical path. It needs neither root nor the daemon. The rules are in
docs/explain.md; -o json prints what explain.json holds.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("explain wants the directory of one snapshot: see \"tailcam list snapshots\"")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(_ *cobra.Command, args []string) error { return c.explain(args[0]) },
	}
	c.addOutput(cmd)
	return cmd
}

func (c *cli) explain(dir string) error {
	r, m, err := explainer.Snapshot(dir)
	if err != nil {
		return err
	}
	if c.output == jsonOutput {
		return c.printJSON(r)
	}
	for i := range r.Outliers {
		if i > 0 {
			c.out.Printf("\n")
		}
		c.out.Printf("%s\n", c.out.Paint(term.Dim, fmt.Sprintf("%s  rule %s", term.Time(m.Outliers[i].Time), term.Clean(r.Outliers[i].Rule))))
		r.Outliers[i].WriteText(c.out)
	}
	if len(r.Outliers) == 0 {
		c.out.Printf("no outlier: the snapshot was taken by hand\n")
	}
	for _, n := range append(r.Notes, m.Notes...) {
		c.out.Printf("\n%s %s\n", c.out.Paint(term.Yellow, "note:"), term.Clean(n))
	}
	return nil
}
