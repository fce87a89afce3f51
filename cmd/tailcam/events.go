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
	"github.com/tailcam/tailcam/tracker/events"
)

// eventsFlags are those of events.
type eventsFlags struct {
	api.EventsOptions
	stacks, short bool
	since         time.Duration // 0: all
	count         int           // 0: all
	fleet         fleetFlags
}

func newEvents(c *cli) *cobra.Command {
	var f eventsFlags
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show recent outliers, or with -f new ones",
		Long: `Show the outliers that the daemon remembers, oldest first, or with -f new ones.

The daemon remembers 1,000. A rule's outliers are not forgotten for those of other
rules while it has no more than an equal share. The daemon's log has outliers, too.

With -f, an outlier is shown within 250 ms. If its process or stacks are not known
by then, it is marked "partial" and shown again later with the same id, marked
"completed". With -o json the second line is the complete object; as text, it
shows only what is new.

With --fleet, the newest outliers of all machines are shown, from the engine to which
a collector sends them: 100 of the last 24 hours unless --count and --since say
otherwise. tailcam top --help describes the URL.

Exit status: 0 done; there may be no outlier (to wait for one: tailcam wait).`,
		Example: "  tailcam events --since 1h --count 20 --short\n" +
			"  tailcam events -f --rule wakeup --stacks\n" +
			"  tailcam events --fleet https://reader@clickhouse.example:8443/default --where culprit=rt-hog -n 20\n" +
			"  tailcam events -o json | jq -r 'select(.delay_ns > 1e8) | .snapshot'",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.After != "" && !f.Follow {
				return usagef("--after needs --follow")
			}
			for _, name := range []string{"since", "count"} {
				if f.Follow && cmd.Flags().Changed(name) {
					return usagef("--%s selects past outliers: not with --follow", name)
				}
			}
			if cmd.Flags().Changed("count") && f.count < 1 {
				return usagef("invalid --count %d: must be a positive number", f.count)
			}
			if f.short && (f.stacks || c.output != textOutput) {
				return usagef("--short prints one line of text: not with --stacks or -o json or yaml")
			}
			if err := checkFleet(cmd, &f.fleet, "follow", "verdicts", "stacks", "short", socketFlag); err != nil {
				return err
			}
			if f.fleet.url != "" {
				return c.fleetEvents(cmd.Context(), &f.fleet, &f)
			}
			return c.events(cmd.Context(), &f)
		},
	}
	cmd.Flags().BoolVar(&f.Verdicts, "verdicts", false,
		"with -f and -o json or yaml, also print {\"verdict\": …} when a snapshot is complete")
	cmd.Flags().BoolVarP(&f.Follow, "follow", "f", false, "follow: show new outliers until interrupted")
	cmd.Flags().Var((*ageValue)(&f.since), "since",
		"only outliers newer than this `duration`, such as 1h or 7d (default: all)")
	cmd.Flags().IntVarP(&f.count, "count", "n", 0, "maximum `number` of outliers, the newest ones (default: all)")
	cmd.Flags().BoolVar(&f.short, "short", false, "one line per outlier, with its verdict if there is one")
	addAfter(cmd, &f.After)
	c.addRule(cmd, &f.Rule)
	addStacks(cmd, &f.stacks)
	addFleet(cmd, &f.fleet)
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addSocket(cmd)
	return cmd
}

func addStacks(cmd *cobra.Command, stacks *bool) {
	cmd.Flags().BoolVarP(stacks, "stacks", "v", false, "also show stacks")
}

func (c *cli) events(ctx context.Context, f *eventsFlags) error {
	if !f.Follow {
		return c.pastEvents(ctx, f)
	}
	if err := c.followEvents(ctx, f); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // the usual way to stop it
}

// pastEvents shows the remembered outliers.
func (c *cli) pastEvents(ctx context.Context, f *eventsFlags) error {
	list, err := c.recentOutliers(ctx, f.Rule)
	if err != nil {
		return err
	}
	all := len(list)
	if f.since > 0 {
		begin := time.Now().Add(-f.since)
		list = slices.DeleteFunc(list, func(o *events.Outlier) bool { return o.Time.Before(begin) })
	}
	if f.count > 0 {
		list = list[max(len(list)-f.count, 0):]
	}
	if len(list) == 0 && c.output == textOutput {
		none := "no outliers yet; to wait for one: tailcam events -f"
		if all > 0 {
			none = "no outliers since then; for earlier ones: tailcam events"
		}
		c.err.Printf("%s\n", c.err.Paint(term.Dim, none))
	}
	for _, o := range list {
		if err := c.printOutlier(o, f, loss{}); err != nil {
			return err
		}
	}
	return nil
}

