package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
)

func newReload(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Reload the configuration and the rules of the daemon",
		Long: `Have the daemon read its configuration and rule files again, and apply what has changed.
Nothing is missed meanwhile. What cannot be applied stays as it was, with the reason; the rest is
applied: a file with errors keeps its earlier rules. SIGHUP does the same; "tailcam status" shows
how it ended. "tailcam check --diff" shows what a reload would change.

Exit status: 0 all that the files say is in effect, 1 some of it is not.`,
		Example: "  tailcam check --diff\n  tailcam reload\n  tailcam reload -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.reload(cmd.Context(), false) },
	}
	c.addOutput(cmd)
	c.addSocket(cmd)
	return cmd
}

// reload reloads, or with check shows what a reload would do.
func (c *cli) reload(ctx context.Context, check bool) error {
	out, err := c.client().Reload(ctx, check)
	if err != nil {
		return err
	}
	if c.wantsData() {
		err = c.printData(out)
	} else {
		c.printReload(out)
	}
	if err == nil && !out.OK {
		err = errReported
	}
	return err
}

func (c *cli) printReload(r *api.Reload) {
	for _, e := range r.Errors {
		c.err.Printf("%s\n", term.Clean(e))
	}
	for i := range r.Files {
		f := &r.Files[i]
		for _, e := range f.Errors {
			c.err.Printf("%s\n", term.Clean(e))
		}
		if len(f.Errors) > 0 {
			kept := "it has no earlier rules"
			if f.Outcome == api.ReloadKept {
				kept = "its earlier rules stay: " + strings.Join(f.Rules, ", ")
			}
			c.err.Printf("%s: not used; %s\n", term.Clean(f.File), term.Clean(kept))
		}
	}
	for i := range r.Keys {
		k := &r.Keys[i]
		c.printOutcome(k.Outcome, "key "+k.Key, "", k.Reason)
		c.out.Printf("    %s -> %s\n", term.Clean(k.Before), term.Clean(k.After))
	}
	for i := range r.Rules {
		rule := &r.Rules[i]
		c.printOutcome(rule.Outcome, "rule "+rule.Rule, rule.Source, rule.Reason)
		for _, change := range rule.Changes {
			c.out.Printf("    %s: %s -> %s\n", term.Clean(change.Key), orNone(change.Before), orNone(change.After))
		}
	}
	for _, s := range r.Dropped {
		c.out.Printf("%s %s\n", c.out.Paint(term.Yellow, "dropped:"), term.Clean(s))
	}
	switch {
	case !r.OK && !r.Changed:
		c.out.Printf("%s nothing changed: see the errors\n", c.out.Paint(term.Red, "failed:"))
	case !r.OK:
		c.out.Printf("%s the rest is as before: see the errors\n", c.out.Paint(term.Red, "in part:"))
	case r.Changed && !r.Check:
		c.out.Printf("%s reloaded\n", c.out.Paint(term.Green, "ok:"))
	case r.Changed:
		c.out.Printf("%s all changes apply without a restart\n", c.out.Paint(term.Green, "ok:"))
	default:
		c.out.Printf("%s no changes\n", c.out.Paint(term.Green, "ok:"))
	}
}

func (c *cli) printOutcome(outcome, what, source, reason string) {
	style := term.Green
	if outcome == api.ReloadRefused {
		style = term.Red
	}
	line := c.out.Paint(style, outcome+":") + " " + term.Clean(what)
	if source != "" {
		line += " (" + term.Clean(source) + ")"
	}
	if reason != "" {
		line += ": " + term.Clean(reason)
	}
	c.out.Printf("%s\n", line)
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return term.Clean(value)
}

// printReloadStatus prints how the last reload ended, if not all of it was applied.
func (c *cli) printReloadStatus(r *api.Reload) {
	if r == nil {
		return
	}
	outcome := c.out.Paint(term.Green, "ok")
	if !r.OK {
		outcome = c.out.Paint(term.Red, "not all is in effect")
	}
	c.out.Printf("\n%s %s: %s\n", c.out.Paint(term.Bold, "last reload"), r.Time.Format("2006-01-02T15:04:05Z"), outcome)
	if !r.OK {
		c.printReload(r)
	}
}

// reloadDiff is check --diff.
func (c *cli) reloadDiff(ctx context.Context, paths []string) error {
	if len(paths) > 0 {
		return usagef("check --diff takes no paths: the daemon reads its own files")
	}
	return c.reload(ctx, true)
}
