package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/internal/term"
)

func newSnapshotsVerify(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [ID…]",
		Short: "Verify that snapshots are complete and undamaged",
		Long: `Verify snapshots, all of them by default: the SHA-256 checksum of each file, the
contents of snapshot.json, that every event of the trace can be decoded and their
number matches snapshot.json, and that the parts of each explanation add up to the
delay. Reports every problem found.

The checksums are in the snapshot's SHA256SUMS, as for sha256sum -c. They do not
cover files that actions added. Snapshots of earlier releases have no checksums, so
a flipped bit in their traces may go unnoticed; this is reported.

Exit status: 0 no problems found, 1 a snapshot is damaged.`,
		Example: "  tailcam snapshots verify || echo damaged\n" +
			"  tailcam snapshots verify latest",
		ValidArgsFunction: c.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, ids, err := c.ids(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				if ids, err = pick(dir, ids, args); err != nil {
					return err
				}
			}
			progress, step := c.counting("reading every event")
			checks, err := catalog.Verify(cmd.Context(), dir, ids, step)
			progress.Done()
			if err != nil {
				return err
			}
			return c.printChecks(dir, checks)
		},
	}
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addDir(cmd)
	return cmd
}

func (c *cli) printChecks(dir string, checks []catalog.Check) error {
	bad := 0
	for i := range checks {
		if !checks[i].OK {
			bad++
		}
	}
	switch {
	case c.wantsData():
		if err := printList(c, checks); err != nil {
			return err
		}
	case len(checks) == 0:
		c.err.Printf("no snapshots in %s\n", term.Clean(dir))
	default:
		c.checkTable(checks)
		if bad == 0 {
			c.out.Printf("%s\n", c.out.Paint(term.Dim, "ok: "+plural(len(checks), "snapshot")))
		} else {
			c.out.Printf("%s\n", c.out.Paint(term.BoldRed,
				fmt.Sprintf("%d of %s damaged", bad, plural(len(checks), "snapshot"))))
		}
	}
	if bad > 0 {
		return errReported
	}
	return nil
}

func (c *cli) checkTable(checks []catalog.Check) {
	t := term.NewTable(term.Column{Title: "SNAPSHOT"}, term.Column{}, right("EVENTS"), right("SIZE"), term.Column{})
	for i := range checks {
		k := &checks[i]
		state, note := term.Cell{Text: "ok", Style: term.Green}, ""
		if len(k.Notes) > 0 {
			note = plural(len(k.Notes), "note") + " in snapshot.json"
		}
		if !k.Checksums {
			note = strings.TrimPrefix(note+", no checksums: written by an earlier release", ", ")
		}
		var more []catalog.Fault
		if !k.OK {
			state = term.Cell{Text: "damaged", Style: term.BoldRed}
			note, more = faultText(k.Problems[0]), k.Problems[1:]
		}
		t.Cells(plain(term.Clean(k.ID)), state, plain(term.Count(k.Events)), plain(term.Bytes(k.Bytes)), plain(note))
		for _, p := range more {
			t.Row("", "", "", "", faultText(p))
		}
	}
	t.Print(c.out, "")
}

func faultText(f catalog.Fault) string { return term.Clean(f.File + ": " + f.What) }
