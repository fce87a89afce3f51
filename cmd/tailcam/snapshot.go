package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
)

// takenSnapshot is what `snapshot` reports.
type takenSnapshot struct {
	ID      string `json:"id"`
	Dir     string `json:"dir"`
	Verdict string `json:"verdict,omitempty"` // on the thread that was named
}

func newSnapshot(c *cli) *cobra.Command {
	var req api.TriggerRequest
	var last, after time.Duration
	var explain bool
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Take a snapshot now and print its directory",
		Long: `Have the daemon save the history that it holds now as a snapshot, and print its directory. No
outlier is needed.

With --pid or --tid, the snapshot explains what that thread did, and what it waited for, in
the time before (--last): by default one second, and at most what the recorder holds. With
--cgroup, --unit, --container, --pod, --namespace or --activity it is one of the threads for
which all of these hold: rather one that is blocked, or else one that runs or waits to run.
--explain prints that explanation, too. Programs can ask for the same: see triggers in
docs/snapshots.md.`,
		Example: "  tailcam snapshot --reason \"slow logins\"\n" +
			"  tailcam snapshot --explain --pid $(pidof redis-server) --last 5s\n" +
			"  tailcam snapshot --explain --unit postgresql.service\n" +
			"  tailcam export $(tailcam snapshot) --format perfetto -O now.perfetto-trace",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			globs := req.Globs()
			for _, key := range rules.TargetGlobs {
				if cmd.Flags().Changed(key) && globs[key] == "" {
					return usagef("--%s is empty: must be a glob", key)
				}
			}
			thread := req.PID != 0 || req.TID != 0
			named := thread || len(globs) > 0
			switch {
			case thread && len(globs) > 0:
				return usagef("--pid and --tid name a thread: they cannot be combined with --%s", slices.Min(slices.Collect(maps.Keys(globs))))
			case !named && cmd.Flags().Changed("last"):
				return usagef("--last needs --pid or --tid, or where the thread runs, such as --unit: whose time is it?")
			case !named && explain:
				return usagef("--explain needs --pid or --tid, or where the thread runs, such as --unit: whose time is to be explained?")
			}
			if _, err := rules.NewTarget(globs); err != nil {
				return usagef("invalid --%w", err)
			}
			if named {
				req.Last = last.String()
			}
			req.After = after.String()
			done, err := c.trigger(cmd.Context(), &req)
			if err != nil {
				return err
			}
			return c.printTriggered(done, explain)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Reason, "reason", "", "`text` to store in the snapshot")
	f.IntVar(&req.PID, "pid", 0, "explain the first thread of this `process`")
	f.IntVar(&req.TID, "tid", 0, "explain this `thread`")
	f.StringVar(&req.Cgroup, "cgroup", "", "explain a thread of this cgroup v2, a `glob` such as /system.slice/**")
	f.StringVar(&req.Unit, "unit", "", "explain a thread of this systemd unit, a `glob`")
	f.StringVar(&req.Container, "container", "", "explain a thread of this container, a `glob` on its name or id")
	f.StringVar(&req.Pod, "pod", "", "explain a thread of this pod, a `glob`")
	f.StringVar(&req.Namespace, "namespace", "", "explain a thread of a pod in this namespace, a `glob`")
	f.StringVar(&req.Activity, "activity", "", "explain a thread that works for a live activity of this name, a `glob`")
	f.DurationVar(&last, "last", time.Second, "`duration` before now to explain")
	f.DurationVar(&after, "after", 0, "`duration` to record beyond now, at most 1m")
	f.BoolVar(&explain, "explain", false, "print the explanation, too")
	c.addOutput(cmd)
	c.addSocket(cmd)
	return cmd
}

func (c *cli) trigger(ctx context.Context, req *api.TriggerRequest) (*api.Triggered, error) {
	progress := c.err.Progress("taking a snapshot")
	defer progress.Done()
	return c.client().Trigger(ctx, req)
}

// printTriggered prints a snapshot that was taken.
func (c *cli) printTriggered(done *api.Triggered, explain bool) error {
	verdict := ""
	if done.Explained != nil {
		verdict = done.Explained.Verdict
	}
	if c.wantsData() {
		return c.printData(takenSnapshot{ID: done.ID, Dir: done.Dir, Verdict: verdict})
	}
	c.out.Printf("%s\n", term.Clean(done.Dir))
	if explain {
		return c.explain(&explainOptions{dir: done.Dir, format: "text", out: "-"})
	}
	return nil
}
