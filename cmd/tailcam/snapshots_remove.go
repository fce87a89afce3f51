package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/snapshot"
)

// removal is what `rm` and `prune` report about one snapshot.
type removal struct {
	ID      string `json:"id"`
	Bytes   uint64 `json:"bytes"`
	Removed bool   `json:"removed"`
	Limit   string `json:"limit,omitempty"` // prune: the one that it exceeds
	Error   string `json:"error,omitempty"`
}

func newSnapshotsRemove(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm ID…",
		Short: "Remove snapshots",
		Long: `Remove snapshots by id, by a unique prefix of it, or "latest". If one of them does not exist,
is ambiguous or pinned, nothing is removed.

The daemon may be running. A snapshot that it is still writing, or that one of its
actions uses, is not removed: this is an error.`,
		Example:           "  tailcam snapshots rm 20261121T013004 20261121T020000",
		Args:              someIDs,
		ValidArgsFunction: c.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, picked, err := c.picked(cmd, args)
			if err != nil {
				return err
			}
			for _, id := range picked {
				if snapshot.IsPinned(filepath.Join(dir, id)) {
					return fmt.Errorf("%s is pinned: see \"tailcam snapshots unpin\"", id)
				}
			}
			var list []removal
			for _, id := range picked {
				freed, err := snapshot.Remove(dir, id)
				list = append(list, removalOf(dir, id, freed, "", err))
			}
			return c.printRemovals(list, false)
		},
	}
	c.addOutput(cmd)
	c.addDir(cmd)
	return cmd
}

func newSnapshotsPrune(c *cli) *cobra.Command {
	var keep snapshot.Retention
	var dry bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the snapshots least worth keeping",
		Long: `Remove snapshots until the rest is within all given limits, in the order in which the
daemon does it: those that are too old, then those of the rule that takes most, and of
them the oldest that are not among its worst or the worst of their culprit. Pinned
snapshots, and those in use by a running daemon, are kept.`,
		Example: `  tailcam snapshots prune --keep-count 100 --dry-run
  tailcam snapshots prune --older-than 7d --keep-bytes 10GiB`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep == (snapshot.Retention{}) {
				return usagef("missing flag: --keep-count, --keep-bytes or --older-than: %s", seeHelp(cmd))
			}
			dir, err := c.snapshotsDir(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			order, err := c.retention(cmd.Context(), cmd, dir)
			if err != nil {
				return err
			}
			keep.Worst = order.Worst
			pruned, left, err := snapshot.Prune(dir, keep, time.Now(), dry)
			if err != nil {
				return dirError(dir, err)
			}
			if left.Pinned > 0 && (keep.Count > 0 && left.Count > keep.Count || keep.Bytes > 0 && left.Bytes > keep.Bytes) {
				c.err.Printf("%s %s, %s remain: %d of them pinned\n", c.err.Paint(term.Yellow, "tailcam:"),
					plural(left.Count, "snapshot"), term.Bytes(left.Bytes), left.Pinned)
			}
			list := []removal{}
			for _, p := range pruned {
				r := removalOf(dir, p.ID, p.Bytes, p.Limit, p.Err)
				r.Removed = r.Removed && !dry
				list = append(list, r)
			}
			return c.printRemovals(list, dry)
		},
	}
	cmd.Flags().Var((*countValue)(&keep.Count), "keep-count", "keep this `number` of snapshots")
	cmd.Flags().Var((*bytesValue)(&keep.Bytes), "keep-bytes",
		"keep snapshots up to this `size`, such as 500MiB")
	cmd.Flags().Var((*ageValue)(&keep.Age), "older-than",
		"remove snapshots older than this `duration`, such as 36h or 7d")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only print what would be removed")
	c.addOutput(cmd)
	c.addDir(cmd)
	return cmd
}

func removalOf(dir, id string, bytes uint64, limit string, err error) removal {
	r := removal{ID: id, Bytes: bytes, Limit: limit, Removed: err == nil}
	if err != nil {
		r.Error = dirError(filepath.Join(dir, id), err).Error()
	}
	return r
}

// printRemovals reports what was removed; it fails if a removal failed.
func (c *cli) printRemovals(list []removal, dry bool) error {
	var failed int
	var sum uint64
	for i := range list {
		r := &list[i]
		if r.Error != "" {
			failed++
			c.printError(errors.New(r.Error))
		} else {
			sum += r.Bytes
		}
	}
	if c.wantsData() {
		if err := printList(c, list); err != nil {
			return err
		}
	} else {
		verb := "removed"
		if dry {
			verb = "would remove"
		}
		for i := range list {
			if r := &list[i]; r.Error == "" {
				why := ""
				if r.Limit != "" {
					why = c.out.Paint(term.Dim, "  limit: "+r.Limit)
				}
				c.out.Printf("%s %s  %8s%s\n", verb, term.Clean(r.ID), term.Bytes(r.Bytes), why)
			}
		}
		if n := len(list) - failed; n != 1 {
			c.out.Printf("%s\n", c.out.Paint(term.Dim, fmt.Sprintf("%s %s, %s", verb, plural(n, "snapshot"), term.Bytes(sum))))
		}
	}
	if failed > 0 {
		return errReported
	}
	return nil
}
