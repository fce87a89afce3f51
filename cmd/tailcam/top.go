package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/tracker/events"
)

// topJSON is what `top -o json` prints.
type topJSON struct {
	*catalog.Top
	Dir    string     `json:"dir"`
	Daemon *topDaemon `json:"daemon"` // null: it was not asked, or does not run
}

// topDaemon is what the daemon has counted since its start.
type topDaemon struct {
	UptimeNS int64  `json:"uptime_ns"`
	Outliers uint64 `json:"outliers"`
}

func newTop(c *cli) *cobra.Command {
	var since time.Duration
	by, most := catalog.ByCulprit, 20
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Who caused most of the slow time",
		Long: `Add up the time of all outliers by what it came from in the end, and say in which
snapshots to look. Time that lies within another outlier of the same task, such as
a sleep in a slow system call, is counted once.

It reads the snapshots on disk. A daemon that runs adds the outliers that it
remembers (the last 1,000) and that no snapshot holds: they are not explained, and
counted as such. --by cgroup is the cgroup of who caused it.`,
		Example:           "  tailcam top --since 1h\n  tailcam top --by cgroup --since 7d -o json",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(catalog.Ways, by) {
				return fmt.Errorf("--by %s: allowed are %s", by, strings.Join(catalog.Ways, ", "))
			}
			if most < 1 {
				return fmt.Errorf("--count %d: allowed is a number from 1", most)
			}
			o := catalog.TopOptions{By: by}
			if since > 0 {
				o.Since = time.Now().Add(-since)
			}
			top, err := c.addUp(cmd, o)
			if err != nil {
				return err
			}
			if c.output == jsonOutput {
				return c.printJSON(top)
			}
			c.printTop(top, most)
			return nil
		},
	}
	cmd.Flags().Var((*ageValue)(&since), "since", "only outliers of so much `time` until now: 1h, 7d (default: all)")
	cmd.Flags().StringVar(&by, "by", by, "add up by `what`: culprit, cause, rule or cgroup")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(catalog.Ways, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().IntVar(&most, "count", most, "`number` of rows; json has all")
	c.addOutput(cmd)
	c.addDir(cmd)
	return cmd
}

// addUp reads the snapshots, and asks the daemon, if its are the same.
func (c *cli) addUp(cmd *cobra.Command, o catalog.TopOptions) (*topJSON, error) {
	ctx := cmd.Context()
	dir, err := c.shelf(ctx, cmd)
	if err != nil {
		return nil, err
	}
	top := &topJSON{Dir: dir}
	asking, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, err := c.client().Status(asking)
	if err == nil && status.Snapshots.Dir == dir && sameDir(&status.Snapshots) {
		top.Daemon = &topDaemon{UptimeNS: status.UptimeNS}
		for i := range status.Rules {
			top.Daemon.Outliers += status.Rules[i].Outliers
		}
		if o.Seen, err = c.remembered(asking); err != nil {
			return nil, err
		}
		o.Boot = catalog.Boot()
	}
	progress, step := c.counting("reading snapshots")
	list, broken, err := catalog.Read(dir, catalog.Options{Since: o.Since, Progress: step})
	progress.Done()
	if err != nil {
		return nil, readable(dir, err)
	}
	o.Broken = len(broken)
	top.Top = catalog.Add(list, o)
	return top, nil
}

func sameDir(s *api.SnapshotsStatus) bool {
	_, err := here(s)
	return err == nil
}

// remembered are the outliers that the daemon has not forgotten yet.
func (c *cli) remembered(ctx context.Context) ([]*events.Outlier, error) {
	stream, err := c.client().Events(ctx, &api.EventsOptions{})
	if err != nil {
		return nil, err
	}
	defer stream.Close() //nolint:errcheck // only read from
	var out []*events.Outlier
	for {
		e, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if e.Outlier != nil {
			out = append(out, e.Outlier)
		}
	}
}

