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
		Short: "Provoke one real latency of each kind and show what is caught (needs root)",
		Long: `Provoke one real latency of each kind on this machine, with known start and
length: a wake-up behind a real-time hog, an uninterruptible sleep, a slow system
call and a slow block request. Show what was caught, injected against reported.
It takes some seconds, needs and disturbs no daemon, and leaves nothing behind
but its snapshots, also when interrupted.

Exit status: 0 all were caught with the delay that was injected, 1 not.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("demo: needs root, for it provokes latencies with real-time tasks and a slow disk: use sudo")
			}
			if _, err := checkPrivileges(); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			return c.deps.demo(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&c.demoDir, "snapshots-dir", "", "`directory` in which the snapshots of the latest demos stay (default "+demo.DefaultDir+")")
	c.addOutput(cmd)
	return cmd
}
