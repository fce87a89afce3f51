package record

import (
	"fmt"
	"strings"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/term"
)

const (
	// shownCulprits is how many culprits of a rule are printed.
	shownCulprits = 3
	// shownChanges is how many culprits' shares.
	shownChanges = 3
)

// Text says how the command ended.
func (c *Command) Text() string {
	if c.Signal != "" {
		return "ended by " + c.Signal
	}
	return fmt.Sprintf("exit status %d", c.Status)
}

// Print writes the report for people.
func (r *Report) Print(c *term.Console) {
	what := "watched for " + term.Duration(r.DurationNS)
	if r.Command != nil {
		what = term.Clean(term.Shorten(strings.Join(r.Command.Args, " "), 60)) + ": "
		if r.Ended == EndedDuration {
			what += "ended after " + term.Duration(r.DurationNS)
		} else {
			what += r.Command.Text() + " after " + term.Duration(r.DurationNS)
		}
	}
	c.Printf("%s %s\n\n", c.Paint(term.Bold, "tailcam:"), what)
	r.printRules(c)
	r.printCulprits(c)
	if r.Compared != nil {
		c.Printf("\n")
		r.Compared.Print(c)
	}
	r.printChecks(c)
	for i := range r.Losses {
		l := &r.Losses[i]
		r.note(c, fmt.Sprintf("lost: %s %s: %s", term.Count(l.Count), strings.TrimSpace(l.Cause+" "+l.Rule), l.Advice))
	}
	for _, n := range r.Notes {
		r.note(c, n)
	}
	if r.Dir != "" {
		c.Printf("snapshots: %s\n", term.Clean(r.Dir))
	}
}

func (r *Report) note(c *term.Console, text string) {
	c.Printf("%s %s\n", c.Paint(term.Yellow, "note:"), term.Clean(text))
}

func (r *Report) printRules(c *term.Console) {
	right := func(title string) term.Column { return term.Column{Title: title, Right: true} }
	t := term.NewTable(term.Column{Title: "RULE"}, right("OUTLIERS"), right("DELAYS"), right("P50"), right("P90"), right("P99"),
		right("P99.9"), right("MAX"), term.Column{})
	for i := range r.Rules {
		rule := &r.Rules[i]
		outliers := term.Cell{Text: term.Count(rule.Outliers)}
		if rule.Outliers > 0 {
			outliers.Style = term.Red
		}
		cells := []term.Cell{{Text: term.Clean(rule.Name), Style: term.Cyan}, outliers}
		if h := rule.Histogram; h != nil {
			cells = append(cells, term.Cell{Text: term.Count(h.Count)})
			for _, ns := range []uint64{h.P50NS, h.P90NS, h.P99NS, h.P999NS} {
				cells = append(cells, delay(h.Count, int64(min(ns, 1<<63-1))))
			}
			cells = append(cells, delay(h.Count+rule.Outliers, rule.MaxNS))
		}
		if rule.Inactive != "" {
			for len(cells) < 8 {
				cells = append(cells, term.Cell{})
			}
			cells = append(cells, term.Cell{Text: "inactive: " + term.Clean(rule.Inactive), Style: term.Yellow})
		}
		t.Cells(cells...)
	}
	t.Print(c, "")
}

func delay(count uint64, ns int64) term.Cell {
	if count == 0 {
		return term.Cell{Text: "-", Style: term.Dim}
	}
	return term.Cell{Text: term.Duration(ns)}
}

func (r *Report) printCulprits(c *term.Console) {
	for i := range r.Rules {
		rule := &r.Rules[i]
		if rule.Explained == 0 {
			continue
		}
		c.Printf("\n%s\n", c.Paint(term.Bold, fmt.Sprintf("%s: %d of %s explained", term.Clean(rule.Name), rule.Explained,
			term.Count(rule.Outliers))))
		for j := range rule.Culprits[:min(len(rule.Culprits), shownCulprits)] {
			c.Printf("  %s\n", rule.Culprits[j].text())
		}
		if worst := rule.worst(); worst != nil {
			for n, line := range term.Wrap("worst: "+term.Clean(worst.Text), 98) {
				if n > 0 {
					line = "  " + line
				}
				c.Printf("  %s\n", c.Paint(term.Dim, line))
			}
		}
	}
}

// text says how many outliers a culprit caused.
func (c *Culprit) text() string {
	var by *explain.Who
	if c.Kind != "" {
		by = &explain.Who{Kind: c.Kind, Name: c.Name}
	}
	return fmt.Sprintf("%d: %s, %s", c.Outliers, term.Blame(explain.Cause(c.Cause), by), term.Duration(c.NS))
}