func (c *cli) printTop(t *topJSON, most int) {
	v := &t.Covered
	if v.Outliers == 0 {
		c.err.Printf("no outlier in %s\n", term.Clean(t.Dir))
		return
	}
	c.out.Printf("%s\n", c.out.Paint(term.Bold, fmt.Sprintf("%s of slow time in %s", term.Duration(v.NS), plural(v.Outliers, "outlier"))))
	c.out.Printf("%s\n\n", c.out.Paint(term.Dim, strings.Join(coverage(t), ", ")))
	table := term.NewTable(term.Column{Title: strings.ToUpper(t.By), Flex: true}, right("TIME"), right("SHARE"), term.Column{}, right("OUTLIERS"),
		term.Column{Title: "OF WHICH", Flex: true}, right("WORST"), term.Column{Title: "SNAPSHOT"})
	gauge := 12
	if c.out.Columns() < 100 {
		gauge = 4
	}
	for i := range t.Rows {
		if i == most {
			break
		}
		r := &t.Rows[i]
		worst := r.Worst[0]
		where := term.Cell{Text: term.Clean(worst.Short)}
		if worst.ID == "" {
			where = term.Cell{Text: "none", Style: term.Dim}
		}
		table.Cells(term.Cell{Text: rowName(t.By, r), Style: term.Bold}, plain(term.Duration(r.NS)), plain(share(r.NS, v.NS)),
			term.Cell{Text: term.Gauge(r.Share, gauge), Style: rowStyle(t.By, r)},
			plain(term.Count(uint64(r.Outliers))), plain(madeOf(t.By, r)), plain(term.Duration(worst.NS)), where)
	}
	table.Print(c.out, "")
	if n := len(t.Rows) - most; n > 0 {
		var rest int64
		for i := range t.Rows[most:] {
			rest += t.Rows[most+i].NS
		}
		c.out.Printf("%s\n", c.out.Paint(term.Dim, fmt.Sprintf("and %d more, %s together", n, term.Duration(rest))))
	}
}

// coverage says what the figures are made of, and what they miss.
func coverage(t *topJSON) []string {
	v := &t.Covered
	out := []string{fmt.Sprintf("%s explained by %s", plural(v.Explained, "outlier"), plural(v.Snapshots, "snapshot"))}
	if v.Unexplained > 0 {
		out = append(out, fmt.Sprintf("%d in snapshots without an explanation (%s)", v.Unexplained, term.Duration(v.UnexplainedNS)))
	}
	if v.Missed > 0 {
		out = append(out, fmt.Sprintf("%d in no snapshot (%s)", v.Missed, term.Duration(v.MissedNS)))
	}
	if v.Within > 0 {
		out = append(out, fmt.Sprintf("%d more within those", v.Within))
	}
	if v.Broken > 0 {
		out = append(out, plural(v.Broken, "snapshot")+" broken: see \"tailcam snapshots verify\"")
	}
	if d := t.Daemon; d != nil {
		out = append(out, fmt.Sprintf("the daemon has counted %s in %s", term.Count(d.Outliers), term.Duration(d.UptimeNS)))
	}
	return out
}

func rowName(by string, r *catalog.Row) string {
	if by == catalog.ByCause {
		return term.CauseWords(explain.Cause(r.Name))
	}
	if r.Kind == explain.KindUnknown || r.Kind == by {
		return term.Clean(r.Name)
	}
	return term.Who(&explain.Who{Kind: nameKind(r.Kind), Name: r.Name})
}

// nameKind: a task stands for all of its name here, and has no number.
func nameKind(kind string) string {
	if kind == explain.KindTask {
		return ""
	}
	return kind
}

func rowStyle(by string, r *catalog.Row) term.Style {
	cause := r.Name
	if by != catalog.ByCause {
		if len(r.Of) == 0 || by != catalog.ByCulprit {
			return term.Cyan
		}
		cause = r.Of[0].Name
	}
	return term.CauseStyle(explain.Cause(cause))
}

// madeOf names the two largest parts of a row.
func madeOf(by string, r *catalog.Row) string {
	var words []string
	for i := range r.Of {
		if i == 2 || i > 0 && r.Of[i].NS < r.NS/20 {
			break
		}
		name := term.Clean(r.Of[i].Name)
		if by == catalog.ByCulprit || by == catalog.ByCgroup && r.Kind != by && r.Kind != explain.KindUnknown {
			name = term.CauseWords(explain.Cause(r.Of[i].Name))
		}
		if r.Of[i].NS < r.NS-r.NS/200 {
			name += " " + share(r.Of[i].NS, r.NS)
		}
		words = append(words, name)
	}
	return strings.Join(words, ", ")
}
