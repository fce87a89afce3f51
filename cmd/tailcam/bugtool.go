package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/bugtool"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/doctor"
	"github.com/tailcam/tailcam/internal/term"
)

func newBugtool(c *cli) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "bugtool [-O FILE]",
		Short: "Collect what a bug report needs into one redacted archive",
		Long: `Write a tar.gz that only its owner may read: version, kernel and machine, what "tailcam doctor"
finds, the verifier's log if loading fails, configuration and rules, and of the daemon, if it runs,
its status, metrics, process, BPF programs and last log lines. As root, without a daemon, the rules
are loaded for a moment. A daemon that hangs is looked at from outside.

Secrets of configuration, environment and URLs are removed; outliers, snapshots, names of users, and
names and command lines of other processes are left out. MANIFEST lists each file, what was not
collected and why, and what was redacted. Look into the archive before you send it.

An existing file is not overwritten, and no symbolic link is followed.`,
		Example: "  sudo tailcam bugtool\n  sudo tailcam bugtool -O /root/tailcam.tar.gz\n" +
			"  tar -xzOf tailcam.tar.gz tailcam-bugtool/MANIFEST",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.bugtool(cmd, out) },
	}
	cmd.Flags().StringVarP(&out, "out", "O", "", "archive `path` (default tailcam-bugtool-TIME.tar.gz in this directory)")
	config.AddFileFlag(cmd.Flags())
	c.addSocket(cmd)
	return cmd
}

func (c *cli) bugtool(cmd *cobra.Command, out string) error {
	if cmd.Flags().Changed("out") && out == "" {
		out = "-" // refused as no file
	}
	progress := c.err.Progress("collecting")
	v := thisVersion()
	s, err := bugtool.Run(cmd.Context(), &bugtool.Options{
		Out: out, Version: v, Release: "tailcam " + v.Version,
		Examine: func(ctx context.Context) *doctor.Report {
			return doctor.Run(ctx, c.doctorOptions(cmd, func(check string) { progress.Update("checking " + check) }))
		},
		Socket: c.socketIn(cmd), Files: func() []string { return config.Files(cmd.Flags()) }, Default: config.Default,
		Probes: c.deps.probes, Progress: func(what string) { progress.Update("collecting " + what) },
	})
	progress.Done()
	if err != nil {
		return err
	}
	c.out.Printf("%s\n%s, %s, %d not collected: see MANIFEST in it\nlook into it before you send it: tar -xzf %s\n",
		term.Clean(s.Path), term.Bytes(uint64(s.Bytes)), plural(s.Files, "file"), s.Missed, term.Clean(s.Path))
	return nil
}
