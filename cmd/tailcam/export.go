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
		Use:   "export DIR|ID --format FORMAT [-O OUT]",
		Short: "Turn a snapshot into what other tools open",
		Long: `Turns a snapshot into what other tools open. It needs neither root nor the daemon,
and holds no more of a trace in memory than its tasks and CPUs.

  perfetto  for https://ui.perfetto.dev and trace_processor: CPUs, threads, interrupts, system
            calls, disks, the outliers with their stacks and critical paths, and who woke whom
  ctf       the trace as it is, for babeltrace2, Trace Compass and LTTng's tools: a directory
  folded    stacks and nanoseconds a line, for flamegraph.pl, inferno and speedscope (--time)
  svg       the same as a flame graph for a browser: click to zoom, search; nothing else needed
  text      lines as perf script prints them
  json      one object an event: time, mono_ns, cpu, tid, event, fields{…}`,
		Example: `  tailcam export 20261121T013004 --format perfetto -O slow.perfetto-trace
  tailcam export 20261121T013004 --format svg --time offcpu -O offcpu.svg
  tailcam export 20261121T013004 --format json --before 10ms --after 0s | jq 'select(.event == "sched_switch")'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Format, o.Time = export.Format(format), flame.Kind(kind)
			for _, name := range []string{"before", "after"} {
				if d, _ := cmd.Flags().GetDuration(name); d < 0 && cmd.Flags().Changed(name) {
					return fmt.Errorf("--%s %s: it cannot be negative; leave it out for all that there is", name, d)
				}
			}
			if err := c.checkExport(args, &o); err != nil {
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
	f.StringVar(&format, "format", "", "one of "+oneOf(export.Formats))
	f.StringVarP(&o.Out, "out", "O", export.Stdout, "`path` to write, - is the standard output; a directory for ctf")
	f.BoolVar(&o.Force, "force", false, "replace what is there")
	f.DurationVar(&o.Before, "before", -1, "only so much before the first outlier begins (default all)")
	f.DurationVar(&o.After, "after", -1, "only so much after the last outlier ends (default all)")
	f.StringVar(&kind, "time", string(flame.OutlierTime), "folded and svg: time of `what`: "+oneOf(flame.Kinds))
	f.BoolVar(&o.KeepGoing, "keep-going", false, "of a damaged trace, export what can be read")
	for _, name := range []string{"before", "after"} {
		f.Lookup(name).DefValue = "0s" // -1 is no duration to be told of
	}
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(texts(export.Formats), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("time", cobra.FixedCompletions(texts(flame.Kinds), cobra.ShellCompDirectiveNoFileComp))
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

// checkExport says what is wrong with a command line.
func (c *cli) checkExport(args []string, o *export.Options) error {
	switch {
	case len(args) != 1:
		return errors.New("export wants one snapshot, its directory or its id: see \"tailcam snapshots list\"")
	case o.Format == "":
		return fmt.Errorf("--format is missing: one of %s", oneOf(export.Formats))
	case !slices.Contains(export.Formats, o.Format):
		return fmt.Errorf("--format %s: allowed are %s", o.Format, oneOf(export.Formats))
	case !slices.Contains(flame.Kinds, o.Time):
		return fmt.Errorf("--time %s: allowed are %s", o.Time, oneOf(flame.Kinds))
	case o.Out == "":
		return errors.New("-O is empty: name a file, or - for the standard output")
	case o.Format == export.Perfetto && o.Out == export.Stdout && c.out.Terminal():
		return errors.New("perfetto is no text: name a file with -O, or pipe it")
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
		return fmt.Errorf("%w: --keep-going exports the rest", err)
	}
	if err != nil {
		return err
	}
	for _, damage := range r.Damage {
		c.err.Printf("%s left out: %s\n", c.err.Paint(term.Yellow, "tailcam:"), term.Clean(damage.Error()))
	}
	return nil
}
