package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/manual"
	"github.com/tailcam/tailcam/internal/version"
)

// newMan is for packaging: `make install` runs it.
func newMan() *cobra.Command {
	o := manual.Options{Version: version.String()}
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages",
		Long: `Write the manual pages of all commands to a directory. Their date is that of
SOURCE_DATE_EPOCH, if it is set.`,
		Example: "  tailcam man /usr/share/man/man1",
		Hidden:  true,
		Args:    exactArgs("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Dir, o.Date = args[0], time.Now()
			if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
				n, err := strconv.ParseInt(epoch, 10, 64)
				if err != nil {
					return fmt.Errorf("invalid SOURCE_DATE_EPOCH %q: must be seconds since 1970", epoch)
				}
				o.Date = time.Unix(n, 0)
			}
			return manual.Write(cmd.Root(), &o)
		},
	}
	cmd.Flags().StringVar(&o.Config, "config", "", "annotated configuration `file`, for tailcam.yaml(5)")
	return cmd
}
