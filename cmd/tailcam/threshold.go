package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/overrides"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
)

func newThreshold(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "threshold",
		Short: "Set, list and clear runtime thresholds",
		Long: `Set, list and clear thresholds while the daemon runs. They take precedence over those of rule
files, and end when cleared, after --for, or when the daemon stops.`,
		Example: "  tailcam threshold set wakeup --when pid=1234 2ms --for 10m\n" +
			"  tailcam threshold list\n" +
			"  tailcam threshold clear wakeup",
		Args: cobra.ArbitraryArgs,
		RunE: runSubcommand("set, list or clear"),
	}
	cmd.AddCommand(newThresholdSet(c), newThresholdList(c), newThresholdClear(c))
	return cmd
}

func newThresholdSet(c *cli) *cobra.Command {
	var when []string
	var length, timeout ageValue
	req := &api.ThresholdRequest{}
	cmd := &cobra.Command{
		Use:   "set RULE [THRESHOLD]",
		Short: "Set a rule's threshold or timeout at run time",
		Long: `Set the threshold, the timeout or both of a rule while the daemon runs. They take
effect immediately, without missing an event. They are not written to a file: they
end when cleared, after --for, or when the daemon stops. A reload (SIGHUP) keeps
them.

With --when, they apply to work that meets all the conditions, which are those of
rule files, and take precedence over the rule's overrides; if several match, the
newest wins. Without --when, they replace the rule's own limits.`,
		Example: `  tailcam threshold set wakeup --when pid=1234 2ms --for 10m
  tailcam threshold set disk --when device=sda --when op=read,write 5ms --timeout 1s`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactArgs("RULE")(cmd, args)
			}
			return maxArgs(2)(cmd, args)
		},
		ValidArgsFunction: c.completeFirstRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if req.When, err = conditions(when); err != nil {
				return err
			}
			req.Rule = args[0]
			if len(args) == 2 {
				req.Threshold = args[1]
			}
			if _, err := time.ParseDuration(cmp.Or(req.Threshold, "0")); err != nil {
				return usagef("invalid THRESHOLD %q: must be a duration such as 2ms", req.Threshold)
			}
			req.For, req.Timeout = length.text(), timeout.text()
			info, err := c.client().SetThreshold(cmd.Context(), req)
			if err != nil {
				return err
			}
			if c.wantsData() {
				return c.printData(info)
			}
			c.printThresholds([]api.ThresholdInfo{*info})
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&when, "when", nil, "condition `KEY=VALUE[,VALUE...]`; repeat for more")
	cmd.Flags().Var(&timeout, "timeout", "report work that is still pending after this `duration`")
	cmd.Flags().Var(&length, "for", "keep it for this `duration` (default: until cleared)")
	_ = cmd.RegisterFlagCompletionFunc("when", c.completeWhen)
	c.addOutput(cmd)
	c.addSocket(cmd)
	return cmd
}

// conditions parses KEY=VALUE[,VALUE...]; values of a repeated key add up.
func conditions(list []string) (map[string][]string, error) {
	when := map[string][]string{}
	for _, s := range list {
		key, values, ok := strings.Cut(s, "=")
		if !ok || key == "" || values == "" {
			return nil, usagef("invalid --when %q: must be a condition such as pid=1234 or comm=postgres,redis*", s)
		}
		when[key] = append(when[key], strings.Split(values, ",")...)
	}
	return when, nil
}

func newThresholdList(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runtime thresholds, newest first",
		Long: `List the thresholds that were set while the daemon runs, the newest first: of several that
match, it wins. BY is who set it; LEFT is how long it still holds.`,
		Example: "  tailcam threshold list\n  tailcam threshold list -o json | jq -r .rule",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := c.client().Thresholds(cmd.Context())
			if err != nil {
				return err
			}
			if c.wantsData() {
				return printList(c, list)
			}
			if len(list) == 0 {
				c.err.Printf("no runtime thresholds: all rules run as in their files\n")
				return nil
			}
			c.printThresholds(list)
			return nil
		},
	}
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addSocket(cmd)
	return cmd
}

