package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/pack"
	"github.com/tailcam/tailcam/internal/redact"
	"github.com/tailcam/tailcam/internal/redacted"
	"github.com/tailcam/tailcam/internal/term"
)

// packed is what `snapshots pack` reports.
type packed struct {
	ID    string `json:"id"`
	File  string `json:"file"`
	Bytes int64  `json:"bytes"` // of the file
	// Redacted says what was replaced; absent: nothing.
	Redacted *redact.Summary `json:"redacted,omitempty"`
}

func newSnapshotsPack(c *cli) *cobra.Command {
	var out string
	var force bool
	var redaction []string
	cmd := &cobra.Command{
		Use:   "pack [ID|DIR]",
		Short: "Make one file of a snapshot, to share it",
		Long: `Make one compressed file of a snapshot, the newest by default. explain, export, diff and
snapshots show take such a file where they take a directory, on any machine, or - for one on
standard input. It is a tar archive with checksums: tar --zstd -x opens it, too.

It holds what the snapshot holds: names of programs, users' command lines, files and
cgroups. With --redact, each name becomes a pseudonym, everywhere the same: the verdict,
the time line and the stacks stay. How much was replaced is listed on standard error and
in the file. Kinds of names: users, commands, arguments, files, addresses, hosts, places
(cgroups, units, containers, pods), labels (of rules, reasons), functions (of programs).
--redact is --redact=usual, all but functions. Times, numbers, rules, kernel functions
and kernel threads stay; files that actions have written are left out.

Exit status: 3 there is no snapshot yet, and no other was asked for.`,
		Example: `  tailcam snapshots pack latest -O slow.tailcam
  tailcam explain slow.tailcam
  tailcam snapshots pack latest --redact -O to-show.tailcam
  tailcam snapshots pack latest --redact=users,arguments,addresses
  tailcam snapshots pack latest -O - | ssh host tailcam explain -`,
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
			var kinds []redact.Kind
			if cmd.Flags().Changed("redact") {
				if kinds, err = redacted.ParseKinds(redaction); err != nil {
					return usagef("invalid --redact: %v", err)
				}
			}
			return c.pack(cmd.Context(), dir, out, force, kinds)
		},
	}
	cmd.Flags().StringVarP(&out, "out", "O", "", "output `path`, - for standard output (default: ID.tailcam)")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	cmd.Flags().StringSliceVar(&redaction, "redact", nil, "replace names of these `kinds` by pseudonyms")
	cmd.Flags().Lookup("redact").NoOptDefVal = "usual"
	_ = cmd.RegisterFlagCompletionFunc("redact",
		cobra.FixedCompletions(append([]string{"usual", "all"}, texts(redact.Kinds)...), cobra.ShellCompDirectiveNoFileComp))
	c.addOutput(cmd)
	c.addDir(cmd)
	return cmd
}

// pack packs the snapshot in dir; kinds nil: as it is.
func (c *cli) pack(ctx context.Context, dir, out string, force bool, kinds []redact.Kind) error {
	if _, err := os.Lstat(out); err == nil && !force && out != stdinName {
		return fmt.Errorf("%s already exists: use --force to overwrite it", out)
	}
	var summary *redact.Summary
	if kinds != nil {
		into, err := c.temporaryDir()
		if err != nil {
			return fmt.Errorf("pack: %w", err)
		}
		from := dir
		dir = filepath.Join(into, filepath.Base(from))
		if summary, err = redacted.Copy(ctx, dir, from, kinds); err != nil {
			return dirError(from, err)
		}
		c.listRedacted(summary)
	}
	if out == stdinName { // -
		_, err := pack.WriteRedacted(c.out, dir, summary)
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
	m, err := pack.WriteRedacted(f, dir, summary)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(out)) // half a file is worth nothing
	}
	st, err := os.Stat(out)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	if c.wantsData() {
		return c.printData(packed{ID: m.ID, File: out, Bytes: st.Size(), Redacted: summary})
	}
	c.out.Printf("%s\n", term.Clean(out))
	return nil
}

// listRedacted lists what was replaced, on standard error: standard output may be the file.
func (c *cli) listRedacted(s *redact.Summary) {
	for _, k := range append(slices.Clone(redact.Kinds), redact.Others) {
		n := s.Replaced[k]
		switch {
		case n.Names > 0:
			c.err.Printf("%-10s %6s replaced, %s times\n", k, term.Count(uint64(n.Names)), term.Count(uint64(n.Times)))
		case k != redact.Others && !slices.Contains(s.Kinds, k):
			c.err.Printf("%-10s %6s\n", k, "kept")
		}
	}
	if s.Secrets > 0 {
		c.err.Printf("%-10s %6s removed\n", "secrets", term.Count(uint64(s.Secrets)))
	}
	if s.FilesLeftOut > 0 {
		c.err.Printf("left out: %s, as what actions wrote is not known\n", plural(s.FilesLeftOut, "file"))
	}
}

// temporaryDir creates a directory that is removed when the command ends.
func (c *cli) temporaryDir() (string, error) {
	dir, err := os.MkdirTemp("", "tailcam-")
	if err == nil {
		c.temporary = append(c.temporary, dir)
	}
	return dir, err
}

// unpacked unpacks a file into a temporary directory, which is removed when the command
// ends, and returns that of the snapshot; - is standard input.
func (c *cli) unpacked(ctx context.Context, file string) (string, error) {
	if file == stdinName {
		return c.unpackedStdin(ctx)
	}
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { _ = f.Close() }) // a pipe that never ends
	defer stop()
	return c.unpackedFrom(f, file)
}

// unpackedStdin does the same with standard input, which is not read beyond the pack.
func (c *cli) unpackedStdin(ctx context.Context) (string, error) {
	out, in := io.Pipe() // closing standard input ends no read from it
	go func() {
		_, err := io.Copy(in, c.deps.stdin)
		in.CloseWithError(err)
	}()
	defer out.CloseWithError(io.ErrClosedPipe)
	stop := context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) })
	defer stop()
	return c.unpackedFrom(out, "<stdin>")
}

func (c *cli) unpackedFrom(in io.Reader, name string) (string, error) {
	into, err := c.temporaryDir()
	if err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	dir, err := pack.Read(in, into)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return dir, nil
}

// removeTemporary removes what unpacked made.
func (c *cli) removeTemporary() {
	for _, dir := range c.temporary {
		_ = os.RemoveAll(dir)
	}
}