// followEvents shows new outliers.
func (c *cli) followEvents(ctx context.Context, f *eventsFlags) error {
	asked := f.EventsOptions
	asked.Verdicts = f.Verdicts || c.output == textOutput
	stream, err := c.client().Events(ctx, &asked)
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // only read from
	if c.out.Terminal() && c.output == textOutput {
		c.err.Printf("%s\n", c.err.Paint(term.Dim, "waiting for outliers; for earlier ones: tailcam events"))
	}
	partial := map[string]*events.Outlier{} // shown in part, by id
	var lost loss                           // before the next one
	for {
		e, err := stream.Next()
		if err != nil {
			return err
		}
		if e.Outlier == nil && e.Verdict == nil {
			now := loss{Lost: e.Lost + e.LostVerdicts, Restarted: e.Restarted}
			c.printLoss(now)
			lost.add(now)
			continue
		}
		if v := e.Verdict; v != nil && v.Explained.Verdict == "" && c.output == textOutput {
			continue // nothing new
		}
		if o := e.Outlier; o != nil && c.output == textOutput {
			if before := partial[o.ID]; before != nil && o.Completed {
				delete(partial, o.ID)
				if !f.short {
					term.PrintCompleted(c.out, before, o, f.stacks)
				}
				continue
			}
			if o.Completed {
				continue // its first part came before this reader
			}
			if o.Partial && len(partial) < maxPartial {
				partial[o.ID] = o
			}
		}
		if err := c.printEvent(e, f, lost); err != nil {
			return err
		}
		lost = loss{}
	}
}

// maxPartial bounds the partial outliers whose second part is awaited.
const maxPartial = 1024

func (c *cli) printEvent(e api.Event, f *eventsFlags, lost loss) error {
	if v := e.Verdict; v != nil {
		return c.printVerdict(v, f.stacks, lost)
	}
	return c.printOutlier(e.Outlier, f, lost)
}

// loss is what a stream does not have before an object that is printed.
type loss struct {
	// Lost counts what was asked for, but is missing before this: the client was too slow, or
	// it is forgotten since the cursor.
	Lost      uint64 `json:"lost,omitempty"`
	Restarted bool   `json:"restarted,omitempty"` // the cursor is of an earlier run of the daemon
}

func (l *loss) add(more loss) {
	l.Lost += more.Lost
	l.Restarted = l.Restarted || more.Restarted
}

// printLoss tells on standard error what a stream does not have.
func (c *cli) printLoss(l loss) {
	switch {
	case l.Restarted:
		c.err.Printf("%s the daemon was restarted since the cursor: what came in between is not shown\n", c.err.Paint(term.Yellow, "tailcam:"))
	case l.Lost > 0:
		c.err.Printf("%s %s outliers were not shown: this client is too slow, or they are forgotten since the cursor\n",
			c.err.Paint(term.Yellow, "tailcam:"), term.Count(l.Lost))
	}
}

// verdictNotice is the line of events -f -o json and of wait for a verdict.
type verdictNotice struct {
	Verdict *api.Verdict `json:"verdict"`
	loss
}

// outlierLine is the line of events -o json and of wait for an outlier.
type outlierLine struct {
	*events.Outlier
	loss
}

// printVerdict prints the verdict on an outlier that was shown before, or that of a snapshot
// taken by hand; whole: also where the snapshot is, and what to do.
func (c *cli) printVerdict(v *api.Verdict, whole bool, lost loss) error {
	if c.wantsData() {
		return c.printData(verdictNotice{v, lost})
	}
	text := term.Clean(v.Explained.Verdict)
	if text == "" {
		text = c.out.Paint(term.Dim, "no verdict")
	}
	c.out.Printf("%s  %s  %s\n", c.out.Paint(term.Dim, term.Time(v.Time)), c.out.Paint(term.Cyan, term.Clean(v.Rule)), text)
	if whole && v.Dir != "" {
		c.out.Printf("    %s\n", term.Clean(v.Dir))
	}
	if whole && v.Advice != "" {
		c.out.Printf("    %s\n", term.Clean(v.Advice))
	}
	if err := c.out.Err(); err != nil {
		return fmt.Errorf("write output: %w", err) // the reader is gone
	}
	return nil
}

func (c *cli) printOutlier(o *events.Outlier, f *eventsFlags, lost loss) error {
	if c.wantsData() {
		return c.printData(outlierLine{o, lost})
	}
	if f.short {
		term.PrintShort(c.out, o)
	} else {
		term.PrintOutlier(c.out, o, f.stacks)
	}
	if err := c.out.Err(); err != nil {
		return fmt.Errorf("write output: %w", err) // the reader is gone
	}
	return nil
}