func newThresholdClear(c *cli) *cobra.Command {
	var all, ratchet bool
	cmd := &cobra.Command{
		Use:   "clear RULE [ID] | RULE --ratchet | --all",
		Short: "Clear runtime thresholds",
		Long: `Clear runtime thresholds: one by its id (see tailcam threshold list), all of a rule,
or with --all those of all rules. With --ratchet, reset the rule's ratchet instead.`,
		Example:           "  tailcam threshold clear wakeup 3\n  tailcam threshold clear --all",
		ValidArgsFunction: c.completeFirstRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := 0
			switch {
			case all == (len(args) > 0), len(args) > 2, ratchet && len(args) != 1:
				return usagef("specify one of RULE, RULE ID, RULE --ratchet, --all: %s", seeHelp(cmd))
			case len(args) == 2:
				var err error
				if id, err = strconv.Atoi(args[1]); err != nil || id <= 0 {
					return usagef("invalid id %q: see \"tailcam threshold list\"", args[1])
				}
			}
			return c.clear(cmd.Context(), strings.Join(args[:min(len(args), 1)], ""), id, ratchet)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "clear the thresholds of all rules")
	cmd.Flags().BoolVar(&ratchet, "ratchet", false, "reset the rule's ratchet")
	c.addOutput(cmd)
	c.addSocket(cmd)
	return cmd
}

func (c *cli) clear(ctx context.Context, rule string, id int, ratchet bool) error {
	if ratchet {
		return c.client().ResetRatchet(ctx, rule)
	}
	gone, err := c.client().ClearThresholds(ctx, rule, id)
	if err != nil {
		return err
	}
	if c.wantsData() {
		return printList(c, gone)
	}
	c.out.Printf("%d cleared\n", len(gone))
	return nil
}

func (c *cli) printThresholds(list []api.ThresholdInfo) {
	t := term.NewTable(right("ID"), term.Column{Title: "RULE"}, term.Column{Title: "WHEN"}, right("THRESHOLD"),
		right("TIMEOUT"), right("LEFT"), term.Column{Title: "BY"})
	limit := func(ns int64) term.Cell {
		if ns == 0 {
			return term.Cell{Text: "-", Style: term.Dim}
		}
		return plain(term.Setting(ns))
	}
	for i := range list {
		n := &list[i]
		when := term.Cell{Text: "all", Style: term.Dim}
		if len(n.When) > 0 {
			when = plain(term.Clean(overrides.WhenText(n.When)))
		}
		lasts := term.Cell{Text: "-", Style: term.Dim}
		if n.LeftNS > 0 {
			lasts = plain(term.Duration(n.LeftNS))
		}
		t.Cells(plain(strconv.Itoa(n.ID)), term.Cell{Text: term.Clean(n.Rule), Style: term.Cyan}, when,
			limit(n.ThresholdNS), limit(n.TimeoutNS), lasts, plain(term.Clean(n.By)))
	}
	t.Print(c.out, "")
}

// runtimeNotes describes a rule's runtime settings and its ratchet.
func runtimeNotes(r *api.RuleInfo) []string {
	var notes []string
	if r.Paused && r.PausedLeftNS > 0 {
		notes = append(notes, "paused, "+term.Duration(r.PausedLeftNS)+" left")
	} else if r.Paused {
		notes = append(notes, "paused")
	}
	if s := r.Storm; s != nil {
		note := fmt.Sprintf("paused automatically, %s left: %s outliers/s", term.Duration(s.LeftNS), term.Count(s.PerSecond))
		if s.ConsiderNS > 0 {
			note += "; consider threshold " + term.Setting(s.ConsiderNS)
		}
		notes = append(notes, note)
	}
	if r.Shed {
		notes = append(notes, "paused to stay within the budget")
	}
	if r.Set > 0 {
		notes = append(notes, plural(r.Set, "runtime threshold"))
	}
	if r.RatchetNS != nil && *r.RatchetNS == 0 {
		notes = append(notes, "ratchet: no record yet")
	} else if r.RatchetNS != nil {
		notes = append(notes, "ratchet: above "+term.Duration(*r.RatchetNS))
	}
	return notes
}

// completeFirstRule completes the first argument with the daemon's rules.
func (c *cli) completeFirstRule(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.ruleNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
}

// completeWhen completes the key of a condition of the rule given before.
func (c *cli) completeWhen(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if strings.Contains(typed, "=") || len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := c.client().Rules(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var keys []string
	for i := range list {
		if list[i].Name == args[0] {
			for _, key := range rules.WhenKeys(rules.Track(list[i].Track)) {
				keys = append(keys, key+"=")
			}
		}
	}
	return keys, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
