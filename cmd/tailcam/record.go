package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/record"
	"github.com/tailcam/tailcam/rules"
)

// recordFlags are those of record.
type recordFlags struct {
	rules, failOn, compare []string
	length                 time.Duration
	dir, user, junit, out  string
}

func newRecord(c *cli) *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record [flags] [--] [COMMAND [ARGUMENT…]]",
		Short: "Watch while a command runs, and fail if rules fire (needs root)",
		Long: `Run a command, for a test or a job of CI, with a daemon of its own: beside a running one,
with another socket, nothing pinned, and the default configuration. Then print what rules
have seen: outliers, culprits and percentiles. Without a command, watch for --for, or until
SIGINT. Rules watch the whole machine; conditions (when:) narrow them.

With --for, a command that still runs is ended: SIGTERM, and SIGKILL after 5 s. Signals are
passed on. Standard output is the command's, and the report goes to standard error; with
-o json or yaml, the command's output goes to standard error and the report to standard
output. The command runs as who runs tailcam, unless --user says otherwise.

A run fails if there is any outlier. --fail-on EXPRESSION replaces that, and may be repeated:
'p99(RULE) > 5ms', with p50, p90, p99, p99.9 or max of all delays, 'count(RULE) > 10' of
outliers, 'slower(RULE)' with --compare, or 'never'.

-O FILE writes the report as JSON. A later run with --compare FILE says which percentiles,
rates of outliers and culprits have changed, and "undecided" where the noise is larger than
that. Several baselines show how much runs differ by themselves.

Snapshots are removed at the end, unless --snapshots-dir names a directory for them.

Exit status: 0 no check failed and the command ended with 0, 3 a check failed, 1 failed before
the command could be judged, else the exit status of the command (of a signal 128 and its
number) if no check failed and it was not ended by --for.`,
		Example: "  sudo tailcam record --rules ci.yaml -- make test\n" +
			"  sudo tailcam record --rules ci.yaml --for 60s --fail-on 'p99(wakeup) > 5ms' --junit tailcam.xml -- ./load-test\n" +
			"  sudo tailcam record --rules ci.yaml --fail-on 'slower(fsync)' --compare main.json -O this.json -- ./bench",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.record(cmd.Context(), &f, args)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command is the command's
	flags.StringSliceVar(&f.rules, "rules", rules.DefaultPaths, "rule `files` and directories of rule files")
	flags.DurationVar(&f.length, "for", 0, "watch no longer than this `duration` (0: until the command ends)")
	flags.StringVar(&f.user, "user", "", "`user` to run the command as, by name or number")
	flags.StringArrayVar(&f.failOn, "fail-on", nil, "`expression` under which the run fails (default: any outlier)")
	flags.StringVar(&f.junit, "junit", "", "also write the report as JUnit XML to this `path`")
	flags.StringVarP(&f.out, "out", "O", "", "also write the report as JSON to this `path`")
	flags.StringArrayVar(&f.compare, "compare", nil, "compare with the `report` of an earlier run (-O); may be repeated")
	flags.StringVar(&f.dir, dirFlag, "", "keep snapshots in this `directory`")
	c.addOutput(cmd)
	return cmd
}

func (c *cli) record(ctx context.Context, f *recordFlags, command []string) error {
	if f.length < 0 {
		return usagef("invalid --for %s: must not be negative", f.length)
	}
	if len(command) == 0 && f.user != "" {
		return usagef("--user needs a command to run")
	}
	list, err := c.deps.loadRules(f.rules)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("no rules in %s", strings.Join(f.rules, ", "))
	}
	checks, err := record.ParseChecks(f.failOn, list, len(f.compare) > 0)
	if err != nil {
		return usagef("--fail-on: %w", err)
	}
	baselines, err := record.ReadBaselines(f.compare)
	if err != nil {
		return err
	}
	if err := checkWritable(f.junit, f.out); err != nil {
		return err
	}
	if _, err := checkPrivileges(); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if _, err := checkResources(); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	o := &record.Options{
		Files: f.rules, Rules: list, For: f.length, Dir: f.dir, Command: command, User: f.user,
		Stdout: os.Stdout, Stderr: os.Stderr, Console: c.err,
	}
	if c.wantsData() {
		o.Stdout = os.Stderr
	}
	if o.Dir != "" {
		if o.Dir, err = filepath.Abs(o.Dir); err != nil {
			return err
		}
	}
	report, err := c.deps.record(ctx, o)
	if report == nil {
		return adviseDescriptors(err)
	}
	if len(baselines) > 0 {
		report.Compare(baselines)
	}
	report.Judge(checks)
	status := report.Status()
	return errors.Join(err, c.writeReport(report, f), recordStatus(status))
}

// recordStatus makes tailcam exit with the status of a run; the reasons have been printed.
func recordStatus(status int) error {
	if status == exitOK {
		return nil
	}
	return &statusError{errReported, status}
}

// writeReport prints the report, and writes the files that were asked for.
func (c *cli) writeReport(r *record.Report, f *recordFlags) error {
	var printed error
	switch {
	case c.wantsData():
		printed = c.printData(r)
	case r.Command != nil:
		r.Print(c.err)
	default:
		r.Print(c.out)
	}
	return errors.Join(printed,
		writeWhole(f.junit, r.JUnit),
		writeWhole(f.out, func(w io.Writer) error {
			data, err := encode(jsonOutput, r)
			if err == nil {
				_, err = w.Write(data)
			}
			return err
		}))
}

// checkWritable finds out before a long run that files cannot be written after it.
func checkWritable(paths ...string) error {
	for _, path := range paths {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return fmt.Errorf("cannot write %s: it is a directory", path)
		}
		if err := unix.Access(filepath.Dir(path), unix.W_OK); err != nil {
			return fmt.Errorf("cannot write %s: %w", path, err)
		}
	}
	return nil
}

// writeWhole writes what write writes to a file, if that succeeds. path "": none.
func writeWhole(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil { //nolint:gosec // for whoever reads results
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
