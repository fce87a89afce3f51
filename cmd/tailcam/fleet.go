package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/fleet"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/internal/version"
)

// defaultFleetSince is how far a query of the fleet looks back.
const defaultFleetSince = 24 * time.Hour

// fleetFlags are those of every command that queries the fleet.
type fleetFlags struct {
	url          string
	where        []string
	passwordFile string
	snapshotURL  string
}

// addFleet adds them.
func addFleet(cmd *cobra.Command, f *fleetFlags) {
	cmd.Flags().StringVar(&f.url, "fleet", "",
		"query the engine at this `URL` (clickhouse://, http[s]:// or loki+http[s]://) for all machines")
	cmd.Flags().StringArrayVar(&f.where, "where", nil,
		"with --fleet, only outliers of this `key=value`, such as host=db-1; may be repeated")
	cmd.Flags().StringVar(&f.passwordFile, "fleet-password-file", "",
		"`file` with the password for --fleet (default: the variable "+config.FleetPasswordEnv+")")
	cmd.Flags().StringVar(&f.snapshotURL, "snapshot-url", "",
		"with --fleet, link snapshots by this `template`, such as https://s3.example/{host}/{snapshot}.tailcam")
	// The only error is that of a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("where", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words(fleet.Keys, "="), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// checkFleet finds flags that do not go together.
func checkFleet(cmd *cobra.Command, f *fleetFlags, local ...string) error {
	if !cmd.Flags().Changed("fleet") {
		for _, name := range []string{"where", "fleet-password-file", "snapshot-url", "since-release"} {
			if cmd.Flags().Changed(name) {
				return usagef("--%s needs --fleet", name)
			}
		}
		return nil
	}
	for _, name := range local {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is of this machine: not with --fleet", name)
		}
	}
	if f.url == "" {
		return usagef("invalid --fleet: has no URL, such as https://reader@clickhouse.example:8443/default")
	}
	return nil
}

// openFleet returns the engine and the query that the flags ask for.
func openFleet(f *fleetFlags, since time.Duration, count int) (*fleet.Fleet, *fleet.Query, error) {
	where, err := fleet.ParseWhere(f.where)
	if err != nil {
		return nil, nil, usagef("invalid --where: %w", err)
	}
	if count > fleet.MaxRows {
		return nil, nil, usagef("invalid --count %d: at most %d with --fleet", count, fleet.MaxRows)
	}
	if since == 0 {
		since = defaultFleetSince
	}
	password, err := f.password()
	if err != nil {
		return nil, nil, err
	}
	open, err := fleet.Open(f.url, &fleet.Options{Password: password, SnapshotURL: f.snapshotURL, Version: version.String()})
	if err != nil {
		return nil, nil, usagef("invalid --fleet: %w", err)
	}
	now := time.Now()
	return open, &fleet.Query{Since: now.Add(-since), Until: now.Add(time.Minute), Where: where, Count: count}, nil
}

// maxPassword is more than any password has, in bytes.
const maxPassword = 4096

