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

// maxMeasure is how long the machine may be measured at most.
const maxMeasure = time.Minute

func newListEvents(c *cli) *cobra.Command {
	length := 2 * time.Second
	cmd := &cobra.Command{
		Use:   "events",
		Short: "What the recorder can record, and what each costs on this machine",
		Long: `List the groups that recorder.events may hold and the events of each, with how
many there are a second on this machine now, and how many nanoseconds the kernel
side takes for one.

It records every group for --for, beside a daemon that may run, and has the
kernel count the time of BPF programs meanwhile (some ten nanoseconds for each
run of each program). That takes root, or CAP_BPF, CAP_PERFMON and
CAP_SYS_ADMIN; without, events are listed without numbers. What an empty program
is said to take is subtracted.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if length < 0 || length > maxMeasure {
				return fmt.Errorf("--for %s: allowed is a time from 0s (do not measure) to %s", length, maxMeasure)
			}
			return c.listEvents(cmd.Context(), length)
		},
	}
	cmd.Flags().DurationVar(&length, "for", length, "measure for so long; 0s: do not")
	c.addOutput(cmd)
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
	if c.output == jsonOutput {
		return printLines(c, events)
	}
	t := term.NewTable(term.Column{Title: "GROUP"}, term.Column{Title: "EVENT"}, right("NS/EVENT"), right("EVENTS/S"),
		right("OF A CPU"), term.Column{})
	for i := range events {
		e := &events[i]
		if i == 0 || events[i-1].Group != e.Group {
			c.groupRow(t, events, e.Group)
		}
		note := term.Cell{}
		if !e.Available {
			note = term.Cell{Text: "not here: " + term.Clean(e.Reason), Style: term.Yellow}
		} else if e.Price == nil && measured {
			note = term.Cell{Text: "counted with " + strings.ReplaceAll(e.Hook, "tp_btf:", ""), Style: term.Dim}
		}
		ns, rate, share := priceCells(e.Price)
		t.Cells(plain(""), plain(e.Event), plain(ns), plain(rate), plain(share), note)
	}
	t.Print(c.out, "")
	return nil
}

// groupRow adds the sum of a group, and whether it is recorded unless told otherwise.
func (c *cli) groupRow(t *term.Table, events []eventcost.Event, group string) {
	var sum eventcost.Price
	measured := false
	for i := range events {
		if p := events[i].Price; p != nil && slices.Contains(events[i].Groups, group) {
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
		note = term.Cell{Text: "only if recorder.events names it", Style: term.Dim}
	}
	if group == "memory" {
		note.Text += "; includes reclaim"
	}
	t.Cells(term.Cell{Text: group, Style: term.Cyan}, plain(""), plain(ns), plain(rate), plain(share), note)
}

func priceCells(p *eventcost.Price) (ns, rate, share string) {
	switch {
	case p == nil:
		return "", "", ""
	case p.Events == 0:
		return "-", "0", "-"
	}
	return fmt.Sprintf("%.0f", p.NS), fmt.Sprintf("%.0f", p.PerSecond), fmt.Sprintf("%.3f%%", p.CPUPercent)
}
