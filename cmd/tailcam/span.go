package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/tracker/span"
)

const spanHelp = `
A key is text of 1 to 63 bytes that names the piece of work, such as checkout-42.
It belongs to the user and the pid namespace of whoever says it: nobody else can
begin, end or meet it; any process of the same two may end what another began. A
second begin before the end restarts the time.

It asks no daemon, and needs no privilege: it makes one system call, which tailcam
sees if it runs with a rule of track span. Without one nothing happens, and it
succeeds nevertheless.

From a program this is cheaper without a process: package tracker/span for Go,
configs/include/tailcam.h for C, configs/shell/tailcam.sh for bash and dash.`

func newBegin(*cli) *cobra.Command {
	return spanCommand("begin", "Say that a piece of work begins", span.Begin)
}

func newEnd(*cli) *cobra.Command {
	return spanCommand("end", "Say that a piece of work has ended", span.End)
}

func spanCommand(verb, short string, say func(key string) error) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " KEY",
		Short:   short,
		Long:    short + ", for rules of track span.\n" + spanHelp,
		Example: "  tailcam begin backup && pg_dump shop >shop.sql; tailcam end backup",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%q takes one key, but got %d: see %q", cmd.CommandPath(), len(args), cmd.CommandPath()+" --help")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := say(args[0]); err != nil {
				return fmt.Errorf("key %q: %w", args[0], err)
			}
			return nil
		},
	}
}
