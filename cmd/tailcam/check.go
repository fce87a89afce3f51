package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
)

func newCheck(c *cli) *cobra.Command {
	var load bool
	cmd := &cobra.Command{
		Use:   "check PATH…",
		Short: "Validate rule files (with --load, also on this kernel)",
		Long: `Validate rule files and directories of rule files. Each error is one line on standard
error: file:line:column, what is wrong, what is allowed.

Exit status: 0 all rules are valid, 1 otherwise.`,
		Example: "  tailcam check /etc/tailcam/rules.d\n  sudo tailcam check --load my-rule.yaml",
		RunE: func(cmd *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				return fmt.Errorf("missing argument: PATH: %s", seeHelp(cmd))
			}
			return c.check(cmd.Context(), paths, load)
		},
	}
	cmd.Flags().BoolVar(&load, "load", false, "also load and attach the rules on this kernel (needs root)")
	return cmd
}

func (c *cli) check(ctx context.Context, paths []string, load bool) error {
	list, err := c.deps.loadRules(paths)
	if err != nil {
		// Each line begins with its position, even a single one.
		c.printErrorLines(err)
		return errReported
	}
	if load {
		if err := c.checkLoad(ctx, list); err != nil {
			return err
		}
	}
	t := term.NewTable(term.Column{Title: "RULE"}, term.Column{Title: "TRACK"}, right("THRESHOLD"),
		term.Column{Title: "FILE"})
	for i := range list {
		r := &list[i]
		t.Cells(term.Cell{Text: term.Clean(r.Name), Style: term.Cyan}, plain(string(r.Track)),
			plain(configured(r)), plain(term.Clean(fmt.Sprintf("%s:%d", r.Pos.File, r.Pos.Line))))
		if r.Pair == nil {
			continue
		}
		for _, side := range []struct {
			name  string
			hooks []rules.Hook
		}{{"entry", r.Pair.Entry}, {"exit", r.Pair.Exit}, {"cancel", r.Pair.Cancel}} {
			for _, h := range side.hooks {
				t.Cells(term.Cell{}, term.Cell{Text: side.name, Style: term.Dim}, term.Cell{},
					term.Cell{Text: term.Clean(h.Text), Style: term.Dim})
			}
		}
	}
	t.Print(c.out, "")
	done := ""
	if load {
		done = ", loaded and attached on this kernel, then detached"
	}
	c.out.Printf("%s %s%s\n", c.out.Paint(term.Green, "ok:"), plural(len(list), "rule"), done)
	return nil
}

func (c *cli) checkLoad(ctx context.Context, list []rules.Rule) error {
	if _, err := checkPrivileges(); err != nil {
		return fmt.Errorf("check --load: %w", err)
	}
	progress := c.err.Progress("loading rules into the kernel")
	defer progress.Done()
	return c.deps.checkLoad(ctx, list)
}
