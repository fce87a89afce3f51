package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/snapshot"
)

func newSnapshots(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshots",
		Short: "List, show, pin, pack, remove and verify snapshots",
		Long: `List, show, pin, pack, remove and verify the snapshots on disk. No daemon is needed; a running
one is not disturbed. Snapshots are named by id, by a unique prefix of it, or "latest".`,
		Example: `  tailcam snapshots list
  tailcam snapshots show                          # the newest one
  tailcam snapshots pin 20261121T013004
  tailcam snapshots rm 20261121T013004
  tailcam snapshots prune --older-than 7d --dry-run
  tailcam snapshots verify`,
		Args: cobra.ArbitraryArgs,
		RunE: runSubcommand("list, show, pin, unpin, pack, rm, prune or verify"),
	}
	cmd.AddCommand(newSnapshotsList(c, "list"), newSnapshotsShow(c), newSnapshotsPin(c), newSnapshotsUnpin(c), newSnapshotsPack(c),
		newSnapshotsRemove(c), newSnapshotsPrune(c), newSnapshotsVerify(c))
	return cmd
}

// newSnapshotsList is `snapshots list`, and `list snapshots`.
func newSnapshotsList(c *cli, name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name,
		Short: "List snapshots, oldest first",
		Long: `List the snapshots on disk, oldest first, each with its slowest outlier and what
caused it. The first column is a unique prefix of the id. KEPT is what keeps it from being
removed before others: pinned, worst (of its rule), newest (of its rule), culprit (worst
of its rule and culprit), or recent.`,
		Example:           "  tailcam list snapshots\n  tailcam snapshots list -o json",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.listSnapshots(cmd.Context(), cmd)
		},
	}
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addDir(cmd)
	return cmd
}

func (c *cli) listSnapshots(ctx context.Context, cmd *cobra.Command) error {
	dir, err := c.snapshotsDir(ctx, cmd)
	var list []catalog.Snapshot
	var broken []snapshot.Broken
	if err == nil {
		progress, step := c.counting("reading snapshots")
		list, broken, err = catalog.Read(dir, catalog.Options{Progress: step})
		progress.Done()
		c.addKept(ctx, cmd, dir, list)
	}
	switch {
	case errors.Is(err, errOtherDir), errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		// The daemon lists them for those who may use its socket.
		known, asked := c.client().Snapshots(ctx)
		if asked != nil {
			return dirError(dir, err)
		}
		list = daemonSnapshots(known)
	case err != nil:
		return err
	}
	for _, b := range broken {
		c.err.Printf("%s cannot read snapshot %s: %s\n", c.err.Paint(term.Yellow, "tailcam:"), term.Clean(b.ID),
			term.Clean(b.Err.Error()))
	}
	if c.wantsData() {
		return printList(c, list)
	}
	if len(list) == 0 {
		c.out.Printf("no snapshots in %s\n", term.Clean(dir))
		return nil
	}
	c.snapshotTable(list)
	var bytes uint64
	for i := range list {
		bytes += list[i].Bytes
	}
	c.out.Printf("%s\n", c.out.Paint(term.Dim,
		fmt.Sprintf("%s, %s in %s", plural(len(list), "snapshot"), term.Bytes(bytes), term.Clean(dir))))
	return nil
}

// addKept notes why snapshots are kept. Without that, the list is still of use.
func (c *cli) addKept(ctx context.Context, cmd *cobra.Command, dir string, list []catalog.Snapshot) {
	keep, err := c.retention(ctx, cmd, dir)
	if err != nil {
		keep = snapshot.Retention{Worst: snapshot.DefaultWorst}
	}
	why, err := snapshot.WhyKept(dir, keep)
	if err != nil {
		return
	}
	for i := range list {
		list[i].Kept = why[list[i].ID]
	}
}

func keptCell(s *catalog.Snapshot) term.Cell {
	switch {
	case s.Kept == snapshot.KeptPinned:
		return term.Cell{Text: s.Kept, Style: term.Bold}
	case s.Pinned: // beyond what may be
		return term.Cell{Text: "pin ignored", Style: term.Yellow}
	}
	return term.Cell{Text: term.Clean(s.Kept), Style: term.Dim}
}

// withTime is the least width of a terminal to show the local time next to an
// id, which holds the time in UTC.
const withTime = 110

func (c *cli) snapshotTable(list []catalog.Snapshot) {
	timed := !c.out.Terminal() || c.out.Columns() >= withTime
	columns := []term.Column{{Title: "SNAPSHOT"}, {Title: "TIME"}, {Title: "RULE", Flex: true}, right("DELAY"),
		{Title: "TASK", Flex: true}, {Title: "BLAME", Flex: true}, {Title: "KEPT"}, right("SIZE")}
	if !timed {
		columns = slices.Delete(columns, 1, 2)
	}
	t := term.NewTable(columns...)
	for i := range list {
		s := &list[i]
		cells := []term.Cell{{Text: term.Clean(s.Short), Style: term.Bold}, plain(term.Time(s.Time)), ruleCell(s),
			lengthCell(s.DelayNS), plain(taskCell(s)), blameCell(s), keptCell(s), plain(term.Bytes(s.Bytes))}
		if !timed {
			cells = slices.Delete(cells, 1, 2)
		}
		t.Cells(cells...)
	}
	t.Print(c.out, "")
}

func ruleCell(s *catalog.Snapshot) term.Cell {
	if s.ByHand() {
		return term.Cell{Text: term.Shorten(strings.TrimSpace("manual "+term.Clean(s.Reason)), 40), Style: term.Dim}
	}
	return term.Cell{Text: term.Clean(s.Rule), Style: term.Cyan}
}

func lengthCell(ns int64) term.Cell {
	if ns <= 0 {
		return term.Cell{Text: "-", Style: term.Dim}
	}
	return plain(term.Duration(ns))
}

func taskCell(s *catalog.Snapshot) string {
	if s.Task == nil {
		return ""
	}
	text := fmt.Sprintf("%s[%d]", term.Clean(s.Task.Name()), s.Task.TID)
	if s.Outliers > 1 {
		text += fmt.Sprintf(" +%d", s.Outliers-1)
	}
	return text
}

// blameCell is what caused the slowest outlier.
func blameCell(s *catalog.Snapshot) term.Cell {
	if s.Blame == nil {
		return term.Cell{Text: "", Style: term.Dim}
	}
	return term.Cell{Text: term.Blame(s.Blame.Cause, s.Blame.By), Style: term.CauseStyle(s.Blame.Cause)}
}

// counting shows the progress of work on many items.
func (c *cli) counting(label string) (progress *term.Progress, step func(done, all int)) {
	progress = c.err.Progress(label)
	return progress, func(done, all int) { progress.Update(fmt.Sprintf("%s, %d of %d", label, done, all)) }
}

// daemonSnapshots converts the daemon's list, for users who may not read the directory.
func daemonSnapshots(list []api.SnapshotInfo) []catalog.Snapshot {
	var ids []string
	for i := range list {
		ids = append(ids, list[i].ID)
	}
	out := []catalog.Snapshot{}
	for i, short := range snapshot.Short(ids) {
		s := &list[i]
		out = append(out, catalog.Snapshot{Short: short, Info: snapshot.Info{
			ID: s.ID, Time: s.Time, Rule: s.Rule, Reason: s.Reason, DelayNS: s.DelayNS, Bytes: s.Bytes, Dir: s.Dir,
			Pinned: s.Pinned, Kept: s.Kept,
		}})
	}
	return out
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return term.Count(uint64(max(n, 0))) + " " + noun + "s"
}
