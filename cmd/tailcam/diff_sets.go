package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/record"
	"github.com/tailcam/tailcam/snapshot"
)

// Limits of one side of a comparison of sets.
const (
	maxSetSnapshots = 10_000
	maxSetPacks     = 512 // each is unpacked
)

// diffArgs are two snapshots, or none with --from and --to.
func diffArgs(cmd *cobra.Command, args []string) error {
	from, to := cmd.Flags().Changed("from"), cmd.Flags().Changed("to")
	switch {
	case !from && !to:
		return exactArgs("A", "B")(cmd, args)
	case from != to:
		return usagef("--from and --to need each other")
	case len(args) > 0:
		return usagef("name two snapshots, or --from and --to, not both")
	case cmd.Flags().Changed("outlier"):
		return usagef("--outlier is of two snapshots: it cannot go with --from and --to")
	}
	return nil
}

// diffSets compares sets of snapshots, reports of runs, or histograms.
func (c *cli) diffSets(ctx context.Context, from, to []string) error {
	given := 0
	for _, path := range slices.Concat(from, to) {
		if path == stdinName {
			given++
		}
	}
	if given > 1 {
		return usagef("standard input can be one --from or --to, not several")
	}
	before, err := c.sets(ctx, from)
	if err != nil {
		return fmt.Errorf("--from %w", err)
	}
	after, err := c.sets(ctx, to)
	if err != nil {
		return fmt.Errorf("--to %w", err)
	}
	if len(after) > 1 {
		return usagef("--to names %d sets: name one, or several packs; --from may name several", len(after))
	}
	compared, err := record.CompareSets(before, after[0])
	if err != nil {
		return err
	}
	if c.wantsData() {
		return c.printData(compared)
	}
	compared.Print(c.out)
	return nil
}

// sets reads what the values of one flag name. All packs of it are one set.
func (c *cli) sets(ctx context.Context, paths []string) ([]*record.Set, error) {
	var list []*record.Set
	var packs []string
	for _, path := range paths {
		if path == stdinName {
			set, err := c.stdinSet()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			if set == nil {
				packs = append(packs, path)
			} else {
				list = append(list, set)
			}
			continue
		}
		st, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, unwrapPath(err))
		}
		var set *record.Set
		switch {
		case st.IsDir():
			set, err = c.snapshotSet(ctx, path)
		case strings.HasSuffix(path, packExt):
			packs = append(packs, path)
			continue
		default:
			set, err = record.ReadSet(path)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, set)
	}
	if len(packs) > 0 {
		set, err := record.SnapshotSet(packs[0], c.packedMetas(ctx, packs))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", packs[0], err)
		}
		list = append(list, set)
	}
	return list, nil
}

// stdinSet reads standard input; nil: it is a pack, and not read.
func (c *cli) stdinSet() (*record.Set, error) {
	if c.stdinIsPack() {
		return nil, nil
	}
	data, err := c.readStdin(record.MaxSetFile)
	if err != nil {
		return nil, err
	}
	return record.DecodeSet("<stdin>", bytes.NewReader(data))
}

// packExt ends the names of packs.
const packExt = ".tailcam"

// unwrapPath leaves the path out of an error, which names it already.
func unwrapPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// snapshotSet reads a directory: of a snapshot, of snapshots, or of packs.
func (c *cli) snapshotSet(ctx context.Context, dir string) (*record.Set, error) {
	if _, err := os.Lstat(filepath.Join(dir, snapshot.MetaFile)); err == nil {
		return record.SnapshotSet(dir, func(yield func(*snapshot.Meta, error) bool) { yield(snapshot.ReadMeta(dir)) })
	}
	ids, err := snapshot.IDs(dir)
	if err != nil {
		return nil, err
	}
	packs, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*"+packExt))
	switch {
	case err != nil:
		return nil, err
	case len(ids) > maxSetSnapshots:
		return nil, fmt.Errorf("more than %d snapshots", maxSetSnapshots)
	case len(ids)+len(packs) == 0:
		return nil, nothingf("no snapshots and no packs (*%s) in it", packExt)
	}
	return record.SnapshotSet(dir, func(yield func(*snapshot.Meta, error) bool) {
		for m, err := range c.packedMetas(ctx, packs) {
			if !yield(m, err) {
				return
			}
		}
		for _, id := range ids {
			m, err := snapshot.ReadMeta(filepath.Join(dir, id))
			if err != nil && ctx.Err() == nil {
				c.err.Printf("tailcam: left out: %v\n", err)
				continue
			}
			if !yield(m, errors.Join(err, ctx.Err())) {
				return
			}
		}
	})
}

// escapeGlob makes a path match itself alone.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// packedMetas reads snapshot.json of packs, one after the other.
func (c *cli) packedMetas(ctx context.Context, packs []string) iter.Seq2[*snapshot.Meta, error] {
	return func(yield func(*snapshot.Meta, error) bool) {
		if len(packs) > maxSetPacks {
			yield(nil, fmt.Errorf("more than %d packs: unpack them, and name the directory", maxSetPacks))
			return
		}
		for _, path := range packs {
			dir, err := c.unpacked(ctx, path)
			var m *snapshot.Meta
			if err == nil {
				if m, err = snapshot.ReadMeta(dir); err != nil {
					err = fmt.Errorf("%s: %w", path, err)
				}
				c.removeTemporary() // one at a time
			}
			if !yield(m, err) {
				return
			}
		}
	}
}
