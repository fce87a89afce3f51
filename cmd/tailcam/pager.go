package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/pager"
)

// paged marks commands whose text may be long.
const paged = "tailcam/paged"

// addPager lets the text of a command go through a pager.
func (c *cli) addPager(cmd *cobra.Command) { cmd.Annotations = map[string]string{paged: ""} }

// withPager starts the pager for a command whose output is text on a terminal, unless it follows
// what happens. It ends with closePager.
func (c *cli) withPager(cmd *cobra.Command) {
	if _, ok := cmd.Annotations[paged]; !ok || c.noPager || c.wantsData() {
		return
	}
	if follow := cmd.Flags().Lookup("follow"); follow != nil && follow.Value.String() == "true" {
		return
	}
	if format := cmd.Flags().Lookup("format"); format != nil && format.Value.String() != string(textOutput) {
		return
	}
	if w := pager.New(c.out.Unwrap()); w != nil {
		c.pager = w
		c.out.Redirect(w)
	}
}

// closePager shows what the pager has not yet, and waits until the operator has left it.
func (c *cli) closePager() error {
	if c.pager == nil {
		return nil
	}
	if err := c.pager.Close(); err != nil {
		return fmt.Errorf("run the pager (--no-pager: without): %w", err)
	}
	return nil
}
