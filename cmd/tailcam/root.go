package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
)

// Exit statuses.
const (
	exitOK      = 0
	exitError   = 1
	exitTimeout = 2 // nothing came in time
)

// errTimeout ends a verb with exitTimeout.
var errTimeout = errors.New("nothing came in time")

// errReported ends a verb with exitError; the reason has been printed.
var errReported = errors.New("already told")

// cli is what the verbs share.
type cli struct {
	out, err *term.Console
	deps     deps
	socket   string
	output   outputFormat
	dir      string // of snapshots; "": not named
	demoDir  string // demo only
}

func newCLI(stdout, stderr io.Writer, deps deps) *cli {
	return &cli{out: term.New(stdout, nil), err: term.New(stderr, nil), deps: deps}
}

// execute runs one command line and returns its exit status.
func execute(ctx context.Context, c *cli, args []string) int {
	root := newRoot(c)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil && c.out.Err() != nil {
		err = fmt.Errorf("write output: %w", c.out.Err())
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errTimeout):
		c.printError(err)
		return exitTimeout
	case !errors.Is(err, errReported):
		c.printError(err)
	}
	return exitError
}

// printError prints an error.
func (c *cli) printError(err error) {
	var mistakes rules.Errors
	if errors.As(err, &mistakes) || strings.Contains(err.Error(), "\n") {
		c.printErrorLines(err)
		return
	}
	text := strings.TrimPrefix(err.Error(), "tailcam ") // it is said already
	c.err.Printf("%s %s\n", c.err.Paint(term.Red, "tailcam:"), term.Clean(text))
}

// printErrorLines prints mistakes in files. Each line begins with its place, so that editors find it.
func (c *cli) printErrorLines(err error) {
	for line := range strings.Lines(err.Error()) {
		c.err.Printf("%s\n", term.Clean(strings.TrimRight(line, "\n")))
	}
}

func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "tailcam",
		Short: "A dashcam for Linux tail latency",
		Long: `tailcam watches every wake-up, sleep, system call and block request of this
machine in the kernel, notices the few that took too long, and saves the seconds
before each one from an always-running flight recorder.

Exit status: 0 ok, 1 error, 2 nothing came in time (wait).`,
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: see %q", err, cmd.CommandPath()+" --help")
	})
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run it:"}, &cobra.Group{ID: "ask", Title: "Ask the daemon:"},
		&cobra.Group{ID: "look", Title: "Look at what was caught, with or without the daemon:"},
		&cobra.Group{ID: "say", Title: "Tell what you do:"},
		&cobra.Group{ID: "change", Title: "Change its rules while it runs:"})
	group := func(id string, verbs ...*cobra.Command) {
		for _, verb := range verbs {
			verb.GroupID = id
			if verb.Name() != "check" && verb.ValidArgsFunction == nil { // check takes files
				verb.ValidArgsFunction = cobra.NoFileCompletions
			}
		}
		root.AddCommand(verbs...)
	}
	group("run", newDemo(c), newCheck(c), newRun(c))
	group("ask", newStatus(c), newEvents(c), newWait(c), newSnapshot(c), newHistogram(c), newList(c))
	group("look", newExplain(c), newTop(c), newDiff(c), newSnapshots(c), newExport(c))
	group("change", newThreshold(c), newPause(c), newResume(c))
	group("say", newBegin(c), newEnd(c))
	group("", newVersion(c))
	return root
}

// unknownCommand says what may have been meant.
func unknownCommand(cmd *cobra.Command, verb string) error {
	meant := ""
	cmd.SuggestionsMinimumDistance = 2 // typing mistakes
	if near := cmd.SuggestionsFor(verb); len(near) > 0 {
		meant = fmt.Sprintf("did you mean %q? ", near[0])
	}
	return fmt.Errorf("unknown verb %q: %ssee %q", verb, meant, cmd.CommandPath()+" --help")
}

// noArgs refuses arguments with a line that helps.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q takes no arguments, but got %q: see %q", cmd.CommandPath(), args[0], cmd.CommandPath()+" --help")
	}
	return nil
}

// addSocket adds the flag of every verb that asks the daemon.
func (c *cli) addSocket(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.socket, "socket", api.DefaultSocket, "the daemon's `path`")
}

// client returns a client of the daemon that the flags name.
func (c *cli) client() *api.Client { return api.NewClient(c.socket) }

// addRule adds the flag that picks one rule; the shell completes it from the daemon's rules.
func (c *cli) addRule(cmd *cobra.Command, rule *string) {
	cmd.Flags().StringVar(rule, "rule", "", "only outliers of this rule")
	// The only error is that of a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("rule", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.ruleNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	})
}

// ruleNames are those of the daemon's rules, for the shell; none if it cannot be asked.
func (c *cli) ruleNames(ctx context.Context) []string {
	rules, err := c.client().Rules(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for i := range rules {
		names = append(names, rules[i].Name)
	}
	return names
}
