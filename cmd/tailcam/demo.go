package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newDemo(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Provoke one real latency of each kind and show what is caught (needs root)",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := checkPrivileges(); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			return c.do.demo(cmd.Context(), c)
		},
	}
	c.addOutput(cmd)
	return cmd
}
