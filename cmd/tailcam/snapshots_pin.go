package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/snapshot"
)

// pinning is what `pin` and `unpin` report about one snapshot.
type pinning struct {
	ID     string `json:"id"`
	Pinned bool   `json:"pinned"`
}

func newSnapshotsPin(c *cli) *cobra.Command {
	cmd := c.pinCommand("pin ID…", func(ctx context.Context, cmd *cobra.Command, dir, id string) error {
		keep, err := c.retention(ctx, cmd, dir)
		if err != nil {
			return err
		}
		return snapshot.Pin(dir, id, keep)
	})
	cmd.Short = "Keep snapshots from being removed"
	cmd.Long = `Pin snapshots by id, by a unique prefix of it, or "latest": neither the daemon nor prune nor
rm removes them until they are unpinned, whatever their age.

Pinned snapshots may take half of snapshots.keep.count and half of snapshots.keep.bytes,
so that there is room for new ones: pin fails beyond. If these limits are lowered later,
they win, and of the pinned snapshots the oldest stay.`
	cmd.Example = `  tailcam snapshots pin latest
  tailcam snapshots list                          # KEPT says why each one is kept`
	return cmd
}

func newSnapshotsUnpin(c *cli) *cobra.Command {
	cmd := c.pinCommand("unpin ID…", func(_ context.Context, _ *cobra.Command, dir, id string) error {
		return snapshot.Unpin(dir, id)
	})
	cmd.Short = "Undo pin"
	cmd.Long = `Unpin snapshots by id, by a unique prefix of it, or "latest": they are removed when their
turn comes. A snapshot that is not pinned stays as it is.`
	cmd.Example = `  tailcam snapshots unpin 20261121T013004`
	return cmd
}

func (c *cli) pinCommand(use string, do func(ctx context.Context, cmd *cobra.Command, dir, id string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:               use,
		Args:              someIDs,
		ValidArgsFunction: c.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, picked, err := c.picked(cmd, args)
			if err != nil {
				return err
			}
			for _, id := range picked {
				if err := do(cmd.Context(), cmd, dir, id); err != nil {
					return dirError(filepath.Join(dir, id), err)
				}
				p := pinning{id, snapshot.IsPinned(filepath.Join(dir, id))}
				if c.wantsData() {
					if err := c.printData(p); err != nil {
						return err
					}
					continue
				}
				verb := "unpinned"
				if p.Pinned {
					verb = "pinned"
				}
				c.out.Printf("%s %s\n", verb, term.Clean(id))
			}
			return nil
		},
	}
	c.addOutput(cmd)
	c.addDir(cmd)
	return cmd
}

// someIDs requires an argument.
func someIDs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("missing argument: ID: see \"tailcam snapshots list\"")
	}
	return nil
}

// retention returns the daemon's limits if dir is its directory, else those of the
// configuration.
func (c *cli) retention(ctx context.Context, cmd *cobra.Command, dir string) (snapshot.Retention, error) {
	asking, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if status, err := c.client().Status(asking); err == nil && status.Snapshots.Dir == dir && status.Snapshots.Keep != nil {
		k := status.Snapshots.Keep
		return snapshot.Retention{Count: k.Count, Bytes: k.Bytes, Worst: k.Worst}, nil
	}
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return snapshot.Retention{}, err
	}
	k := &cfg.Snapshots.Keep
	return snapshot.Retention{Count: k.Count, Bytes: uint64(max(k.Bytes, 0)), Worst: k.Worst}, nil
}
