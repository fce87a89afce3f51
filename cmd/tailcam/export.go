package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/export"
	"github.com/tailcam/tailcam/export/flame"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot/trace"
)

func newExport(c *cli) *cobra.Command {
	var o export.Options
	var format, kind string
	cmd := &cobra.Command{
		Use:   "export DIR|ID|FILE|- --format FORMAT [-O OUT]",
		Short: "Export a snapshot to the format of another tool",
		Long: `Export a snapshot to the format of another tool. Needs neither root nor the daemon.

  perfetto  for https://ui.perfetto.dev and trace_processor: CPUs, threads, interrupts, system
            calls, disks, wake-ups, and the outliers with their stacks and critical paths
  ctf       the trace directory, for babeltrace2, Trace Compass and LTTng tools
  folded    folded stacks with nanoseconds, for flamegraph.pl, inferno and speedscope (see --time)
  svg       the same as an interactive flame graph for a browser
  text      lines in the format of perf script
  json      one object per event: time, mono_ns, cpu, tid, event, fields{…}

The ID "latest" is the newest snapshot; - is a packed one (*.tailcam) on standard input.

Exit status: 3 there is no snapshot yet, and the latest was asked for.`,
		Example: `  tailcam export latest --format perfetto -O slow.perfetto-trace
  tailcam export 20261121T013004 --format svg --time offcpu -O offcpu.svg
  tailcam export 20261121T013004 --format json --before 10ms --after 0s | jq 'select(.event == "sched_switch")'`,
		Args: exactArgs("DIR|ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Format, o.Time = export.Format(format), flame.Kind(kind)
			for _, name := range []string{"before", "after"} {
				if d, _ := cmd.Flags().GetDuration(name); d < 0 && cmd.Flags().Changed(name) {
					return usagef("invalid --%s %s: must not be negative (default: all)", name, d)
				}
			}
			if err := c.checkExport(&o); err != nil {
				return err
			}
			dir, err := c.findSnapshot(cmd.Context(), cmd, args[0])
			if err != nil {
				return err
			}
			return c.export(cmd.Context(), dir, &o)
		},
		ValidArgsFunction: c.completeDirs(1),
	}
	c.addDir(cmd)
	f := cmd.Flags()
	f.StringVar(&format, "format", "", "output `format`: one of "+oneOf(export.Formats))
	f.StringVarP(&o.Out, "out", "O", export.Stdout, "output `path`, - for standard output; a directory for ctf")
	f.BoolVar(&o.Force, "force", false, "overwrite an existing file")
	f.DurationVar(&o.Before, "before", -1, "export only this `duration` before the first outlier begins (default: all)")
	f.DurationVar(&o.After, "after", -1, "export only this `duration` after the last outlier ends (default: all)")
	f.StringVar(&kind, "time", string(flame.OutlierTime), "folded and svg: the `kind` of time: "+oneOf(flame.Kinds))
	f.BoolVar(&o.KeepGoing, "keep-going", false, "export the readable part of a damaged trace")
	for _, name := range []string{"before", "after"} {
		f.Lookup(name).DefValue = "0s" // do not show -1 in the help
	}
	_ = cmd.RegisterFlagCompletionFunc("format",
		cobra.FixedCompletions(texts(export.Formats), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("time",
		cobra.FixedCompletions(texts(flame.Kinds), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

func oneOf[T ~string](list []T) string { return strings.Join(texts(list), ", ") }

// checkExport validates the flags.
func (c *cli) checkExport(o *export.Options) error {
	switch {
	case o.Format == "":
		return usagef("missing flag: --format (one of %s)", oneOf(export.Formats))
	case !slices.Contains(export.Formats, o.Format):
		return usagef("invalid --format %s: must be one of %s", o.Format, oneOf(export.Formats))
	case !slices.Contains(flame.Kinds, o.Time):
		return usagef("invalid --time %s: must be one of %s", o.Time, oneOf(flame.Kinds))
	case o.Out == "":
		return usagef("invalid -O \"\": must be a file, or - for standard output")
	case o.Format == export.Perfetto && o.Out == export.Stdout && c.out.Terminal():
		return usagef("perfetto output is binary: write it to a file with -O, or to a pipe")
	}
	return nil
}

func (c *cli) export(ctx context.Context, dir string, o *export.Options) error {
	o.SyscallName = func(nr int) string {
		if name := rules.SyscallName(nr); !strings.HasPrefix(name, "syscall_") {
			return name
		}
		return ""
	}
	label := "exporting " + string(o.Format)
	if c.err.Terminal() && !(o.Out == export.Stdout && c.out.Terminal()) {
		progress := c.err.Progress(label)
		defer progress.Done()
		o.Progress = func(done, total uint64) {
			progress.Update(fmt.Sprintf("%s %s of %s", label, term.Bar(done, total), term.Bytes(total)))
		}
	}
	r, err := export.Run(ctx, dir, c.out, o)
	if errors.Is(err, trace.ErrDamaged) && o.Format != export.CTF {
		return fmt.Errorf("%w: use --keep-going to export the rest", err)
	}
	if err != nil {
		return err
	}
	for _, damage := range r.Damage {
		c.err.Printf("%s skipped: %s\n", c.err.Paint(term.Yellow, "tailcam:"), term.Clean(damage.Error()))
	}
	if r.Inserted > 0 {
		c.err.Printf("the kernel left out switches: the export has %d in their place (track \"switches not seen\")\n", r.Inserted)
	}
	return nil
}
