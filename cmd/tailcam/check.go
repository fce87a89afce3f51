package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
)

func newCheck(c *cli) *cobra.Command {
	var load, diff bool
	cmd := &cobra.Command{
		Use:   "check [PATH…]",
		Short: "Validate the configuration and rule files (with --load, also on this kernel)",
		Long: `Validate what the daemon would read: its configuration and all rule files that it names; or
only the given rule files and directories of rule files. Each error is one line on standard
error: file:line:column, what is wrong, what is allowed. With --load, lines that begin with
"inactive:" name syscall rules that this kernel cannot serve without slowing down every system call.

With --diff, ask the running daemon what a reload would change, and what it would refuse.

Exit status: 0 all files are valid, 1 otherwise.`,
		Example: "  tailcam check\n  tailcam check --diff\n  tailcam check /etc/tailcam/rules.d\n  sudo tailcam check --load my-rule.yaml",
		RunE: func(cmd *cobra.Command, paths []string) error {
			if diff {
				return c.reloadDiff(cmd.Context(), paths)
			}
			return c.check(cmd.Context(), cmd.Flags(), paths, load)
		},
	}
	cmd.Flags().BoolVar(&load, "load", false, "also load and attach the rules on this kernel (needs root)")
	cmd.Flags().BoolVar(&diff, "diff", false, "show what a reload of the running daemon would change")
	config.AddFileFlag(cmd.Flags())
	c.addSocket(cmd)
	cmd.MarkFlagsMutuallyExclusive("diff", "load")
	cmd.MarkFlagsMutuallyExclusive("diff", "config")
	return cmd
}

func (c *cli) check(ctx context.Context, flags *pflag.FlagSet, paths []string, load bool) error {
	if len(paths) > 0 && flags.Changed("config") {
		return errors.New("check: either --config, or paths of rule files")
	}
	if len(paths) == 0 {
		cfg, err := config.Load(flags)
		if err != nil {
			c.printErrorLines(err)
			return errReported
		}
		paths = cfg.Rules
	}
	list, err := c.deps.loadRules(paths)
	if err != nil {
		// Each line begins with its position, even a single one.
		c.printErrorLines(err)
		return errReported
	}
	var notes []string
	if load {
		if notes, err = c.checkLoad(ctx, list); err != nil {
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
	for _, note := range notes {
		c.out.Printf("%s %s\n", c.out.Paint(term.Yellow, "inactive:"), term.Clean(note))
	}
	c.out.Printf("%s %s%s\n", c.out.Paint(term.Green, "ok:"), plural(len(list), "rule"), done)
	return nil
}

func (c *cli) checkLoad(ctx context.Context, list []rules.Rule) ([]string, error) {
	if _, err := checkPrivileges(); err != nil {
		return nil, fmt.Errorf("check --load: %w", err)
	}
	progress := c.err.Progress("loading rules into the kernel")
	defer progress.Done()
	return c.deps.checkLoad(ctx, list)
}
