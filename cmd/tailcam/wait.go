package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
)

// waitFlags are those of wait.
type waitFlags struct {
	eventsFlags
	what    string
	timeout time.Duration // 0: none
}

// What wait waits for.
const (
	forOutlier  = "outlier"
	forSnapshot = "snapshot"
)

var waitables = []string{forOutlier, forSnapshot}

func newWait(c *cli) *cobra.Command {
	var f waitFlags
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait for the next outlier and print it",
		Long: `Wait for the next outlier and print what is known of it within 250 ms; or, with
--for snapshot, for the next snapshot of an outlier that is complete and explained, and
print its directory and verdict.

What is printed has a cursor (as text, it is printed on standard error). With --after
CURSOR, the next call goes on from there: what came between two calls is not missed, as
long as the daemon remembers it. What it does not is told on standard error.

Exit status: 0 it came, 3 it did not within --timeout.`,
		Example: `  tailcam wait --rule wakeup --timeout 10m && tailcam snapshots show
  cursor=; while e=$(tailcam wait -o json --for snapshot ${cursor:+--after $cursor}); do
    cursor=$(echo "$e" | jq -r .verdict.cursor); echo "$e" | jq -r .verdict.dir; done`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.timeout < 0 {
				return usagef("invalid --timeout %s: must not be negative (0: wait forever)", f.timeout)
			}
			if !slices.Contains(waitables, f.what) {
				return usagef("invalid --for %s: must be one of %s", f.what, oneOf(waitables))
			}
			return c.wait(cmd.Context(), &f)
		},
	}
	c.addRule(cmd, &f.Rule)
	cmd.Flags().StringVar(&f.what, "for", forOutlier, "`what` to wait for: "+oneOf(waitables))
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(waitables, cobra.ShellCompDirectiveNoFileComp))
	addAfter(cmd, &f.After)
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "give up after this `duration` (0: never)")
	addStacks(cmd, &f.stacks)
	c.addOutput(cmd)
	c.addSocket(cmd)
	return cmd
}

func addAfter(cmd *cobra.Command, after *string) {
	cmd.Flags().StringVar(after, "after", "", "begin with what came after this `cursor`, which wait or events -f printed")
}

func (c *cli) wait(ctx context.Context, f *waitFlags) error {
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	e, err := c.next(ctx, f)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nothingf("timed out: no %s within %s", f.what, term.Setting(int64(f.timeout)))
	case err != nil:
		return err
	}
	f.stacks = f.stacks || f.what == forSnapshot // also its directory and advice
	if err := c.printEvent(e, &f.eventsFlags); err != nil || c.wantsData() {
		return err
	}
	var cursor string
	if e.Verdict != nil {
		cursor = e.Verdict.Cursor
	} else {
		cursor = e.Outlier.Cursor
	}
	c.err.Printf("%s\n", c.err.Paint(term.Dim, "cursor: "+term.Clean(cursor)))
	return nil
}

// next waits for an event of the kind that is wanted, and shows that it does.
func (c *cli) next(ctx context.Context, f *waitFlags) (api.Event, error) {
	snapshots := f.what == forSnapshot
	stream, err := c.client().Events(ctx, &api.EventsOptions{Rule: f.Rule, Follow: true, Verdicts: snapshots, After: f.After})
	if err != nil {
		return api.Event{}, err
	}
	defer stream.Close() //nolint:errcheck // only read from
	label := "waiting for an outlier"
	if snapshots {
		label = "waiting for a snapshot"
	}
	if f.Rule != "" {
		label += " of " + f.Rule
	}
	progress := c.err.Progress(label)
	defer progress.Done()
	for {
		e, err := stream.Next()
		switch {
		case err != nil:
			return e, err
		case e.Verdict != nil && snapshots, e.Outlier != nil && !snapshots && !e.Outlier.Completed: // not the second part of an earlier one
			return e, nil
		case e.Verdict == nil && e.Outlier == nil:
			c.printLoss(e)
		}
	}
}
