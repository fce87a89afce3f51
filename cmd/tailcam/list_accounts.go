package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/internal/eventcost"
	"github.com/tailcam/tailcam/internal/term"
)

func newListAccounts(c *cli) *cobra.Command {
	length := 2 * time.Second
	cmd := &cobra.Command{
		Use:     "accounts",
		Short:   "List what accounts of activities hold, and what each group costs on this machine",
		Example: "  tailcam list accounts --for 0s\n  sudo tailcam list accounts --for 10s -o json",
		Long: `List the groups of activities.groups with the values of an account: the unit of each, and
whether this kernel has the hooks for it.

To measure what a group costs, it attaches the programs of all groups for the duration of
--for, next to a running daemon if there is one, with kernel statistics for BPF programs
enabled (some ten nanoseconds per program run). No process takes part meanwhile: the cost is
what the group costs everybody else. This needs root, or CAP_BPF, CAP_PERFMON and
CAP_SYS_ADMIN; otherwise groups are listed without numbers. The cost of an empty program is
subtracted.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if length < 0 || length > maxMeasure {
				return usagef("invalid --for %s: must be between 0s (do not measure) and %s", length, maxMeasure)
			}
			return c.listAccounts(cmd.Context(), length)
		},
	}
	cmd.Flags().DurationVar(&length, "for", length, "measurement `duration` (0s: do not measure)")
	c.addOutput(cmd)
	c.addPager(cmd)
	return cmd
}

func (c *cli) listAccounts(ctx context.Context, length time.Duration) error {
	groups, err := c.deps.accounts(ctx, length)
	if errors.Is(err, eventcost.ErrPrivilege) {
		c.printError(err)
		err = nil
	}
	if err != nil {
		return err
	}
	if c.wantsData() {
		return printList(c, groups)
	}
	t := term.NewTable(term.Column{Title: "GROUP"}, term.Column{Title: "VALUE"}, term.Column{Title: "UNIT"},
		right("NS/RUN"), right("RUNS/S"), right("CPU"), term.Column{})
	for i := range groups {
		g := &groups[i]
		ns, rate, share := "", "", ""
		if g.Cost != nil {
			ns, rate, share = priceCells(g.Cost)
		}
		t.Cells(term.Cell{Text: g.Group, Style: term.Cyan}, plain(""), plain(""), plain(ns), plain(rate), plain(share),
			groupNote(g))
		for j := range g.Values {
			v := &g.Values[j]
			note := term.Cell{}
			if v.Also != "" {
				note = term.Cell{Text: "with group " + v.Also, Style: term.Dim}
			}
			if v.Of != "" {
				note = term.Cell{Text: "of the " + v.Of + ", not of a token", Style: term.Dim}
			}
			if !v.Available {
				note = term.Cell{Text: "unavailable: " + term.Clean(v.Reason), Style: term.Yellow}
			}
			t.Cells(plain(""), plain(v.Name), plain(v.Unit), plain(""), plain(""), plain(""), note)
		}
	}
	t.Print(c.out, "")
	return nil
}

func groupNote(g *accounts.Group) term.Cell {
	switch {
	case g.Group == accounts.Scheduler:
		return term.Cell{Text: "always on with activities", Style: term.Green}
	case g.Default:
		return term.Cell{Text: "on by default", Style: term.Green}
	}
	return term.Cell{Text: "off by default", Style: term.Dim}
}
