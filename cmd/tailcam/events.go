package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/tracker/events"
)

func newEvents(c *cli) *cobra.Command {
	var opts api.EventsOptions
	var stacks bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show outliers: those the daemon remembers, or with -f those to come",
		Long: "Show outliers: those the daemon remembers, or with -f those to come.\n\n" +
			"With -f an outlier is shown within 250 ms. If its process or its stacks were not known by then, it is marked " +
			"\"partial\", and told a second time, under the same id and marked \"completed\": -o json prints the whole object, text what is new.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.events(cmd.Context(), opts, stacks)
		},
	}
	cmd.Flags().BoolVar(&opts.Verdicts, "verdicts", false, "with -f and -o json: also a line {\"verdict\": …} once an outlier's snapshot is complete")
	cmd.Flags().BoolVarP(&opts.Follow, "follow", "f", false, "show outliers as they come, until interrupted")
	c.addRule(cmd, &opts.Rule)
	addStacks(cmd, &stacks)
	c.addOutput(cmd)
	c.addSocket(cmd)
	return cmd
}

func addStacks(cmd *cobra.Command, stacks *bool) {
	cmd.Flags().BoolVarP(stacks, "stacks", "v", false, "show stacks too")
}

func (c *cli) events(ctx context.Context, opts api.EventsOptions, stacks bool) error {
	err := c.showEvents(ctx, opts, stacks)
	if opts.Follow && errors.Is(err, context.Canceled) {
		return nil // interrupted: that is how one ends it
	}
	return err
}

func (c *cli) showEvents(ctx context.Context, opts api.EventsOptions, stacks bool) error {
	opts.Verdicts = opts.Verdicts || c.output == textOutput
	stream, err := c.client().Events(ctx, &opts)
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // only read from
	if opts.Follow && c.out.Terminal() && c.output == textOutput {
		c.err.Printf("%s\n", c.err.Paint(term.Dim, "waiting for outliers; those of before: tailcam events"))
	}
	shown := false
	partial := map[string]*events.Outlier{} // shown in part, by id
	for {
		e, err := stream.Next()
		switch {
		case errors.Is(err, io.EOF):
			if !shown && c.output == textOutput {
				c.err.Printf("%s\n", c.err.Paint(term.Dim, "no outlier yet; to wait for one: tailcam events -f"))
			}
			return nil
		case err != nil:
			return err
		}
		if o := e.Outlier; o != nil && opts.Follow && c.output == textOutput {
			if before := partial[o.ID]; before != nil && o.Completed {
				delete(partial, o.ID)
				term.PrintCompleted(c.out, before, o, stacks)
				continue
			}
			if o.Completed {
				continue // it was shown before, to others
			}
			if o.Partial && len(partial) < maxPartial {
				partial[o.ID] = o
			}
		}
		if err := c.printEvent(e, stacks); err != nil {
			return err
		}
		shown = true
	}
}

// maxPartial bounds the outliers that are waited for to be told the rest of.
const maxPartial = 1024

func (c *cli) printEvent(e api.Event, stacks bool) error {
	if v := e.Verdict; v != nil {
		return c.printVerdict(v, stacks)
	}
	if e.Outlier == nil {
		c.err.Printf("%s %s outliers are not shown: this reader is slower than they come\n",
			c.err.Paint(term.Yellow, "tailcam:"), term.Count(e.Lost))
		return nil
	}
	return c.printOutlier(e.Outlier, stacks)
}

// printVerdict prints what a snapshot says of an outlier that was shown before.
func (c *cli) printVerdict(v *api.Verdict, advice bool) error {
	if c.output == jsonOutput {
		return c.printJSON(map[string]*api.Verdict{"verdict": v})
	}
	c.out.Printf("%s  %s  %s\n", c.out.Paint(term.Dim, term.Time(v.Time)), c.out.Paint(term.Cyan, term.Clean(v.Rule)), term.Clean(v.Explained.Verdict))
	if advice && v.Advice != "" {
		c.out.Printf("    %s\n", term.Clean(v.Advice))
	}
	if err := c.out.Err(); err != nil {
		return fmt.Errorf("write output: %w", err) // nobody reads on
	}
	return nil
}

func (c *cli) printOutlier(o *events.Outlier, stacks bool) error {
	if c.output == jsonOutput {
		return c.printJSON(o)
	}
	term.PrintOutlier(c.out, o, stacks)
	if err := c.out.Err(); err != nil {
		return fmt.Errorf("write output: %w", err) // nobody reads on
	}
	return nil
}
