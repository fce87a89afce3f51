package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/activities/ask"
	"github.com/tailcam/tailcam/internal/activities/breakdown"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
)

// activitiesFlags are those of activities.
type activitiesFlags struct {
	by, sort string
	filters  []string
	count    int
	interval time.Duration
	once     bool
}

func newActivities(c *cli) *cobra.Command {
	f := activitiesFlags{by: "name", sort: "elapsed", count: 20, interval: 2 * time.Second}
	cmd := &cobra.Command{
		Use:   "activities",
		Short: "Show what requests cost and waited for",
		Long: `Show activities: requests and other units of work that programs mark by tokens (see
docs/activities.md), live ones and those that ended, with where their threads spent the time:
on a CPU, waiting for one, or blocked, by what. The sum of these is the time in which
threads worked for them; it may differ from the time from begin to end (P50 to MAX), as a
request may wait in a queue, or have several threads.

On a terminal the table is shown again every --interval until interrupted; with --once, or
if the output is no terminal, once. Grouped by name, it has all that ended since the daemon
started. Grouped by anything else or filtered by it, it has those that the daemon
remembers: the latest 256 and the slowest 32 of each name, 4,096 in all.

Below it is what is known of the processes that are open, and not of which of their
activities: in JSON, rows with "kind". "shared" is what was done for them, such as the
writeback of a file that two activities wrote to, and "late", what came for activities that
had ended. "machine" is what interrupts and softirqs took on top of their threads, with group
interrupts; it is in the CPU time of activities, too.

--filter selects by the same keys, such as name=check* or unit=nginx.service. --by token
lists each activity alone, with the id that "diff" takes. Any other key is the name of an
attribute, such as http.route, that programs set, or that their threads published as they
had an outlier: "(none)" are those without.`,
		Example: "  tailcam activities\n" +
			"  tailcam activities --by http.route --filter tenant=gold\n" +
			"  tailcam activities --by text --filter name=checkout --sort blocked_disk\n" +
			"  tailcam activities slow --over p99\n" +
			"  tailcam activities diff 7.300.41 7.301.17\n" +
			"  tailcam activities --by token -o json | jq -r 'select(.live > 0) | .key'",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			filter, err := f.check()
			if err != nil {
				return err
			}
			return c.activities(cmd.Context(), &f, filter)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	addActivityKey(cmd, &f.by, "group by this `key`: ")
	cmd.Flags().StringVar(&f.sort, "sort", f.sort, "the largest first, of this `column`: "+strings.Join(ask.Orders, ", ")+", or a value such as cpu or blocked_disk")
	cmd.Flags().IntVarP(&f.count, "count", "n", f.count, "maximum `number` of rows; json prints all")
	cmd.Flags().DurationVar(&f.interval, "interval", f.interval, "on a terminal, how often the table is shown again")
	cmd.Flags().BoolVar(&f.once, "once", false, "show the table once")
	addActivityFilter(cmd, &f.filters)
	c.addOutput(cmd)
	c.addSocket(cmd)
	cmd.AddCommand(newActivitiesSlow(c), newActivitiesDiff(c))
	return cmd
}

func addActivityKey(cmd *cobra.Command, by *string, usage string) {
	cmd.Flags().StringVar(by, "by", *by, usage+strings.Join(ask.Keys, ", ")+", or an attribute")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(ask.Keys, cobra.ShellCompDirectiveNoFileComp))
}

func addActivityFilter(cmd *cobra.Command, filters *[]string) {
	cmd.Flags().StringArrayVar(filters, "filter", nil, "only activities whose key matches the glob, as `key=glob`; may be repeated")
}

// check checks the flags.
func (f *activitiesFlags) check() (ask.Filter, error) {
	filter, err := ask.ParseFilter(f.filters)
	switch {
	case err != nil:
		return nil, usagef("%w", err)
	case f.count < 1:
		return nil, usagef("invalid --count %d: must be a positive number", f.count)
	case f.interval < 100*time.Millisecond:
		return nil, usagef("invalid --interval %s: must be at least 100ms", f.interval)
	}
	return filter, nil
}

// activities prints the table, again and again on a terminal.
func (c *cli) activities(ctx context.Context, f *activitiesFlags, filter ask.Filter) error {
	live, shown := c.out.Terminal() && !c.wantsData() && !f.once, false
	for {
		info, err := c.client().Activities(ctx, ask.NeedsEnded(f.by, filter))
		if err != nil {
			return err
		}
		if err := checkActivityKeys(info, f.by, filter); err != nil && !shown {
			return err
		}
		shown = true
		rows := ask.Group(info, f.by, filter)
		if !ask.Sort(rows, f.sort) && len(rows) > 0 {
			return usagef("invalid --sort %s: must be one of %s, or a value that there is, such as cpu or blocked_disk", f.sort, strings.Join(ask.Orders, ", "))
		}
		shared := ask.Shared(info, f.by, filter)
		if c.wantsData() {
			return printList(c, append(rows, shared...))
		}
		if live {
			c.out.Printf("\x1b[H\x1b[2J") // home, and clear the screen
		}
		c.printActivities(info, rows, f)
		c.printShared(shared, f.by)
		if !live {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.interval):
		}
	}
}

// checkActivityKeys rejects keys that no activity has, if there are any.
func checkActivityKeys(info *api.ActivitiesInfo, by string, filter ask.Filter) error {
	if len(info.Live)+len(info.Ended)+len(info.Names) == 0 {
		return nil
	}
	if err := ask.Check(info, by); err != nil {
		return usagef("invalid --by %s: %w", by, err)
	}
	if err := ask.Check(info, filter.Keys()...); err != nil {
		return usagef("invalid --filter: %w", err)
	}
	return nil
}

