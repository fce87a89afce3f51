package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/pager"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
)

// cli is what the commands share.
type cli struct {
	out, err *term.Console
	deps     deps
	socket   string
	output   outputFormat
	color    string // of --color
	noPager  bool
	pager    *pager.Writer // nil: none
	parsed   bool          // the command line is right as far as flags and number of arguments go
	dir      string        // of snapshots; "": not set
	demoDir  string        // demo only

	temporary []string // directories to remove at the end
}

func newCLI(stdout, stderr io.Writer, deps deps) *cli {
	return &cli{out: term.New(stdout, nil), err: term.New(stderr, nil), deps: deps}
}

// execute runs one command line and returns its exit status.
func execute(ctx context.Context, c *cli, args []string) int {
	defer c.removeTemporary()
	root := newRoot(c)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if closed := c.closePager(); err == nil {
		err = closed
	}
	if err != nil && !c.parsed {
		err = usagef("%w", err)
	}
	if err == nil && c.out.Err() != nil {
		err = fmt.Errorf("write output: %w", c.out.Err())
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil && !errors.Is(err, errReported) {
		c.printError(err)
	}
	return exitStatus(err)
}

// printError prints an error.
func (c *cli) printError(err error) {
	var mistakes rules.Errors
	if errors.As(err, &mistakes) || strings.Contains(err.Error(), "\n") {
		c.printErrorLines(err)
		return
	}
	c.err.Printf("%s %s\n", c.err.Paint(term.Red, "tailcam:"), term.Clean(err.Error()))
}

// printErrorLines prints errors in files. Each line begins with its position, so that editors find it.
func (c *cli) printErrorLines(err error) {
	for line := range strings.Lines(err.Error()) {
		c.err.Printf("%s\n", term.Clean(strings.TrimRight(line, "\n")))
	}
}

func newRoot(c *cli) *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:   "tailcam",
		Short: "A dashcam for Linux tail latency",
		Long: `tailcam watches every wake-up, sleep, system call and block request of this
machine in the kernel, finds the few that took too long, and saves the seconds
before each one from an always-on flight recorder.

Exit status: 0 done, 1 failed; what to change is on standard error, 2 usage error: an unknown
command or flag, a wrong argument or a malformed value; nothing was done, 3 nothing came: "wait"
timed out, or there is no snapshot yet to explain, show, export or compare; of "record": rules
fired.`,
		Example: "  sudo tailcam demo              # one latency of each kind, caught and explained\n" +
			"  sudo systemctl start tailcam   # watch, with the shipped rules and yours\n" +
			"  tailcam status                 # what it has seen, and what it costs\n" +
			"  tailcam events -f              # outliers as they come\n" +
			"  tailcam top                    # who caused most of the slow time\n" +
			"  tailcam snapshots show         # the newest one, with its verdict",
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			// cobra checks these later; what it finds is a usage error as well.
			if err := errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
				return fmt.Errorf("%w: %s", err, seeHelp(cmd))
			}
			c.parsed = true
			c.withPager(cmd)
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return unknownCommand(cmd, args[0])
			case version:
				return c.printVersion()
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print the version")
	c.addColor(root)
	root.PersistentFlags().BoolVar(&c.noPager, "no-pager", false,
		"do not show text that is longer than the terminal with PAGER, or less")
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %s", err, seeHelp(cmd))
	})
	group := func(title string, commands ...*cobra.Command) {
		if title != "" {
			root.AddGroup(&cobra.Group{ID: title, Title: title})
		}
		for _, cmd := range commands {
			cmd.GroupID = title
			if cmd.Name() != "check" && cmd.Name() != "record" && cmd.ValidArgsFunction == nil { // these take files
				cmd.ValidArgsFunction = cobra.NoFileCompletions
			}
		}
		root.AddCommand(commands...)
	}
	group("Basic commands:", newDemo(c), newCheck(c), newRun(c), newRecord(c))
	group("Monitoring commands:", newStatus(c), newEvents(c), newWait(c), newSnapshot(c), newHistogram(c), newActivities(c), newCache(c), newList(c))
	group("Analysis commands (no daemon needed):", newExplain(c), newTop(c), newDiff(c), newSnapshots(c), newExport(c))
	group("Runtime settings:", newThreshold(c), newPause(c), newResume(c), newReload(c))
	group("Span commands:", newBegin(c), newEnd(c))
	group("Troubleshooting commands:", newDoctor(c), newBugtool(c), newUninstallCheck(c))
	group("", newVersion(c), newMan())
	root.SetGlobalNormalizationFunc(canonicalFlag)
	return root
}

// unknownCommand suggests the nearest command.
func unknownCommand(cmd *cobra.Command, name string) error {
	suggestion := ""
	cmd.SuggestionsMinimumDistance = 2 // typing mistakes
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		suggestion = fmt.Sprintf("did you mean %q? ", near[0])
	}
	return usagef("unknown command %q: %s%s", name, suggestion, seeHelp(cmd))
}

func seeHelp(cmd *cobra.Command) string { return fmt.Sprintf("see %q", cmd.CommandPath()+" --help") }

// runSubcommand rejects a command line that names none of a command's subcommands.
func runSubcommand(names string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return usagef("missing command: %s: %s", names, seeHelp(cmd))
	}
}

// noArgs rejects arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q takes no arguments, got %q: %s", cmd.CommandPath(), args[0], seeHelp(cmd))
	}
	return nil
}

// maxArgs rejects more than n arguments.
func maxArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return fmt.Errorf("%q takes at most %s, got %d: %s", cmd.CommandPath(), plural(n, "argument"), len(args),
				seeHelp(cmd))
		}
		return nil
	}
}

// exactArgs requires one argument for each name.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("missing argument: %s: %s", names[len(args)], seeHelp(cmd))
		case len(args) > len(names):
			return fmt.Errorf("%q takes %s, got %d: %s", cmd.CommandPath(), plural(len(names), "argument"), len(args),
				seeHelp(cmd))
		}
		return nil
	}
}

// socketEnv and socketFlag name the daemon's socket, for the daemon and its clients.
const (
	socketEnv  = "TAILCAM_SOCKET_PATH"
	socketFlag = "socket-path"
)

// canonicalFlag maps the earlier names of flags, which every command still takes, to those of the
// configuration's keys. Help and completion have the latter only.
func canonicalFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "socket":
		name = socketFlag
	case "dir":
		name = dirFlag
	}
	return pflag.NormalizedName(name)
}

// addSocket adds the flag of every command that queries the daemon.
func (c *cli) addSocket(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.socket, socketFlag, api.DefaultSocket, "`path` of the daemon's socket; also "+socketEnv)
	c.socket = cmp.Or(os.Getenv(socketEnv), c.socket) // until the flag is parsed
}

// client returns a client of the daemon that the flags name.
func (c *cli) client() *api.Client { return api.NewClient(c.socket) }

// addRule adds the flag that selects one rule; the shell completes it from the daemon's rules.
func (c *cli) addRule(cmd *cobra.Command, rule *string) {
	cmd.Flags().StringVar(rule, "rule", "", "show only outliers of this `rule`")
	// The only error is that of a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("rule",
		func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return c.ruleNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
		})
}

// ruleNames lists the daemon's rules for completion; none if it is not reachable.
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
