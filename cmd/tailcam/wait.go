package main

import (
	"context"
	"errors"
	"fmt"
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
	forVerdict  = "verdict"
)

var waitables = []string{forOutlier, forSnapshot, forVerdict}

// waitTimeout is what `wait` reports if nothing came.
type waitTimeout struct {
	Cursor string `json:"cursor"` // for --after
	loss
}

func newWait(c *cli) *cobra.Command {
	var f waitFlags
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait for the next outlier, snapshot or verdict and print it",
		Long: `Wait for the next outlier and print what is known of it within 250 ms; or with

--for snapshot  for the next complete snapshot, also one that was taken by hand (rule
                manual) or could not be explained: print its directory and its verdict,
                if there is one, once for each of its outliers
--for verdict   for the next verdict on an outlier, or on a thread that was named by hand

What is printed has a cursor (as text, it is printed on standard error), also if nothing
came in time, and so has tailcam status -o json. With --after CURSOR, the next call goes on
from there: what came between two calls is not missed, as long as the daemon remembers it.
What it does not is told on standard error, and with -o json in lost and restarted.

Exit status: 0 it came, 3 it did not within --timeout.`,
		Example: `  tailcam wait --rule wakeup --timeout 10m && tailcam snapshots show
  cursor=$(tailcam status -o json | jq -r .cursor)
  while e=$(tailcam wait -o json --for snapshot --after $cursor); do
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
	w, err := c.next(ctx, f)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		if err := c.printTimeout(w); err != nil {
			return err
		}
		return nothingf("timed out: no %s within %s", f.what, term.Setting(int64(f.timeout)))
	case err != nil:
		return err
	}
	f.stacks = f.stacks || f.what != forOutlier // also its directory and advice
	if err := c.printEvent(w.event, &f.eventsFlags, w.loss); err != nil || c.wantsData() {
		return err
	}
	c.printCursor(w.cursor)
	return nil
}

func (c *cli) printCursor(cursor string) {
	if cursor != "" {
		c.err.Printf("%s\n", c.err.Paint(term.Dim, "cursor: "+term.Clean(cursor)))
	}
}

// printTimeout prints from where the next call goes on.
func (c *cli) printTimeout(w waited) error {
	if c.wantsData() && w.cursor != "" {
		return c.printData(waitTimeout{w.cursor, w.loss})
	}
	c.printCursor(w.cursor)
	return nil
}

// waited is what came, or if it did not, from where to go on.
type waited struct {
	event  api.Event
	cursor string
	loss   loss
}

// next waits for an event of the kind that is wanted, and shows that it does.
func (c *cli) next(ctx context.Context, f *waitFlags) (w waited, err error) {
	opts := f.EventsOptions
	opts.Follow, opts.Verdicts = true, f.what != forOutlier
	stream, err := c.client().Events(ctx, &opts)
	if err != nil {
		return w, err
	}
	defer stream.Close() //nolint:errcheck // only read from
	label := fmt.Sprintf("waiting for a %s", f.what)
	if f.what == forOutlier {
		label = "waiting for an outlier"
	}
	if f.Rule != "" {
		label += " of " + f.Rule
	}
	progress := c.err.Progress(label)
	defer progress.Done()
	for {
		e, err := stream.Next()
		w.cursor = stream.Cursor()
		switch {
		case err != nil:
			return w, err
		case f.wants(&e):
			w.event = e
			return w, nil
		case e.Verdict == nil && e.Outlier == nil:
			lost := loss{Lost: e.Lost, Restarted: e.Restarted}
			if f.what != forOutlier {
				lost.Lost = e.LostVerdicts
			}
			c.printLoss(lost)
			w.loss.add(lost)
		}
	}
}

// wants reports whether an event is what it waits for.
func (f *waitFlags) wants(e *api.Event) bool {
	switch f.what {
	case forSnapshot:
		return e.Verdict != nil
	case forVerdict:
		return e.Verdict != nil && e.Verdict.Explained.Verdict != ""
	}
	return e.Outlier != nil && !e.Outlier.Completed // not the second part of an earlier one
}
