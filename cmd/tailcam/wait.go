package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
)

func newWait(c *cli) *cobra.Command {
	var rule string
	var timeout time.Duration
	var stacks bool
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait for the next outlier and print it",
		Long: "Wait for the next outlier and print what is known of it within 250 ms.\n\n" +
			"Exit status: 0 an outlier came, 3 none came within --timeout.",
		Example: "  tailcam wait --rule wakeup --timeout 10m && tailcam snapshots show",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout < 0 {
				return usagef("invalid --timeout %s: must not be negative (0: wait forever)", timeout)
			}
			return c.wait(cmd.Context(), rule, timeout, stacks)
		},
	}
	c.addRule(cmd, &rule)
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this `duration` (0: never)")
	addStacks(cmd, &stacks)
	c.addOutput(cmd)
	c.addSocket(cmd)
	return cmd
}

func (c *cli) wait(ctx context.Context, rule string, timeout time.Duration, stacks bool) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	e, err := c.nextOutlier(ctx, rule)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nothingf("timed out: no outlier within %s", term.Setting(int64(timeout)))
	case err != nil:
		return err
	}
	return c.printEvent(e, &eventsFlags{stacks: stacks})
}

// nextOutlier waits for an outlier and shows that it does.
func (c *cli) nextOutlier(ctx context.Context, rule string) (api.Event, error) {
	stream, err := c.client().Events(ctx, &api.EventsOptions{Rule: rule, Follow: true})
	if err != nil {
		return api.Event{}, err
	}
	defer stream.Close() //nolint:errcheck // only read from
	label := "waiting for an outlier"
	if rule != "" {
		label += " of " + rule
	}
	progress := c.err.Progress(label)
	defer progress.Done()
	for {
		e, err := stream.Next()
		if err != nil || e.Outlier != nil && !e.Outlier.Completed { // not the second part of an earlier one
			return e, err
		}
	}
}
