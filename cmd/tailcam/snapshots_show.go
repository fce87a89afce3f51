package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/internal/term"
)

// maxShown bounds the outliers that `show` prints.
const maxShown = 20

func newSnapshotsShow(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [ID|DIR|FILE|-]",
		Short: "Show one snapshot in detail",
		Long: `Show one snapshot in detail, the newest by default: its outliers with stacks and
verdict, where the time went, what the history covers, and the snapshots taken just
before and after. - is a packed snapshot (*.tailcam) on standard input.

Exit status: 3 there is no snapshot yet, and no other was asked for.`,
		Example: "  tailcam snapshots show            # the newest one\n" +
			"  tailcam snapshots show 20261121T013004",
		Args:              maxArgs(1),
		ValidArgsFunction: c.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := c.findSnapshot(cmd.Context(), cmd, append(args, latest)[0])
			if err != nil {
				return err
			}
			story, err := catalog.ReadDetails(dir)
			if err != nil {
				return dirError(dir, err)
			}
			if c.wantsData() {
				return c.printData(story)
			}
			c.printDetails(story)
			return nil
		},
	}
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addDir(cmd)
	return cmd
}

func (c *cli) printDetails(s *catalog.Details) {
	m := s.Meta
	c.out.Printf("%s\n", c.out.Paint(term.Bold, term.Clean(m.ID)))
	for _, n := range m.Notes {
		c.out.Printf("%s %s\n", c.out.Paint(term.Yellow, "note:"), term.Clean(n))
	}
	if s.Snapshot.Unexplained != "" && s.Report == nil && len(m.Outliers) > 0 {
		c.out.Printf("%s %s\n", c.out.Paint(term.Yellow, "note:"), term.Clean(s.Snapshot.Unexplained))
	}
	if len(m.Outliers) == 0 {
		c.out.Printf("\n%s  taken manually %s\n", c.out.Paint(term.Dim, term.Time(m.Time)), term.Clean(m.Reason))
	}
	for i := range m.Outliers {
		if i == maxShown {
			c.out.Printf("\n%s\n", c.out.Paint(term.Dim,
				"and "+plural(len(m.Outliers)-i, "more outlier")+": use -o json to see all"))
			break
		}
		c.out.Printf("\n")
		term.PrintOutlier(c.out, &m.Outliers[i], true)
		if s.Report != nil && i < len(s.Report.Outliers) {
			c.printResult(&s.Report.Outliers[i], m.Outliers[i].Explained != nil)
		}
	}
	c.out.Printf("\n")
	c.field("history", history(s))
	c.field("host", fmt.Sprintf("%s, %s %s, tailcam %s", term.Clean(m.Host.Name), term.Clean(m.Host.Kernel),
		term.Clean(m.Host.Arch), term.Clean(m.Host.Tailcam)))
	c.field("files", fileList(s.Files))
	c.field("directory", term.Clean(s.Snapshot.Dir))
	if s.Snapshot.Pinned {
		c.field("pinned", "until tailcam snapshots unpin")
	}
	c.field("previous", c.neighbour(s.Before, m.Time))
	c.field("next", c.neighbour(s.After, m.Time))
}

// field prints one fact with its name before it.
func (c *cli) field(label, text string) {
	c.out.Printf("%s  %s\n", c.out.Paint(term.Dim, fmt.Sprintf("%-9s", label)), text)
}

// printResult prints where one outlier's time went; told: its verdict was printed already.
func (c *cli) printResult(r *explain.Result, told bool) {
	room := max(c.out.Columns()-17, term.MinColumns-17)
	wrap := func(label, text string) {
		for _, line := range term.Wrap(term.Clean(text), room) {
			c.out.Printf("    %s  %s\n", c.out.Paint(term.Dim, term.Fill(label, 11)), line)
			label = ""
		}
	}
	if !told {
		wrap("verdict", r.Verdict)
		wrap("advice", r.Advice)
	}
	for i := range r.Parts {
		if i == 5 {
			c.out.Printf("    %11s  and %s\n", "", plural(len(r.Parts)-i, "smaller part"))
			break
		}
		label := ""
		if i == 0 {
			label = "of that"
		}
		p := &r.Parts[i]
		c.out.Printf("    %s  %7s %5s  %s\n", c.out.Paint(term.Dim, term.Fill(label, 11)), term.Duration(p.NS),
			share(p.NS, r.DelayNS), c.out.Paint(term.CauseStyle(p.Cause), term.Blame(p.Cause, p.By)))
	}
}

// share is a part of a whole: 87%, <1%.
func share(part, whole int64) string {
	switch {
	case whole <= 0 || part <= 0:
		return "0%"
	case part*100 < whole:
		return "<1%"
	}
	return fmt.Sprintf("%.0f%%", float64(part)*100/float64(whole))
}

func history(s *catalog.Details) string {
	var least int64 = -1
	var lost uint64
	first := s.Meta.Window.ToMonoNS
	for i := range s.Meta.Outliers {
		first = min(first, s.Meta.Outliers[i].StartMono)
	}
	for _, cpu := range s.Meta.Coverage {
		before := int64(0)
		if cpu.FromMonoNS < first {
			before = int64(first - cpu.FromMonoNS)
		}
		if least < 0 || before < least {
			least = before
		}
		lost += cpu.Lost
	}
	text := fmt.Sprintf("%s events on %s", term.Count(s.Meta.Records), plural(len(s.Meta.Coverage), "CPU"))
	if least >= 0 {
		text += fmt.Sprintf(", at least %s before the first outlier", term.Duration(least))
	}
	if lost > 0 {
		text += ", " + term.Count(lost) + " lost"
	}
	if n := s.Meta.SwitchUnseen; n > 0 {
		text += ", switches not seen: " + term.Count(n)
	}
	if n := s.Meta.ProgramMissed; n > 0 {
		text += ", programs skipped by the kernel: " + term.Count(n)
	}
	return text
}

func fileList(files []catalog.File) string {
	var list []string
	for _, f := range files {
		list = append(list, fmt.Sprintf("%s %s", term.Clean(f.Name), term.Bytes(uint64(max(f.Bytes, 0)))))
	}
	return strings.Join(list, ", ")
}

// neighbour is one line about the snapshot before or after.
func (c *cli) neighbour(s *catalog.Snapshot, than time.Time) string {
	if s == nil {
		return c.out.Paint(term.Dim, "none")
	}
	words := "earlier"
	apart := than.Sub(s.Time)
	if apart < 0 {
		apart, words = -apart, "later"
	}
	text := fmt.Sprintf("%s %s  %s  %s", term.Duration(int64(apart)), words, term.Clean(s.Short), ruleCell(s).Text)
	if s.DelayNS > 0 {
		text += "  " + term.Duration(s.DelayNS)
	}
	if task := taskCell(s); task != "" {
		text += "  " + task
	}
	if s.Blame != nil {
		text += "  " + c.out.Paint(term.CauseStyle(s.Blame.Cause), term.Blame(s.Blame.Cause, s.Blame.By))
	}
	return text
}
