package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/tracker"
)

func newList(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List rules, probes, events, accounts or snapshots",
		Long: `List the daemon's rules, the kernel hooks that tailcam uses, the events that its recorder can
record, what accounts of activities hold, or the snapshots on disk. An empty list is no error.`,
		Example: "  tailcam list rules\n" +
			"  sudo tailcam list events",
		Args: cobra.ArbitraryArgs,
		RunE: runSubcommand("rules, probes, events, accounts or snapshots"),
	}
	add := func(name, short, long string, daemon bool, run func(context.Context) error) {
		example := fmt.Sprintf("  tailcam list %[1]s\n  tailcam list %[1]s -o yaml", name)
		sub := &cobra.Command{Use: name, Short: short, Long: long, Example: example, Args: noArgs}
		sub.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) }
		c.addOutput(sub)
		c.addPager(sub)
		if daemon {
			c.addSocket(sub)
		}
		cmd.AddCommand(sub)
	}
	add("rules", "List the daemon's rules",
		`List the rules that the daemon runs with, each with its current threshold and the line of the
file that it comes from. The last column says what keeps a rule from firing, such as a pause.`,
		true, c.listRules)
	add("probes", "List the kernel hooks that tailcam uses, and whether this kernel has them",
		`List the kernel hooks that trackers and the recorder use, whether this kernel has each of
them, and if not, why. Only hooks that a rule or the recorder needs are attached.`,
		false, c.listProbes)
	cmd.AddCommand(newSnapshotsList(c, "snapshots"))
	cmd.AddCommand(newListEvents(c))
	cmd.AddCommand(newListAccounts(c))
	return cmd
}

func (c *cli) listRules(ctx context.Context) error {
	rules, err := c.client().Rules(ctx)
	if err != nil {
		return err
	}
	if c.wantsData() {
		return printList(c, rules)
	}
	t := term.NewTable(term.Column{Title: "RULE"}, term.Column{Title: "TRACK"}, right("THRESHOLD"),
		term.Column{Title: "FILE"}, term.Column{})
	for i := range rules {
		r := &rules[i]
		t.Cells(term.Cell{Text: term.Clean(r.Name), Style: term.Cyan}, plain(term.Clean(r.Track)),
			thresholdCell(r), plain(term.Clean(r.Source)), ruleNote(r))
	}
	t.Print(c.out, "")
	return nil
}

func (c *cli) listProbes(context.Context) error {
	probes, err := c.deps.probes()
	if err != nil {
		return err
	}
	if c.wantsData() {
		return printList(c, probes)
	}
	t := term.NewTable(term.Column{Title: "HOOK"}, term.Column{Title: "AVAILABLE"}, term.Column{Title: "USED BY"},
		term.Column{})
	for _, p := range probes {
		available := term.Cell{Text: "yes", Style: term.Green}
		if !p.Available {
			available = term.Cell{Text: "no", Style: term.Yellow}
		}
		t.Cells(plain(p.Name), available, plain(usedBy(&p)), plain(term.Clean(p.Reason)))
	}
	t.Print(c.out, "")
	return nil
}

// usedBy lists the trackers that need a hook, and the recorder.
func usedBy(p *tracker.Probe) string {
	var users []string
	for _, t := range p.Trackers {
		users = append(users, string(t))
	}
	if len(p.Groups) > 0 {
		users = append(users, "recorder")
	}
	return strings.Join(users, ", ")
}
