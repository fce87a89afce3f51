package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/term"
)

// takenSnapshot is what `snapshot` reports.
type takenSnapshot struct {
	ID  string `json:"id"`
	Dir string `json:"dir"`
}

func newSnapshot(c *cli) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Take a snapshot now and print its directory",
		Long: `Have the daemon save the history that it holds now as a snapshot, and print its directory. No
outlier is needed, so there is nothing to explain in it, but it can be shown and exported.`,
		Example: "  tailcam snapshot --reason \"slow logins\"\n" +
			"  tailcam export $(tailcam snapshot) --format perfetto -O now.perfetto-trace",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := c.takeSnapshot(cmd.Context(), reason)
			if err != nil {
				return err
			}
			if c.wantsData() {
				return c.printData(takenSnapshot{ID: filepath.Base(dir), Dir: dir})
			}
			c.out.Printf("%s\n", term.Clean(dir))
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`text` to store in the snapshot")
	c.addOutput(cmd)
	c.addSocket(cmd)
	return cmd
}

func (c *cli) takeSnapshot(ctx context.Context, reason string) (string, error) {
	progress := c.err.Progress("taking a snapshot")
	defer progress.Done()
	return c.client().TakeSnapshot(ctx, reason)
}
