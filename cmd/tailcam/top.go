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
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/fleet"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/tracker/events"
)

// topJSON is what `top -o json` prints.
type topJSON struct {
	*catalog.Top
	Dir    string     `json:"dir"`
	Daemon *topDaemon `json:"daemon"` // null: not asked, or not running
}

// topDaemon is what the daemon has counted since its start.
type topDaemon struct {
	UptimeNS int64  `json:"uptime_ns"`
	Outliers uint64 `json:"outliers"`
}

func newTop(c *cli) *cobra.Command {
	var since time.Duration
	var f fleetFlags
	by, sinceRelease, most := catalog.ByCulprit, "", 20
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show who caused most of the slow time",
		Long: `Add up the time of all outliers by root cause, with the worst snapshot of each. Time
within another outlier of the same task, such as a sleep in a slow system call, is
counted once.

The snapshots on disk are read. If the daemon is running, the outliers that it
remembers (see tailcam events) and that have no snapshot are added by who ran instead, who
woke them, or the device, and else as unexplained. A sleep until a timer is that of who
slept; what a limit held up is the limit's (cpu.max, io.max, …); a device tells for whom it
worked.
--by cgroup, unit, pod, container and image add up by where the culprit runs; devices and
interrupts keep their names. --by wait-site adds up by where tasks waited in the kernel, or
what they did there, by their stacks (group wait, or stacks: [kernel] of a rule). --by
pattern adds up by what the latency looks like, such as lock convoy or CPU saturation.
--by activity adds up by the name of the request that the slow thread worked for, and
activity-text also by its text, where programs or rules mark theirs.

With --fleet, the outliers of all machines are added up, by the engine to which a
collector sends them: the last 24 hours unless --since says otherwise. Culprits and
causes have the time of the largest part of each outlier. --since-release also shows
with which release the time of a row, per host and hour, at least doubled.
The URL is clickhouse://USER@HOST/DATABASE (HTTP, port 8123), http[s]://USER@HOST:PORT/DATABASE,
or loki+http[s]://USER@HOST:PORT. The password is read from ` + config.FleetPasswordEnv + ` or a file.`,
		Example: "  tailcam top --since 1h\n  tailcam top --by unit\n  tailcam top --by cgroup --since 7d -o json\n" +
			"  tailcam top --fleet https://reader@clickhouse.example:8443/default --by host\n" +
			"  tailcam top --fleet clickhouse://reader@clickhouse.example --since 14d --since-release --where pod=web-1",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 1 {
				return usagef("invalid --count %d: must be a positive number", most)
			}
			if err := checkFleet(cmd, &f, dirFlag, "config", socketFlag); err != nil {
				return err
			}
			if f.url != "" {
				return c.fleetTop(cmd.Context(), &f, by, sinceRelease, since, most)
			}
			if !slices.Contains(catalog.Ways, by) {
				return usagef("invalid --by %s: must be one of %s", by, strings.Join(catalog.Ways, ", "))
			}
			o := catalog.TopOptions{By: by}
			if since > 0 {
				o.Since = time.Now().Add(-since)
			}
			top, err := c.addUp(cmd, o)
			if err != nil {
				return err
			}
			if c.wantsData() {
				return c.printData(top)
			}
			c.printTop(top, most)
			return nil
		},
	}
	cmd.Flags().Var((*ageValue)(&since), "since",
		"only outliers newer than this `duration`, such as 1h or 7d (default: all)")
	cmd.Flags().StringVar(&by, "by", by, "add up by this `key`: culprit, cause, rule, cgroup, unit, pod, container, image, pattern, wait-site, activity or\n"+
		"activity-text; with --fleet culprit, cause, rule, host, unit, pod, namespace, container, version, kernel, release, activity or trace")
	_ = cmd.RegisterFlagCompletionFunc("by", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		if f.url != "" {
			return words(fleet.Keys, ""), cobra.ShellCompDirectiveNoFileComp
		}
		return catalog.Ways, cobra.ShellCompDirectiveNoFileComp
	})
	cmd.Flags().StringVar(&sinceRelease, "since-release", "",
		"with --fleet, also show since which `kind` of release: release, kernel or version (default if given alone: release)")
	cmd.Flags().Lookup("since-release").NoOptDefVal = string(fleet.Release)
	addFleet(cmd, &f)
	cmd.Flags().IntVarP(&most, "count", "n", most, "maximum `number` of rows; json prints all of this machine")
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addDir(cmd)
	return cmd
}

// addUp reads the snapshots, and asks the daemon if it has the same directory.
func (c *cli) addUp(cmd *cobra.Command, o catalog.TopOptions) (*topJSON, error) {
	ctx := cmd.Context()
	dir, err := c.snapshotsDir(ctx, cmd)
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
		if o.Seen, err = c.recentOutliers(asking, ""); err != nil {
			return nil, err
		}
		o.Boot = catalog.Boot()
	}
	progress, step := c.counting("reading snapshots")
	list, broken, err := catalog.Read(dir, catalog.Options{Since: o.Since, Progress: step})
	progress.Done()
	if err != nil {
		return nil, dirError(dir, err)
	}
	o.Broken = len(broken)
	top.Top = catalog.Add(list, o)
	return top, nil
}

