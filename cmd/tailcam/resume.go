package main

import "github.com/spf13/cobra"

func newResume(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "resume RULE",
		Short:             "End the pause of a rule",
		Args:              oneRule,
		ValidArgsFunction: c.completeFirstRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.client().Resume(cmd.Context(), args[0])
		},
	}
	c.addSocket(cmd)
	return cmd
}
