package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/eventcost"
	"github.com/tailcam/tailcam/internal/term"
)

// maxMeasure is the longest measurement.
const maxMeasure = time.Minute

func newListEvents(c *cli) *cobra.Command {
	length := 2 * time.Second
	cmd := &cobra.Command{
		Use:     "events",
		Short:   "List the events that the recorder can record, and their cost on this machine",
		Example: "  sudo tailcam list events\n  sudo tailcam list events --for 10s -o json",
		Long: `List the event groups of recorder.events and their events, with the current rate
of each on this machine and its cost in nanoseconds.

To measure, it records every group for the duration of --for, next to a running
daemon if there is one, with kernel statistics for BPF programs enabled (some ten
nanoseconds per program run). This needs root, or CAP_BPF, CAP_PERFMON and
CAP_SYS_ADMIN; otherwise events are listed without numbers. The cost of an empty
program is subtracted.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if length < 0 || length > maxMeasure {
				return usagef("invalid --for %s: must be between 0s (do not measure) and %s", length, maxMeasure)
			}
			return c.listEvents(cmd.Context(), length)
		},
	}
	cmd.Flags().DurationVar(&length, "for", length, "measurement `duration` (0s: do not measure)")
	c.addOutput(cmd)
	c.addPager(cmd)
	return cmd
}

func (c *cli) listEvents(ctx context.Context, length time.Duration) error {
	events, err := c.deps.events(ctx, length)
	measured := length > 0 && err == nil
	if errors.Is(err, eventcost.ErrPrivilege) {
		c.printError(err)
		err = nil
	}
	if err != nil {
		return err
	}
	if c.wantsData() {
		return printList(c, events)
	}
	t := term.NewTable(term.Column{Title: "GROUP"}, term.Column{Title: "EVENT"}, right("NS/EVENT"), right("EVENTS/S"),
		right("CPU"), term.Column{})
	for i := range events {
		e := &events[i]
		if i == 0 || events[i-1].Group != e.Group {
			c.groupRow(t, events, e.Group)
		}
		note := term.Cell{}
		if !e.Available {
			note = term.Cell{Text: "unavailable: " + term.Clean(e.Reason), Style: term.Yellow}
		} else if e.Cost == nil && measured {
			note = term.Cell{Text: "included in " + strings.ReplaceAll(e.Hook, "tp_btf:", ""), Style: term.Dim}
		}
		ns, rate, share := priceCells(e.Cost)
		t.Cells(plain(""), plain(e.Event), plain(ns), plain(rate), plain(share), note)
	}
	t.Print(c.out, "")
	return nil
}

// groupRow adds the sum of a group, and whether it is recorded by default.
func (c *cli) groupRow(t *term.Table, events []eventcost.Event, group string) {
	var sum eventcost.Cost
	measured := false
	for i := range events {
		if p := events[i].Cost; p != nil && slices.Contains(events[i].Groups, group) {
			measured = true
			sum.Events += p.Events
			sum.PerSecond += p.PerSecond
			sum.CPUPercent += p.CPUPercent
		}
	}
	if sum.PerSecond > 0 {
		sum.NS = sum.CPUPercent * 1e7 / sum.PerSecond
	}
	var ns, rate, share string
	if measured {
		ns, rate, share = priceCells(&sum)
	}
	note := term.Cell{Text: "recorded by default", Style: term.Green}
	if !slices.Contains(config.Default().Recorder.Events, group) {
		note = term.Cell{Text: "off by default", Style: term.Dim}
	}
	if group == "memory" {
		note.Text += "; includes reclaim"
	}
	t.Cells(term.Cell{Text: group, Style: term.Cyan}, plain(""), plain(ns), plain(rate), plain(share), note)
}

func priceCells(p *eventcost.Cost) (ns, rate, share string) {
	switch {
	case p == nil:
		return "", "", ""
	case p.Events == 0:
		return "-", "0", "-"
	}
	return fmt.Sprintf("%.0f", p.NS), fmt.Sprintf("%.0f", p.PerSecond), fmt.Sprintf("%.3f%%", p.CPUPercent)
}
