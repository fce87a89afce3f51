package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
only the given rule files and directories of rule files, or - for a rule file on standard input.
Each error is one line on standard error: file:line:column, what is wrong, what is allowed; with
-o json it is in the object. Lines that begin with "warning:" name rules that the configuration lets
do nothing, or less than they say. With --load, lines that begin with "inactive:" name syscall rules
that this kernel cannot serve without slowing down every system call.

With --diff, ask the running daemon what a reload would change, and what it would refuse.

Exit status: 0 all files are valid, 1 some are not, or with --diff are not used.`,
		Example: "  tailcam check\n  tailcam check --diff\n  tailcam check -o json /etc/tailcam/rules.d | jq '.errors[]'\n" +
			"  sudo tailcam check --load my-rule.yaml\n  ssh db1 cat /etc/tailcam/rules.d/db.yaml | tailcam check -",
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
	c.addOutput(cmd)
	c.addSocket(cmd)
	cmd.MarkFlagsMutuallyExclusive("diff", "load")
	cmd.MarkFlagsMutuallyExclusive("diff", "config")
	return cmd
}

// checkOutcome is what `check -o json` prints.
type checkOutcome struct {
	OK       bool          `json:"ok"`
	Errors   []checkError  `json:"errors"`
	Rules    []checkedRule `json:"rules"`    // none if there are errors
	Inactive []string      `json:"inactive"` // with --load: what this kernel cannot serve
	Warnings []string      `json:"warnings"` // what the configuration keeps rules from
}

// checkError is one error in a file.
type checkError struct {
	File    string `json:"file,omitempty"` // or a variable, or a flag; absent: none of these
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
	Allowed string `json:"allowed,omitempty"`
}

// checkedRule is a valid rule.
type checkedRule struct {
	Name        string `json:"name"`
	Track       string `json:"track"`
	ThresholdNS int64  `json:"threshold_ns,omitempty"` // absent: it follows the load, or there is only a timeout
	TimeoutNS   int64  `json:"timeout_ns,omitempty"`
	Source      string `json:"source"` // file:line
}

func (c *cli) check(ctx context.Context, flags *pflag.FlagSet, paths []string, load bool) error {
	switch {
	case len(paths) > 0 && flags.Changed("config"):
		return usagef("check: either --config, or paths of rule files")
	case len(paths) > 1 && slices.Contains(paths, stdinName):
		return usagef("check: either %s, or paths of rule files", stdinName)
	}
	list, err := c.readRules(flags, paths)
	if err != nil {
		return c.printInvalid(err)
	}
	warnings := warnings(flags, list)
	var notes []string
	if load {
		if notes, err = c.checkLoad(ctx, list); err != nil {
			if !c.wantsData() {
				c.printNotes("warning:", warnings)
				c.printNotes("inactive:", notes)
			}
			return err
		}
	}
	if c.wantsData() {
		return c.printData(valid(list, notes, warnings))
	}
	c.printRuleFiles(list)
	c.printNotes("warning:", warnings)
	c.printNotes("inactive:", notes)
	done := ""
	if load {
		done = ", loaded and attached on this kernel, then detached"
	}
	c.out.Printf("%s %s%s\n", c.out.Paint(term.Green, "ok:"), plural(len(list), "rule"), done)
	return nil
}

// printNotes prints a line for each of what does not make files invalid.
func (c *cli) printNotes(what string, notes []string) {
	for _, note := range notes {
		c.out.Printf("%s %s\n", c.out.Paint(term.Yellow, what), term.Clean(note))
	}
}

// warnings tells which rules the configuration of this machine lets do less than they say.
func warnings(flags *pflag.FlagSet, list []rules.Rule) (all []string) {
	cfg, err := config.Load(flags)
	if err == nil && cfg.Activities.Enabled {
		return nil
	}
	for i := range list {
		r := &list[i]
		if lacks := r.WithoutActivities(); lacks != "" {
			all = append(all, fmt.Sprintf("%s:%d: rule %s: %s without activities.enabled: true in tailcam.yaml", r.Pos.File, r.Pos.Line, r.Name, lacks))
		}
	}
	return all
}

// readRules reads the rules at the given paths; without any, those of the configuration.
func (c *cli) readRules(flags *pflag.FlagSet, paths []string) ([]rules.Rule, error) {
	if slices.Contains(paths, stdinName) {
		data, err := c.readStdin(rules.MaxFileBytes)
		if err != nil {
			return nil, err
		}
		return rules.Parse("<stdin>", data, &rules.LocalMachine{})
	}
	if len(paths) == 0 {
		cfg, err := config.Load(flags)
		if err != nil {
			return nil, err
		}
		paths = cfg.Rules
	}
	return c.deps.loadRules(paths)
}

// printInvalid prints why files are not valid. As text, each line begins with its position,
// even a single one.
func (c *cli) printInvalid(err error) error {
	if !c.wantsData() {
		c.printErrorLines(err)
		return errReported
	}
	out := checkOutcome{Errors: []checkError{}, Rules: []checkedRule{}, Inactive: []string{}, Warnings: []string{}}
	var all rules.Errors
	if !errors.As(err, &all) {
		out.Errors = append(out.Errors, checkError{Message: err.Error()})
	}
	for _, e := range all {
		out.Errors = append(out.Errors, checkError{e.Pos.File, e.Pos.Line, e.Pos.Column, e.Msg, e.Allowed})
	}
	if err := c.printData(&out); err != nil {
		return err
	}
	return errReported
}

// valid is the outcome for files without errors.
func valid(list []rules.Rule, notes, warnings []string) *checkOutcome {
	out := &checkOutcome{
		OK: true, Errors: []checkError{}, Rules: []checkedRule{}, Inactive: append([]string{}, notes...), Warnings: append([]string{}, warnings...),
	}
	for i := range list {
		r := &list[i]
		out.Rules = append(out.Rules, checkedRule{
			Name: r.Name, Track: string(r.Track), ThresholdNS: int64(r.Threshold), TimeoutNS: int64(r.Timeout),
			Source: fmt.Sprintf("%s:%d", r.Pos.File, r.Pos.Line),
		})
	}
	return out
}

// printRuleFiles prints a row for each rule, and one for each hook of declared pairs.
func (c *cli) printRuleFiles(list []rules.Rule) {
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
}

func (c *cli) checkLoad(ctx context.Context, list []rules.Rule) ([]string, error) {
	if _, err := checkPrivileges(); err != nil {
		return nil, fmt.Errorf("check --load: %w", err)
	}
	progress := c.err.Progress("loading rules into the kernel")
	defer progress.Done()
	return c.deps.checkLoad(ctx, list)
}
