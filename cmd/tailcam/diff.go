package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/snapshot"
)

func newDiff(c *cli) *cobra.Command {
	var outliers []int
	var from, to []string
	cmd := &cobra.Command{
		Use:   "diff A B | diff --from A --to B",
		Short: "Compare two outliers, or two sets of snapshots, runs or histograms",
		Long: `Compare the breakdowns of two outliers side by side: what is new in B, longer,
shorter, or gone. A and B are snapshot ids ("latest": the newest), snapshot directories,
packs, files such as explain.json, or - for a pack or such a file on standard input. If a
snapshot has several outliers, the slowest is compared. Tasks are matched by name, because
their ids differ from run to run. Changes below half a percent of the longer delay are
summed up; json has all.

--from and --to compare many delays, as of two kernels or releases: A and B are each
  a directory    of snapshots, or of packs (*.tailcam)
  x.tailcam      a pack; --from and --to may be repeated
  a report       that tailcam record -O wrote
  histograms     that tailcam histogram -o json wrote: readings that were appended to one
                 file, nine or more, show how delays vary by themselves
  -              standard input, for one of them: a pack, reports or histograms
As in tailcam record --compare, each ratio has a 99% interval, and a difference is named
only if the whole interval is beyond 10%. --from may name up to 16 runs, directories or
files of histograms, which shows how much these differ by themselves.

Exit status: 3 there is no snapshot yet, and the latest was asked for.`,
		Example: "  tailcam diff 20261121T013004 latest\n" +
			"  ssh db1 tailcam explain -o json | tailcam diff - latest\n" +
			"  ssh db1 tailcam snapshots pack -O - | tailcam diff - latest\n" +
			"  tailcam diff --outlier 1,3 20261121T013004 old/explain.json\n" +
			"  tailcam diff --from v1.jsonl --to v2.jsonl\n" +
			"  ssh db1 cat v1.jsonl | tailcam diff --from - --to v2.jsonl\n" +
			"  tailcam diff --from monday/ --from tuesday/ --to /var/lib/tailcam/snapshots",
		Args:              diffArgs,
		ValidArgsFunction: c.completeDirs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.diffSets(cmd.Context(), from, to)
			}
			if args[0] == stdinName && args[1] == stdinName {
				return usagef("standard input can be A or B, not both")
			}
			var sides [2]catalog.Side
			for i := range sides {
				n := 0
				switch len(outliers) {
				case 0:
				case 1:
					n = outliers[0]
				case 2:
					n = outliers[i]
				default:
					return usagef("invalid --outlier: must be one number, or two such as 1,3")
				}
				side, err := c.side(cmd, args[i], n)
				if err != nil {
					return err
				}
				sides[i] = side
			}
			d := catalog.Compare(sides[0], sides[1])
			if c.wantsData() {
				return c.printData(d)
			}
			c.printDiff(d)
			return nil
		},
	}
	cmd.Flags().IntSliceVar(&outliers, "outlier", nil,
		"compare these outliers, `numbers` from 1: one for both sides, or A,B")
	cmd.Flags().StringArrayVar(&from, "from", nil, "compare with this `path`; may be repeated")
	cmd.Flags().StringArrayVar(&to, "to", nil, "compare what this `path` has with --from")
	c.addOutput(cmd)
	c.addPager(cmd)
	c.addDir(cmd)
	return cmd
}

// side reads one of the two.
func (c *cli) side(cmd *cobra.Command, arg string, n int) (catalog.Side, error) {
	name, report, from, err := c.explained(cmd, arg)
	if err != nil {
		return catalog.Side{}, err
	}
	switch many := len(report.Outliers); {
	case many == 0:
		return catalog.Side{}, fmt.Errorf("%s has no outlier: it was taken manually", name)
	case n < 0 || n > many:
		return catalog.Side{}, fmt.Errorf("invalid --outlier %d: %s has %s", n, name, plural(many, "outlier"))
	}
	s := catalog.NewSide(name, report, n)
	if from != nil {
		s.Dir = from.dir
		if i := s.Outlier - 1; i < len(from.meta.Outliers) {
			s.Time = &from.meta.Outliers[i].Time
		}
	}
	return s, nil
}

// source is the snapshot that a side was read from.
type source struct {
	dir  string
	meta *snapshot.Meta
}