// worst is the verdict on the longest delay; nil: there is none.
func (r *Rule) worst() (worst *Verdict) {
	for i := range r.Verdicts {
		if v := &r.Verdicts[i]; worst == nil || v.DelayNS > worst.DelayNS {
			worst = v
		}
	}
	return worst
}

// text is a rule's outliers in plain words, for JUnit.
func (r *Rule) text() string {
	lines := []string{r.count()}
	if h := r.Histogram; h != nil && h.Count > 0 {
		lines = append(lines, fmt.Sprintf("%s delays: p50 %s, p90 %s, p99 %s, p99.9 %s", term.Count(h.Count), term.Duration(int64(h.P50NS)),
			term.Duration(int64(h.P90NS)), term.Duration(int64(h.P99NS)), term.Duration(int64(h.P999NS))))
	}
	for i := range r.Culprits[:min(len(r.Culprits), shownCulprits)] {
		lines = append(lines, r.Culprits[i].text())
	}
	if worst := r.worst(); worst != nil {
		lines = append(lines, "worst: "+term.Clean(worst.Text))
	}
	return strings.Join(lines, "\n")
}

func (r *Report) printChecks(c *term.Console) {
	shown := false
	for i := range r.Checks {
		check := &r.Checks[i]
		word := c.Paint(term.Green, "passed")
		switch {
		case check.Failed:
			word = c.Paint(term.BoldRed, "failed")
		case check.Unjudged != "" && !check.Implied:
			word = c.Paint(term.BoldRed, "unknown")
		case check.Implied:
			continue // the table says that
		}
		if !shown {
			c.Printf("\n")
		}
		shown = true
		c.Printf("%s  %s\n", word, term.Clean(check.Text()))
	}
}

// Print writes the comparison for people.
func (s *Comparison) Print(c *term.Console) {
	c.Printf("%s\n", c.Paint(term.Bold, fmt.Sprintf("compared with %d earlier; ratios with their %g%% intervals",
		len(s.Baselines), 100*s.Confidence)))
	right := func(title string) term.Column { return term.Column{Title: title, Right: true} }
	t := term.NewTable(term.Column{Title: "RULE"}, term.Column{Title: "OF"}, right("BEFORE"), right("AFTER"), right("RATIO"),
		right("FROM"), right("TO"), term.Column{Title: "OUTCOME"})
	for i := range s.Rules {
		rule := &s.Rules[i]
		for j := range rule.Delays {
			d := &rule.Delays[j]
			t.Cells(d.cells(rule.Rule, term.Duration(int64(d.Before)), term.Duration(int64(d.After)))...)
		}
		if o := rule.Outliers; o != nil {
			t.Cells(o.cells(rule.Rule, fmt.Sprintf("%.1f", o.Before), fmt.Sprintf("%.1f", o.After))...)
		}
	}
	t.Print(c, "")
	for i := range s.Rules {
		rule := &s.Rules[i]
		for j := range rule.Culprits[:min(len(rule.Culprits), shownChanges)] {
			d := &rule.Culprits[j]
			by := "unexplained"
			if d.Kind != "" {
				by = term.Who(&explain.Who{Kind: d.Kind, Name: d.Name})
			}
			c.Printf("%s: %s caused %.0f%%, before %.0f%% (difference %+.0f%% to %+.0f%%): %s\n", term.Clean(rule.Rule), by,
				100*d.After, 100*d.Before, 100*d.Low, 100*d.High, paintOutcome(c, d.Outcome))
		}
		if rule.Note != "" {
			c.Printf("%s %s: %s\n", c.Paint(term.Yellow, "note:"), term.Clean(rule.Rule), term.Clean(rule.Note))
		}
	}
	for _, n := range s.Notes {
		c.Printf("%s %s\n", c.Paint(term.Yellow, "note:"), term.Clean(n))
	}
}

func (s *Shift) cells(rule, before, after string) []term.Cell {
	what := s.Outcome
	if s.Why != "" {
		what += ": " + s.Why
	}
	return []term.Cell{
		{Text: term.Clean(rule), Style: term.Cyan}, {Text: s.Of}, {Text: before}, {Text: after}, {Text: ratio(s.Ratio)},
		{Text: ratio(s.Low)}, {Text: ratio(s.High)}, {Text: what, Style: outcomeStyle(s.Outcome)},
	}
}

func ratio(r float64) string {
	if r >= 1000 {
		return ">1000"
	}
	return fmt.Sprintf("%.2f", r)
}

func paintOutcome(c *term.Console, outcome string) string {
	return c.Paint(outcomeStyle(outcome), outcome)
}

func outcomeStyle(outcome string) term.Style {
	switch outcome {
	case Slower, More:
		return term.Red
	case Faster, Fewer:
		return term.Green
	case Undecided:
		return term.Yellow
	}
	return term.Dim
}
