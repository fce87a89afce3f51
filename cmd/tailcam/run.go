package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/logs"
	"github.com/tailcam/tailcam/rules"
)

// memoryLimit is the soft limit of the daemon's heap in bytes; GOMEMLIMIT
// overrides it.
const memoryLimit = 200 << 20

func newRun(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon in the foreground (needs root)",
		Long: `Run the daemon in the foreground until SIGINT or SIGTERM.

It needs root, or at least CAP_BPF and CAP_PERFMON. Without CAP_SYSLOG, kernel
stacks are addresses; without CAP_IPC_LOCK, the recorder is limited to less than
4 MiB per CPU; without CAP_SYS_PTRACE, user stacks of other users are not resolved.

Each outlier is a line on standard output, with its verdict; all else is logged on
standard error. Both are JSON, or fields of the systemd journal if started by it.

Under systemd (Type=notify), it says when all rules are attached and, in the status
line, what it does. With WatchdogSec=, it is restarted if a part of it hangs; one that
waits for a disk does not count.

SIGHUP reloads the configuration and the rules (see tailcam reload). The heap is
limited to 200 MiB where possible; GOMEMLIMIT overrides this limit.`,
		Example: "  sudo tailcam run\n" +
			"  sudo tailcam run --config configs/tailcam.yaml --rules configs/rules.d --log-format console",
		Args: moreRules,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.Flags())
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}

// moreRules accepts arguments only after --rules, so that the shell may expand
// `--rules rules.d/*.yaml`.
func moreRules(cmd *cobra.Command, args []string) error {
	flag := cmd.Flags().Lookup("rules")
	list, ok := flag.Value.(pflag.SliceValue)
	if !ok || !flag.Changed {
		return noArgs(cmd, args)
	}
	for _, path := range args {
		if err := list.Append(path); err != nil {
			return fmt.Errorf("--rules %s: %w", path, err)
		}
	}
	return nil
}

func (c *cli) run(ctx context.Context, flags *pflag.FlagSet) error {
	var keen error
	if c.deps.relaxTimers != nil {
		keen = c.deps.relaxTimers() // first: the rest is done again
	}
	cfg, err := config.Load(flags)
	if err != nil {
		return configError(err)
	}
	cfg.Self = "/proc/self/exe"
	cfg.Again = func() (config.Config, error) { return config.Load(flags) }
	without, err := checkPrivileges()
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	l, err := c.openLogs(&cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	log := l.Daemon
	limited, err := checkResources()
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	for _, l := range limited {
		log.Warn("resource limit is low", zap.String("advice", l))
	}
	if keen != nil {
		log.Warn("timers are as precise as usual, which costs CPU time while there are many outliers", zap.Error(keen))
	}
	for _, w := range without {
		log.Warn("missing capability", zap.String("without", w))
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	err = adviseDescriptors(c.deps.daemon(ctx, &cfg, l))
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil // stopped by a signal
	}
	return err
}

// configError makes an error in nothing but flags a usage error.
func configError(err error) error {
	var all rules.Errors
	inFile := func(e rules.Error) bool { return !strings.HasPrefix(e.Pos.File, "--") }
	if errors.As(err, &all) && !slices.ContainsFunc(all, inFile) {
		return usagef("%w", err)
	}
	return err
}

// openLogs opens the daemon's logs on the standard streams. If nobody reads them any
// more, the daemon continues.
func (c *cli) openLogs(cfg *config.Config) (*logs.Logs, error) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // not Ignore: actions would inherit that
	out, errOut := logs.Stream{Writer: c.out.Unwrap()}, logs.Stream{Writer: c.err.Unwrap()}
	var bad [2]error
	out.Journal, bad[0] = journal.StdoutIsJournalStream()
	errOut.Journal, bad[1] = journal.StderrIsJournalStream()
	l, err := logs.Open(&logs.Options{
		Format: cfg.Log.Format, Level: cfg.Log.Level, Color: c.err.Color(), Out: out, Err: errOut,
	})
	if err == nil && errors.Join(bad[:]...) != nil {
		l.Daemon.Warn("cannot tell whether the log is the journal's", zap.Errors("errors", bad[:]))
	}
	return l, err
}
