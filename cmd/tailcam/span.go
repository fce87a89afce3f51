package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/tracker/span"
)

const spanHelp = `
The key is 1 to 63 bytes of text that names the span, such as checkout-42. Keys are
private to the user and pid namespace of the caller; any process with the same user
and pid namespace may end a span. Beginning a span again restarts it.

This needs neither the daemon nor privileges: it makes one system call, which
tailcam observes if it has a rule of track span. Otherwise nothing happens, and the
command still succeeds.

Programs can do this without starting a process: package tracker/span for Go,
clients/c/tailcam.h for C, configs/shell/tailcam.sh for bash and dash.`

func newBegin(*cli) *cobra.Command {
	return spanCommand("begin", "Begin a span", span.Begin)
}

func newEnd(*cli) *cobra.Command {
	return spanCommand("end", "End a span", span.End)
}

func spanCommand(name, short string, mark func(key string) error) *cobra.Command {
	return &cobra.Command{
		Use:     name + " KEY",
		Short:   short,
		Long:    short + ", for rules of track span.\n" + spanHelp,
		Example: "  tailcam begin backup && pg_dump shop >shop.sql; tailcam end backup",
		Args:    exactArgs("KEY"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := mark(args[0]); err != nil {
				return fmt.Errorf("key %q: %w", args[0], err)
			}
			return nil
		},
	}
}
