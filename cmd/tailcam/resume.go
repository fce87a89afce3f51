package main

import "github.com/spf13/cobra"

func newResume(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "resume RULE",
		Short:             "Resume a paused rule",
		Long:              `Resume a rule that "tailcam pause" paused. A rule that is not paused is an error.`,
		Example:           "  tailcam resume disk",
		Args:              exactArgs("RULE"),
		ValidArgsFunction: c.completeFirstRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.client().Resume(cmd.Context(), args[0])
		},
	}
	c.addSocket(cmd)
	return cmd
}
