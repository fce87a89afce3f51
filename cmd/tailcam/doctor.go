package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/doctor"
	"github.com/tailcam/tailcam/internal/term"
)

func newDoctor(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what works on this machine, and what to do about the rest",
		Long: `Check kernel, machine, configuration, rules, disk, socket, service and the running daemon. Each
line is ok, warn or fail, with what was found, why it matters, and what to do: a command, or a key
of the configuration.

Without a daemon, root is needed to load and attach the rules for a moment; nothing is changed.
With a daemon, it is asked what is inactive, shed or lost. What hangs is given up.

-o json prints one object per line: check, status, what, why, do.

Exit status: 0 all is ok or a warning, 1 something fails.`,
		Example: "  sudo tailcam doctor\n  sudo tailcam doctor -o json | jq 'select(.status != \"ok\")'",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.doctor(cmd) },
	}
	config.AddFileFlag(cmd.Flags())
	c.addOutput(cmd)
	c.addSocket(cmd)
	return cmd
}

func (c *cli) doctor(cmd *cobra.Command) error {
	progress := c.err.Progress("checking")
	r := doctor.Run(cmd.Context(), c.doctorOptions(cmd, func(check string) { progress.Update("checking " + check) }))
	progress.Done()
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	if c.wantsData() {
		if err := printList(c, r.Results); err != nil {
			return err
		}
	} else {
		c.printDoctor(r.Results)
	}
	if r.Failed() {
		return errReported
	}
	return nil
}

func (c *cli) doctorOptions(cmd *cobra.Command, progress func(check string)) *doctor.Options {
	return &doctor.Options{
		Config:     func() (config.Config, error) { return config.Load(cmd.Flags()) },
		Socket:     c.socketIn(cmd),
		Privileges: privilegesOf, Limits: checkResources,
		LoadRules: c.deps.loadRules, CheckLoad: c.deps.checkLoad, Probes: c.deps.probes,
		CheckActivities: c.deps.checkActivities,
		Progress:        progress,
	}
}

// socketIn is the path of the daemon's socket; "": that of the configuration.
func (c *cli) socketIn(cmd *cobra.Command) string {
	if !cmd.Flags().Changed(socketFlag) && os.Getenv(socketEnv) == "" {
		return ""
	}
	return c.socket
}

func (c *cli) printDoctor(results []doctor.Result) {
	style := map[doctor.Status]term.Style{doctor.OK: term.Green, doctor.Warn: term.Yellow, doctor.Fail: term.Red}
	count := map[doctor.Status]int{}
	width := 0
	for i := range results {
		count[results[i].Status]++
		width = max(width, term.Width(term.Clean(results[i].Check)))
	}
	indent := strings.Repeat(" ", width+8)
	for i := range results {
		r := &results[i]
		c.out.Printf("%s  %s  %s\n", c.out.Paint(style[r.Status], term.Fill(string(r.Status), 4)),
			term.Fill(term.Clean(r.Check), width), term.Clean(r.What))
		if r.Why != "" {
			c.out.Printf("%s%s %s\n", indent, c.out.Paint(term.Dim, "why:"), term.Clean(r.Why))
		}
		if r.Do != "" {
			c.out.Printf("%s%s  %s\n", indent, c.out.Paint(term.Bold, "do:"), term.Clean(r.Do))
		}
	}
	c.out.Printf("\n%d ok, %s, %d failed\n", count[doctor.OK], plural(count[doctor.Warn], "warning"), count[doctor.Fail])
}
