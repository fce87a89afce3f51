package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/term"
)

func newSnapshot(c *cli) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "snapshot",
		Short:   "Take a snapshot now and print its directory",
		Example: "  tailcam explain $(tailcam snapshot --reason \"slow logins\")",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := c.takeSnapshot(cmd.Context(), reason)
			if err != nil {
				return err
			}
			c.out.Printf("%s\n", term.Clean(dir))
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`text` to store in the snapshot")
	c.addSocket(cmd)
	return cmd
}

func (c *cli) takeSnapshot(ctx context.Context, reason string) (string, error) {
	progress := c.err.Progress("taking a snapshot")
	defer progress.Done()
	return c.client().TakeSnapshot(ctx, reason)
}
