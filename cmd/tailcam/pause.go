package main

import (
	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
)

func newPause(c *cli) *cobra.Command {
	var length ageValue
	req := &api.PauseRequest{}
	cmd := &cobra.Command{
		Use:   "pause RULE",
		Short: "Pause a rule",
		Long: `Pause a rule for the duration of --for, until tailcam resume, or until the daemon
stops. A paused rule reports no outliers, neither now nor later; its histogram and
adaptive threshold are still updated. Other rules are not affected. A reload
(SIGHUP) keeps the pause; tailcam status shows it.`,
		Example:           `  tailcam pause disk --for 10m`,
		Args:              exactArgs("RULE"),
		ValidArgsFunction: c.completeFirstRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Rule, req.For = args[0], length.text()
			return c.client().Pause(cmd.Context(), req)
		},
	}
	cmd.Flags().Var(&length, "for", "pause `duration` (default: until resumed)")
	c.addSocket(cmd)
	return cmd
}
