package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/pack"
	"github.com/tailcam/tailcam/internal/term"
)

// packed is what `snapshots pack` reports.
type packed struct {
	ID    string `json:"id"`
	File  string `json:"file"`
	Bytes int64  `json:"bytes"` // of the file
}

func newSnapshotsPack(c *cli) *cobra.Command {
	var out string
	var force bool
	cmd := &cobra.Command{
		Use:   "pack [ID|DIR]",
		Short: "Make one file of a snapshot, to share it",
		Long: `Make one compressed file of a snapshot, the newest by default. explain, export, diff and
snapshots show take such a file where they take a directory, on any machine. It is a tar
archive with checksums: tar --zstd -x opens it, too.

It holds what the snapshot holds: names of programs, users' command lines, files and
cgroups. Nothing is redacted.

Exit status: 3 there is no snapshot yet, and no other was asked for.`,
		Example: `  tailcam snapshots pack latest -O slow.tailcam
  tailcam explain slow.tailcam
  tailcam snapshots pack latest -O - | ssh host "cat >slow.tailcam; tailcam explain slow.tailcam"`,
		Args:              maxArgs(1),
		ValidArgsFunction: c.completeDirs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := c.findSnapshot(cmd.Context(), cmd, append(args, latest)[0])
			if err != nil {
				return err
			}
			if out == "" {
				out = filepath.Base(dir) + pack.Ext
			}
			return c.pack(dir, out, force)
		},
	}
	cmd.Flags().StringVarP(&out, "out", "O", "", "output `path`, - for standard output (default: ID.tailcam)")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	c.addOutput(cmd)
	c.addDir(cmd)
	return cmd
}

func (c *cli) pack(dir, out string, force bool) error {
	if out == stdinName { // -
		_, err := pack.Write(c.out, dir)
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if !force {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(out, flags, 0o600) // it may hold command lines
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s already exists: use --force to overwrite it", out)
	}
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	m, err := pack.Write(f, dir)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(out)) // half a file is worth nothing
	}
	st, err := os.Stat(out)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	if c.wantsData() {
		return c.printData(packed{ID: m.ID, File: out, Bytes: st.Size()})
	}
	c.out.Printf("%s\n", term.Clean(out))
	return nil
}

// unpacked unpacks a file into a temporary directory, which is removed when the command
// ends, and returns that of the snapshot.
func (c *cli) unpacked(ctx context.Context, file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	defer f.Close()
	into, err := os.MkdirTemp("", "tailcam-")
	if err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	c.temporary = append(c.temporary, into)
	stop := context.AfterFunc(ctx, func() { _ = f.Close() }) // a pipe that never ends
	defer stop()
	dir, err := pack.Read(f, into)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return dir, nil
}

// removeTemporary removes what unpacked made.
func (c *cli) removeTemporary() {
	for _, dir := range c.temporary {
		_ = os.RemoveAll(dir)
	}
}
