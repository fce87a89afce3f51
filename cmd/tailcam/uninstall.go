package main

import (
	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/leftovers"
	"github.com/tailcam/tailcam/internal/term"
)

func newUninstallCheck(c *cli) *cobra.Command {
	unpin := false
	cmd := &cobra.Command{
		Use:   "uninstall-check",
		Short: "List what tailcam has left on this machine",
		Long: `List what tailcam has left on this machine: a running daemon, pins in a BPF file system, BPF
programs, the socket, and the directory of snapshots, each with what removes it. Control groups
are not made by tailcam. Configuration and rules are the package's, or yours, and not listed.

--unpin first removes the pins of a daemon that does not come back, which detaches its
programs. It refuses to while a daemon uses them. What systemd keeps (--pin=auto) goes when
the service is stopped.

It needs root.

Exit status: 0 nothing is left, 1 something is, or it cannot be found out.`,
		Example: "  sudo tailcam uninstall-check\n  sudo tailcam uninstall-check --unpin",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.uninstallCheck(cmd, unpin) },
	}
	cmd.Flags().BoolVar(&unpin, "unpin", false, "remove pins that no daemon uses")
	config.AddFileFlag(cmd.Flags())
	c.addOutput(cmd)
	c.addSocket(cmd)
	return cmd
}

func (c *cli) uninstallCheck(cmd *cobra.Command, unpin bool) error {
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return configError(err)
	}
	if path := c.socketIn(cmd); path != "" {
		cfg.Socket.Path = path
	}
	if unpin {
		if _, err := leftovers.Unpin(leftovers.PinDir(&cfg)); err != nil {
			return err
		}
	}
	list, err := leftovers.Find(&cfg)
	if c.wantsData() {
		if err := printList(c, list); err != nil {
			return err
		}
	} else {
		for i := range list {
			c.out.Printf("%s: %s\n    %s %s\n", list[i].Kind, term.Clean(list[i].What), c.out.Paint(term.Dim, "to remove:"), term.Clean(list[i].Do))
		}
		if len(list) == 0 && err == nil {
			c.out.Printf("nothing is left\n")
		}
	}
	if err == nil && len(list) > 0 {
		return errReported
	}
	return err
}