// explained reads an explanation, or computes it if the snapshot has none.
func (c *cli) explained(cmd *cobra.Command, arg string) (string, *explain.Report, *source, error) {
	if strings.HasSuffix(arg, ".json") || arg == stdinName && !c.stdinIsPack() {
		data, err := c.readExplanation(arg)
		if err != nil {
			return "", nil, nil, fmt.Errorf("read explanation: %w", err)
		}
		r, err := catalog.ParseReport(data)
		if err != nil {
			return "", nil, nil, fmt.Errorf("%s: %w", arg, err)
		}
		return arg, r, nil, nil
	}
	dir, err := c.findSnapshot(cmd.Context(), cmd, arg)
	if err != nil {
		return "", nil, nil, err
	}
	m, err := snapshot.ReadMeta(dir)
	if err != nil {
		return "", nil, nil, dirError(dir, err)
	}
	r, err := catalog.ReadReport(dir)
	if errors.Is(err, catalog.ErrNotExplained) || err == nil && len(r.Outliers) != len(m.Outliers) {
		r, _, err = catalog.Explain(dir)
	}
	if err != nil {
		return "", nil, nil, fmt.Errorf("%s: %w", filepath.Base(dir), err)
	}
	return m.ID, r, &source{dir: dir, meta: m}, nil
}

// maxExplanation bounds an explanation in bytes.
const maxExplanation = 256 << 20

// readExplanation reads explain.json from a file or from standard input.
func (c *cli) readExplanation(name string) ([]byte, error) {
	if name == stdinName {
		return c.readStdin(maxExplanation)
	}
	return snapshot.ReadFile(name, maxExplanation)
}

func (c *cli) printDiff(d *catalog.Diff) {
	for _, s := range []struct {
		label string
		side  *catalog.Side
	}{{"A", &d.A}, {"B", &d.B}} {
		name := term.Clean(s.side.Name)
		if s.side.Of > 1 {
			name += fmt.Sprintf(", outlier %d of %d", s.side.Outlier, s.side.Of)
		}
		c.out.Printf("%s  %s\n", c.out.Paint(term.Bold, s.label), name)
		for _, line := range term.Wrap(term.Clean(s.side.Verdict), c.out.Columns()-3) {
			c.out.Printf("   %s\n", line)
		}
	}
	c.out.Printf("\n")
	c.changeTable("WHERE THE TIME WENT", d, d.Parts)
	if !sameChanges(d.Parts, d.Roots) {
		c.out.Printf("\n")
		c.changeTable("ROOT CAUSES", d, d.Roots)
	}
}

func sameChanges(a, b []catalog.Change) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func (c *cli) changeTable(title string, d *catalog.Diff, list []catalog.Change) {
	t := term.NewTable(term.Column{Title: title, Flex: true}, term.Column{Flex: true}, right("A"), right("B"),
		right("CHANGE"), term.Column{})
	least := max(d.A.DelayNS, d.B.DelayNS) / 200
	small, rest := 0, catalog.Change{}
	for i := range list {
		x := &list[i]
		if max(x.ChangeNS, -x.ChangeNS) < least && max(x.ANS, x.BNS) < 2*least {
			small, rest.ANS, rest.BNS, rest.ChangeNS = small+1, rest.ANS+x.ANS, rest.BNS+x.BNS, rest.ChangeNS+x.ChangeNS
			continue
		}
		by := term.Who(&explain.Who{Kind: nameKind(x.Kind), Name: x.By})
		if x.Kind == explain.KindUnknown {
			by = strings.TrimPrefix(term.Clean(x.By), "not explained: ")
		}
		if by == string(x.Cause) {
			by = ""
		}
		t.Cells(term.Cell{Text: term.CauseWords(x.Cause), Style: term.CauseStyle(x.Cause)}, plain(by),
			lengthCell(x.ANS), lengthCell(x.BNS), changeCell(x.ChangeNS, x.Became),
			term.Cell{Text: x.Became, Style: changeStyle(x.Became)})
	}
	if small > 0 {
		t.Cells(term.Cell{Text: plural(small, "small part"), Style: term.Dim}, plain(""), lengthCell(rest.ANS), lengthCell(rest.BNS),
			changeCell(rest.ChangeNS, ""))
	}
	t.Cells(term.Cell{Text: "total", Style: term.Bold}, plain(""), lengthCell(d.A.DelayNS), lengthCell(d.B.DelayNS),
		changeCell(d.ChangeNS, ""))
	t.Print(c.out, "")
}

func changeCell(ns int64, became string) term.Cell {
	switch {
	case ns == 0:
		return term.Cell{Text: "-", Style: term.Dim}
	case ns > 0:
		return term.Cell{Text: "+" + term.Duration(ns), Style: changeStyle(became)}
	}
	return term.Cell{Text: term.Duration(ns), Style: changeStyle(became)}
}

func changeStyle(became string) term.Style {
	switch became {
	case catalog.New:
		return term.BoldRed
	case catalog.Longer:
		return term.Red
	case catalog.Gone, catalog.Shorter:
		return term.Green
	case catalog.Same:
		return term.Dim
	}
	return term.Plain
}
