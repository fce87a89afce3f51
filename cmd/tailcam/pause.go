package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
)

func newPause(c *cli) *cobra.Command {
	req := &api.PauseRequest{}
	cmd := &cobra.Command{
		Use:   "pause RULE",
		Short: "Let a rule fire nothing for a while",
		Long: `The rule fires nothing until --for is over, tailcam resume, or the end of the
daemon; other rules go on. Its histogram and a threshold that follows the load
go on, too. What was slow meanwhile is not reported later. A reload (SIGHUP)
keeps the pause; tailcam status shows it.`,
		Example:           `  tailcam pause disk --for 10m`,
		Args:              oneRule,
		ValidArgsFunction: c.completeFirstRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("for") && req.For == "" {
				return fmt.Errorf("--for is empty: a duration such as 10m")
			}
			req.Rule = args[0]
			return c.client().Pause(cmd.Context(), req)
		},
	}
	cmd.Flags().StringVar(&req.For, "for", "", "how `long`; without: until it is resumed")
	c.addSocket(cmd)
	return cmd
}
