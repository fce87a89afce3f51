package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/config"
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

SIGHUP reloads the rules. The heap is limited to 200 MiB where possible;
GOMEMLIMIT overrides this limit.`,
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
	cfg, err := config.Load(flags)
	if err != nil {
		return err
	}
	cfg.Self = "/proc/self/exe"
	without, err := checkPrivileges()
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	log, err := newLogger(c.err, cfg.Log.Format, cfg.Log.Level, c.err.Color())
	if err != nil {
		return err
	}
	limited, err := checkResources()
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	for _, l := range limited {
		log.Warn("resource limit is low", zap.String("advice", l))
	}
	for _, w := range without {
		log.Warn("missing capability", zap.String("without", w))
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	err = adviseDescriptors(c.deps.daemon(ctx, &cfg, log))
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil // stopped by a signal
	}
	return err
}