func (f *fleetFlags) password() (string, error) {
	if f.passwordFile == "" {
		return os.Getenv(config.FleetPasswordEnv), nil
	}
	file, err := os.Open(f.passwordFile)
	if err != nil {
		return "", fmt.Errorf("--fleet-password-file: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxPassword+1))
	if err != nil {
		return "", fmt.Errorf("--fleet-password-file: %w", err)
	}
	if len(text) > maxPassword {
		return "", fmt.Errorf("--fleet-password-file: %s is longer than %d bytes", f.passwordFile, maxPassword)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// words are keys as text.
func words(keys []fleet.Key, suffix string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = string(k) + suffix
	}
	return out
}

// fleetTop is top --fleet.
func (c *cli) fleetTop(ctx context.Context, f *fleetFlags, by, sinceRelease string, since time.Duration, most int) error {
	key, release := fleet.Key(by), fleet.Key(sinceRelease)
	if !slices.Contains(fleet.Keys, key) {
		return usagef("invalid --by %s: must be one of %s with --fleet", by, fleet.Words(fleet.Keys))
	}
	if release != "" && !slices.Contains(fleet.Releases, release) {
		return usagef("invalid --since-release %s: must be one of %s", sinceRelease, fleet.Words(fleet.Releases))
	}
	engine, q, err := openFleet(f, since, most)
	if err != nil {
		return err
	}
	defer engine.Close()
	q.By, q.SinceRelease = key, release
	top, err := engine.Top(ctx, q)
	switch {
	case err != nil:
		return fleetError(err)
	case c.wantsData():
		return c.printData(top)
	}
	c.printFleetTop(top, release != "")
	return nil
}

// fleetError adds what is usually wrong.
func fleetError(err error) error {
	if strings.Contains(err.Error(), "tailcam_outliers") && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: was configs/fleet/clickhouse/outliers.sql loaded into this database?", err)
	}
	return err
}

func (c *cli) printFleetTop(t *fleet.Top, rises bool) {
	if t.Outliers == 0 {
		c.err.Printf("no outliers in the fleet since %s\n", term.Time(t.Since))
		return
	}
	c.out.Printf("%s\n", c.out.Paint(term.Bold, fmt.Sprintf("%s of slow time in %s on %s since %s",
		term.Duration(t.NS), plural(int(t.Outliers), "outlier"), plural(int(t.Hosts), "host"), term.Time(t.Since))))
	covered := fmt.Sprintf("%s explained: %s in the largest part of each", term.Count(uint64(max(t.Explained, 0))), term.Duration(t.ExplainedNS))
	if !t.Exact {
		covered += "; records that came twice may count twice"
	}
	c.out.Printf("%s\n\n", c.out.Paint(term.Dim, covered))
	columns := []term.Column{{Title: strings.ToUpper(string(t.By)), Flex: true}, right("TIME"), right("SHARE"), right("OUTLIERS"),
		right("HOSTS"), {Title: "MAINLY", Flex: true}, right("WORST"), {Title: "SNAPSHOT"}}
	table := term.NewTable(columns...)
	for i := range t.Rows {
		r := &t.Rows[i]
		table.Cells(term.Cell{Text: fleetName(t.By, r), Style: term.Bold}, plain(term.Duration(r.NS)), plain(share(r.NS, t.NS)),
			plain(term.Count(uint64(max(r.Outliers, 0)))), plain(term.Count(uint64(max(r.Hosts, 0)))), plain(fleetParts(t.By, r)),
			plain(term.Duration(r.WorstNS)), linkCell(r.Worst))
	}
	table.Print(c.out, "")
	if rises {
		c.printRises(t)
	}
}

// printRises says since which release rows rose.
func (c *cli) printRises(t *fleet.Top) {
	none := true
	for i := range t.Rows {
		r := t.Rows[i].Rise
		if r == nil {
			continue
		}
		before := term.Duration(r.BeforeNSPerHour) + " before"
		if r.New {
			before = "none before"
		}
		if none {
			c.out.Printf("\n")
			none = false
		}
		c.out.Printf("%s: since %s %s of %s: %s, %s per host and hour\n", c.out.Paint(term.Red, fleetName(t.By, &t.Rows[i])), r.Of,
			term.Clean(r.Release), r.First.Local().Format("2006-01-02 15:04"), before, term.Duration(r.AfterNSPerHour))
	}
	if none {
		c.out.Printf("\n%s\n", c.out.Paint(term.Dim, "nothing rose with a release"))
	}
}

func fleetName(by fleet.Key, r *fleet.Row) string {
	switch {
	case r.Name == "" && (by == fleet.Culprit || by == fleet.Cause):
		return "not explained"
	case r.Name == "":
		return "no " + string(by) + " known"
	case by == fleet.Cause:
		return term.CauseWords(explain.Cause(r.Name))
	case by == fleet.Culprit && r.Kind != "" && r.Kind != explain.KindUnknown:
		return term.Who(&explain.Who{Kind: nameKind(r.Kind), Name: r.Name})
	}
	return term.Clean(r.Name)
}

// fleetParts names the two largest parts of a row.
func fleetParts(by fleet.Key, r *fleet.Row) string {
	var list []string
	for i, p := range r.Of {
		if i == 2 || i > 0 && p.NS < r.NS/20 {
			break
		}
		name := term.Clean(p.Name)
		if by == fleet.Culprit {
			name = term.CauseWords(explain.Cause(p.Name))
		}
		list = append(list, name+" "+share(p.NS, r.NS))
	}
	return strings.Join(list, ", ")
}

func linkCell(l *fleet.Link) term.Cell {
	switch {
	case l == nil:
		return term.Cell{Text: "none", Style: term.Dim}
	case l.URL != "":
		return plain(term.Clean(l.URL))
	}
	id, _, _ := strings.Cut(l.Snapshot, ".") // its time to the second: data has all of it
	return plain(term.Clean(l.Host + ":" + id))
}

// fleetEvents is events --fleet.
func (c *cli) fleetEvents(ctx context.Context, f *fleetFlags, e *eventsFlags) error {
	if e.Rule != "" {
		f.where = append(slices.Clone(f.where), string(fleet.Rule)+"="+e.Rule)
	}
	count := e.count
	if count == 0 {
		count = defaultFleetCount
	}
	engine, q, err := openFleet(f, e.since, count)
	if err != nil {
		return err
	}
	defer engine.Close()
	list, err := engine.Events(ctx, q)
	if err != nil {
		return fleetError(err)
	}
	if c.wantsData() {
		return printList(c, list)
	}
	if len(list) == 0 {
		c.err.Printf("no such outliers in the fleet since %s\n", term.Time(q.Since))
	}
	for i := range list {
		c.printFleetEvent(&list[i])
	}
	return nil
}

// defaultFleetCount is how many outliers events --fleet prints.
const defaultFleetCount = 100

func (c *cli) printFleetEvent(e *fleet.Event) {
	where := c.out.Paint(term.Cyan, term.Clean(e.Host))
	for _, s := range []string{e.Pod, e.Unit} {
		if s != "" {
			where += " " + term.Clean(s)
			break
		}
	}
	c.out.Printf("%s  %s  %s\n", c.out.Paint(term.Dim, term.Time(e.Time)), where, term.Clean(e.Summary))
	if l := e.Snapshot; l != nil {
		c.out.Printf("    %s\n", c.out.Paint(term.Dim, term.Clean(cmp.Or(l.URL, l.Host+":"+l.Snapshot))))
	}
}