// activityColumns are the parts of the time that the table shows if any row has them.
func activityColumns(rows []ask.Row) []breakdown.Part {
	return slices.DeleteFunc(slices.Clone(breakdown.Parts), func(p breakdown.Part) bool {
		return !slices.ContainsFunc(rows, func(r ask.Row) bool { return r.Values[p.Value] > 0 })
	})
}

func (c *cli) printActivities(info *api.ActivitiesInfo, rows []ask.Row, f *activitiesFlags) {
	c.out.Printf("%s\n\n", c.out.Paint(term.Dim, activitiesCoverage(info)))
	if len(rows) == 0 {
		c.out.Printf("no activity: see docs/activities.md for how programs mark theirs\n")
		return
	}
	parts := activityColumns(rows)
	columns := []term.Column{{Title: strings.ToUpper(f.by), Flex: true}, right("LIVE"), right("COUNT"), right("P50"), right("P99"), right("MAX"), right("WALL")}
	for _, p := range parts {
		columns = append(columns, right(p.Short))
	}
	t := term.NewTable(columns...)
	for i := range rows[:min(len(rows), f.count)] {
		r := &rows[i]
		cells := []term.Cell{
			{Text: shownKey(r.Key), Style: term.Cyan}, plain(term.Count(r.Live)), plain(term.Count(r.Count)),
			elapsedCell(r, r.P50NS), elapsedCell(r, r.P99NS), elapsedCell(r, r.MaxNS), plain(nanoseconds(r.Values[breakdown.Wall])),
		}
		for _, p := range parts {
			cells = append(cells, partCell(r, p.Value))
		}
		t.Cells(cells...)
	}
	t.Print(c.out, "")
	if n := len(rows) - f.count; n > 0 {
		c.out.Printf("%s\n", c.out.Paint(term.Dim, fmt.Sprintf("%d more", n)))
	}
	c.printDeclared(info.Declared)
}

// printDeclared prints what became of the activities that rules declare.
func (c *cli) printDeclared(list []api.DeclaredInfo) {
	if len(list) == 0 {
		return
	}
	c.out.Printf("\n")
	t := term.NewTable(term.Column{Title: "RULE", Flex: true}, term.Column{Title: "ACTIVITY", Flex: true},
		right("ENDED"), right("REPLACED"), right("NESTED"), right("REFUSED"), right("LOST"))
	for i := range list {
		d := &list[i]
		cells := []term.Cell{{Text: term.Clean(d.Rule), Style: term.Bold}, {Text: term.Clean(d.Name), Style: term.Cyan}}
		for _, n := range []uint64{d.Count, d.Replaced, d.Nested, d.Refused, d.Lost} {
			cells = append(cells, plain(term.Count(n)))
		}
		t.Cells(cells...)
	}
	t.Print(c.out, "")
}

// activitiesCoverage describes what the figures include and miss.
func activitiesCoverage(info *api.ActivitiesInfo) string {
	processes := strconv.Itoa(info.Processes) + " processes"
	if info.Processes == 1 {
		processes = "1 process"
	}
	s := fmt.Sprintf("%s, %s live, %s ended", processes, term.Count(uint64(info.LiveCount)), term.Count(info.Count))
	if info.Missed > 0 {
		s += fmt.Sprintf(", %s more not seen: their slots were used again within %s", term.Count(info.Missed), term.Setting(info.IntervalNS))
	}
	if n := info.LiveCount - len(info.Live); n > 0 {
		s += fmt.Sprintf(", the youngest %s live ones are left out", term.Count(uint64(n)))
	}
	return s
}

// shownKey is a key that a program chose, or what stands for none.
func shownKey(k string) string {
	if k == "" {
		return "(none)"
	}
	return term.Clean(k)
}

func nanoseconds(ns uint64) string { return term.Duration(int64(min(ns, 1<<63-1))) }

func elapsedCell(r *ask.Row, ns uint64) term.Cell {
	if r.Count == 0 {
		return term.Cell{Text: "-", Style: term.Dim}
	}
	return plain(nanoseconds(ns))
}

func partCell(r *ask.Row, value string) term.Cell {
	ns := r.Values[value]
	switch {
	case ns == 0:
		return term.Cell{Text: "-", Style: term.Dim}
	case value == breakdown.Unexplained:
		return term.Cell{Text: nanoseconds(ns), Style: term.Dim}
	case ns >= r.Values[breakdown.Wall]/2:
		return term.Cell{Text: nanoseconds(ns), Style: term.Bold}
	}
	return plain(nanoseconds(ns))
}

// printShared prints what is known of processes alone.
func (c *cli) printShared(rows []ask.Row, by string) {
	if len(rows) == 0 {
		return
	}
	columns := []term.Column{{Title: "NOT OF ONE"}, {Title: "VALUE"}, right("AMOUNT")}
	if by != "name" {
		columns = append([]term.Column{{Title: strings.ToUpper(by), Flex: true}}, columns...)
	}
	c.out.Printf("\n")
	t := term.NewTable(columns...)
	for i := range rows {
		r := &rows[i]
		for _, name := range slices.SortedFunc(maps.Keys(r.Values), func(a, b string) int { return strings.Compare(b, a) }) {
			cells := []term.Cell{plain(r.Kind), plain(term.Clean(name)), plain(valueText(name, int64(min(r.Values[name], 1<<63-1))))}
			if by != "name" {
				cells = append([]term.Cell{{Text: shownKey(r.Key), Style: term.Cyan}}, cells...)
			}
			t.Cells(cells...)
		}
	}
	t.Print(c.out, "")
}