func sameDir(s *api.SnapshotsStatus) bool {
	_, err := localDir(s)
	return err == nil
}

// recentOutliers returns the outliers of a rule, or of all for "", that the daemon
// remembers, oldest first.
func (c *cli) recentOutliers(ctx context.Context, rule string) ([]*events.Outlier, error) {
	stream, err := c.client().Events(ctx, &api.EventsOptions{Rule: rule})
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
		c.err.Printf("no outliers in %s\n", term.Clean(t.Dir))
		return
	}
	c.out.Printf("%s\n", c.out.Paint(term.Bold,
		fmt.Sprintf("%s of slow time in %s", term.Duration(v.NS), plural(v.Outliers, "outlier"))))
	c.out.Printf("%s\n\n", c.out.Paint(term.Dim, strings.Join(coverage(t), ", ")))
	table := term.NewTable(term.Column{Title: strings.ToUpper(t.By), Flex: true}, right("TIME"), right("SHARE"),
		term.Column{}, right("OUTLIERS"), term.Column{Title: "MAINLY", Flex: true}, right("WORST"),
		term.Column{Title: "SNAPSHOT"})
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
		table.Cells(term.Cell{Text: rowName(t.By, r), Style: term.Bold}, plain(term.Duration(r.NS)),
			plain(share(r.NS, v.NS)), term.Cell{Text: term.Gauge(r.Share, gauge), Style: rowStyle(t.By, r)},
			plain(term.Count(uint64(r.Outliers))), plain(largestParts(t.By, r)), plain(term.Duration(worst.NS)), where)
	}
	table.Print(c.out, "")
	if n := len(t.Rows) - most; n > 0 {
		var rest int64
		for i := range t.Rows[most:] {
			rest += t.Rows[most+i].NS
		}
		c.out.Printf("%s\n", c.out.Paint(term.Dim, fmt.Sprintf("%d more, %s total", n, term.Duration(rest))))
	}
}

// coverage describes what the figures include and miss.
func coverage(t *topJSON) []string {
	v := &t.Covered
	out := []string{fmt.Sprintf("%s explained by %s", plural(v.Explained, "outlier"), plural(v.Snapshots, "snapshot"))}
	if v.Unexplained > 0 {
		out = append(out, fmt.Sprintf("%d in snapshots without an explanation (%s)", v.Unexplained,
			term.Duration(v.UnexplainedNS)))
	}
	if v.Missed > 0 {
		told := ""
		if v.ToldNS > 0 {
			told = fmt.Sprintf(", %s of it by who ran instead or woke them, or the device", term.Duration(v.ToldNS))
		}
		out = append(out, fmt.Sprintf("%d without a snapshot (%s%s)", v.Missed, term.Duration(v.MissedNS), told))
	}
	if v.Within > 0 {
		out = append(out, fmt.Sprintf("%d more nested in these", v.Within))
	}
	if v.Broken > 0 {
		out = append(out, plural(v.Broken, "snapshot")+" damaged: see \"tailcam snapshots verify\"")
	}
	if d := t.Daemon; d != nil {
		out = append(out, fmt.Sprintf("the daemon counted %s in %s", term.Count(d.Outliers), term.Duration(d.UptimeNS)))
	}
	return out
}

func rowName(by string, r *catalog.Row) string {
	if by == catalog.ByCause || by == catalog.ByWaitSite && r.Kind == catalog.ByCause {
		return term.CauseWords(explain.Cause(r.Name))
	}
	if words := explain.Pattern(r.Name).Words(); by == catalog.ByPattern && words != "" {
		return words
	}
	if by != catalog.ByCulprit && !keepsName(by, r) || r.Kind == explain.KindUnknown {
		return term.Clean(r.Name)
	}
	return term.Who(&explain.Who{Kind: nameKind(r.Kind), Name: r.Name})
}

// nameKind: a row for a task is for all tasks of that name, without an id.
func nameKind(kind string) string {
	if kind == explain.KindTask {
		return ""
	}
	return kind
}

// keepsName reports whether a row is of a culprit that runs nowhere, such as a device.
func keepsName(by string, r *catalog.Row) bool {
	return r.Kind != by && r.Kind != catalog.KindNone && r.Kind != explain.KindUnknown
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

// largestParts names the two largest parts of a row.
func largestParts(by string, r *catalog.Row) string {
	var words []string
	for i := range r.Of {
		if i == 2 || i > 0 && r.Of[i].NS < r.NS/20 {
			break
		}
		name := term.Clean(r.Of[i].Name)
		if by == catalog.ByCulprit || catalog.IsPlace(by) && keepsName(by, r) {
			name = term.CauseWords(explain.Cause(r.Of[i].Name))
		}
		if r.Of[i].NS < r.NS-r.NS/200 {
			name += " " + share(r.Of[i].NS, r.NS)
		}
		words = append(words, name)
	}
	if len(r.Users) > 0 && by == catalog.ByCulprit {
		used := term.Clean(r.Users[0].Name)
		if r.Users[0].NS < r.NS-r.NS/200 {
			used += " " + share(r.Users[0].NS, r.NS)
		}
		words = append(words, "for "+used)
	}
	return strings.Join(words, ", ")
}
