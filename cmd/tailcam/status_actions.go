package main

import (
	"path"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
)

// printActions prints what became of actions, if there were any.
func (c *cli) printActions(a *api.ActionsStatus) {
	if a == nil || len(a.Rules) == 0 {
		return
	}
	c.out.Printf("\n%s running for %d outliers or snapshots, waiting for %d\n", c.out.Paint(term.Bold, "actions"), a.Running, a.Waiting)
	t := term.NewTable(term.Column{Title: "RULE"}, right("OK"), right("FAILED"), right("TIMED OUT"), right("OVER LIMIT"),
		right("SKIPPED"), right("LIMITED"), right("IF NOT"), right("NOT RUN"))
	for i := range a.Rules {
		r := &a.Rules[i]
		t.Cells(term.Cell{Text: term.Clean(r.Rule), Style: term.Cyan}, plain(term.Count(r.Succeeded)),
			lossCell(r.Failed), lossCell(r.TimedOut), lossCell(r.OverLimit), lossCell(r.Skipped),
			plain(term.Count(r.Limited)), plain(term.Count(r.Unmatched)), plain(term.Count(r.NotRun)))
	}
	t.Print(c.out, "")
	for i := range a.Last {
		l := &a.Last[i]
		if l.Result == "succeeded" {
			continue
		}
		where := ""
		if l.Snapshot != nil {
			where = " (" + *l.Snapshot + ")"
		}
		c.out.Printf("%s  %s  %s: %s%s\n", c.out.Paint(term.Dim, term.Time(l.Time)), c.out.Paint(term.Cyan, term.Clean(l.Rule)),
			term.Clean(path.Base(l.Program)), term.Clean(l.Text), c.out.Paint(term.Dim, term.Clean(where)))
	}
}
