package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/activities/ask"
	"github.com/tailcam/tailcam/internal/activities/breakdown"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
)

func newActivitiesSlow(c *cli) *cobra.Command {
	var filters []string
	limit, by, most := "p99", "name", 10
	cmd := &cobra.Command{
		Use:   "slow",
		Short: "Show the slowest activities, and which part of their time grew",
		Long: `Show the activities that took longer than a limit, the slowest first, each with where its
time went and which parts grew against the median of the others with its name.

The limit is a quantile of all times of each name, such as p99, or a duration. Those that
the daemon remembers are looked at: the slowest 32 of each name within an hour, and the latest.

With --by, such as --by http.route, each is held against those with the same name and key:
quantile and median are of the latest 256 of the name then.`,
		Example: "  tailcam activities slow\n" +
			"  tailcam activities slow --over 50ms --filter name=checkout\n" +
			"  tailcam activities slow --over p99 --by http.route\n" +
			"  tailcam activities slow --over p99.9 -o json | jq -r .verdict",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			over, err := ask.ParseOver(limit)
			if err != nil {
				return usagef("--over: %w", err)
			}
			filter, err := ask.ParseFilter(filters)
			if err != nil {
				return usagef("%w", err)
			}
			if most < 1 {
				return usagef("invalid --count %d: must be a positive number", most)
			}
			info, err := c.client().Activities(cmd.Context(), true)
			if err != nil {
				return err
			}
			if err := checkActivityKeys(info, by, filter); err != nil {
				return err
			}
			list := ask.FindSlow(info, over, filter, by)
			list = list[:min(len(list), most)]
			if c.wantsData() {
				return printList(c, list)
			}
			c.printSlow(list, limit)
			return nil
		},
	}
	cmd.Flags().StringVar(&limit, "over", limit, "show those above this `limit`: a quantile of their name, such as p99, or a duration")
	addActivityKey(cmd, &by, "compare those with the same name and `key`: ")
	cmd.Flags().IntVarP(&most, "count", "n", most, "maximum `number` of activities")
	addActivityFilter(cmd, &filters)
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addSocket(cmd)
	return cmd
}

func (c *cli) printSlow(list []ask.Slow, limit string) {
	if len(list) == 0 {
		c.out.Printf("no activity above %s is remembered\n", term.Clean(limit))
		return
	}
	for i := range list {
		s := &list[i]
		if i > 0 {
			c.out.Printf("\n")
		}
		c.out.Printf("%s\n", c.out.Paint(term.Bold, term.Clean(s.Verdict)))
		c.out.Printf("    %s\n    %s\n", c.out.Paint(term.Dim, activityWho(&s.Activity)), term.Clean(s.Account))
		c.printDifferences(s.Grew, "MEDIAN", "THIS")
	}
}

// activityWho says which activity it is, and whose.
func activityWho(a *api.ActivityInfo) string {
	words := []string{"token " + term.Clean(a.ID)}
	if a.Text != "" {
		words = append(words, fmt.Sprintf("%q", term.Clean(a.Text)))
	}
	if a.Value != 0 {
		words = append(words, fmt.Sprintf("value %d", a.Value))
	}
	words = append(words, fmt.Sprintf("%s[%d]", term.Clean(a.Comm), a.PID))
	for _, where := range []string{a.Unit, a.Container, a.Pod} {
		if where != "" {
			words = append(words, term.Clean(where))
		}
	}
	if a.TraceID != "" {
		words = append(words, "trace "+term.Clean(a.TraceID))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Attributes)) {
		words = append(words, term.Clean(name)+" "+term.Clean(a.Attributes[name]))
	}
	return strings.Join(append(words, "begun "+term.Time(a.Begun)), ", ")
}

// printDifferences prints the values that differ.
func (c *cli) printDifferences(list []breakdown.Difference, a, b string) {
	t := term.NewTable(term.Column{Title: "VALUE"}, right(a), right(b), right("DIFFERENCE"), term.Column{})
	for i := range list {
		d := &list[i]
		style, note := term.Plain, ""
		if breakdown.IsPart(d.Value) {
			note = breakdown.PartWords(d.Value)
			if i == 0 {
				style = term.Bold
			}
		}
		sign := "+"
		if d.Delta() < 0 {
			sign = ""
		}
		t.Cells(term.Cell{Text: term.Clean(d.Value), Style: term.Cyan}, plain(valueText(d.Value, int64(d.A))), plain(valueText(d.Value, int64(d.B))),
			term.Cell{Text: sign + valueText(d.Value, d.Delta()), Style: style}, term.Cell{Text: note, Style: term.Dim})
	}
	t.Print(c.out, "    ")
}

// valueText writes a value in its unit.
func valueText(name string, n int64) string {
	switch {
	case strings.HasSuffix(name, "_ns"):
		return term.Duration(n)
	case strings.Contains(name, "bytes") && n < 0:
		return "-" + term.Bytes(uint64(-n))
	case strings.Contains(name, "bytes"):
		return term.Bytes(uint64(n))
	case n < 0:
		return "-" + term.Count(uint64(-n))
	}
	return term.Count(uint64(n))
}

func newActivitiesDiff(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two activities: which parts of their time and which counts differ",
		Long: `Compare the accounts of two activities. Each is named by its token, as "tailcam activities
--by token" and outliers show it, or by its trace id: of several activities of a trace, the
longest one is taken. Both must be live, or be among those that the daemon remembers.`,
		Example: "  tailcam activities diff 7.300.41 7.301.17\n" +
			"  tailcam activities diff 4bf92f3577b34da6a3ce929d0e0e4736 7.301.17 -o yaml",
		Args: exactArgs("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := c.client().Activities(cmd.Context(), true)
			if err != nil {
				return err
			}
			a, err := ask.Find(info, args[0])
			if err != nil {
				return err
			}
			b, err := ask.Find(info, args[1])
			if err != nil {
				return err
			}
			d := ask.Compare(a, b)
			if c.wantsData() {
				return c.printData(d)
			}
			c.printComparison(d)
			return nil
		},
		ValidArgsFunction: c.completeTokens,
	}
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addSocket(cmd)
	return cmd
}

func (c *cli) printComparison(d *ask.Comparison) {
	for _, side := range []struct {
		letter, words string
		a             *api.ActivityInfo
	}{{"A", d.AccountA, &d.A}, {"B", d.AccountB, &d.B}} {
		c.out.Printf("%s  %s\n   %s\n", c.out.Paint(term.Bold, side.letter), term.Clean(side.words), c.out.Paint(term.Dim, activityWho(side.a)))
	}
	c.out.Printf("\n")
	if len(d.Values) == 0 {
		c.out.Printf("no value differs\n")
		return
	}
	c.printDifferences(d.Values, "A", "B")
}

// completeTokens lists the tokens that the daemon remembers.
func (c *cli) completeTokens(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	info, err := c.client().Activities(cmd.Context(), true)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for i := range info.Ended {
		a := &info.Ended[i]
		out = append(out, fmt.Sprintf("%s\t%s %s", a.ID, term.Clean(a.Name), term.Duration(a.ElapsedNS)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
