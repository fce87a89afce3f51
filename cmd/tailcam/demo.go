package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/demo"
)

func newDemo(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Inject one latency of each kind and show what is caught (needs root)",
		Long: `Inject one real latency of each kind on this machine, with known start and
length: a wake-up delayed by a real-time task, an uninterruptible sleep, a slow
system call and a slow block request. Then compare injected and reported delays.
This takes a few seconds, needs no daemon, does not disturb a running one, and
leaves nothing behind but its snapshots, even if interrupted.

Exit status: 0 every latency was caught with its injected delay, 1 some were not.`,
		Example: "  sudo tailcam demo\n" +
			"  sudo tailcam demo -o json | jq .reported_ns",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("demo: needs root to create real-time tasks and a slow disk: use sudo")
			}
			if _, err := checkPrivileges(); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			return c.deps.demo(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&c.demoDir, dirFlag, "",
		"`directory` for the snapshots of the latest demos (default "+demo.DefaultDir+")")
	c.addOutput(cmd)
	return cmd
}
