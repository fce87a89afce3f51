package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Maximum lines in WriteText.
const (
	textParts = 24
	textSteps = 60
)

// WriteText writes a result for people: verdict, advice, parts, path. Lines are not
// wrapped and have no colors; all text is printable.
func (r *Result) WriteText(out io.Writer) {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(printable(strings.TrimRight(fmt.Sprintf(format, args...), " ")) + "\n")
	}
	line("%s", r.Verdict)
	if r.Advice != "" {
		line("%s", r.Advice)
	}
	for _, remark := range r.Remarks() {
		line("%s", remark)
	}
	if len(r.Parts) > 0 {
		b.WriteString("\nWhere the time went:\n")
		writeParts(line, r.Parts, r.DelayNS)
	}
	if !slices.Equal(r.Parts, r.Roots) {
		b.WriteString("\nRoot causes:\n")
		writeParts(line, r.Roots, r.DelayNS)
	}
	if len(r.Path) > 0 {
		b.WriteString("\nThe critical path, in ms since its start:\n")
		r.writePath(line)
	}
	_, _ = io.WriteString(out, b.String()) // out keeps its error
}

// Remarks are the sentences that go below the advice: the estimate and the comparison.
func (r *Result) Remarks() []string {
	var list []string
	if r.Without != nil {
		list = append(list, r.Without.Text(r.DelayNS))
	}
	if r.Before != nil {
		list = append(list, r.Before.Text(r.Cause))
	}
	return list
}

// WritePath writes the critical path in the format of WriteText.
func (r *Result) WritePath(out io.Writer) {
	var b strings.Builder
	b.WriteString("The critical path, in ms since its start:\n")
	r.writePath(func(format string, args ...any) {
		b.WriteString(printable(strings.TrimRight(fmt.Sprintf(format, args...), " ")) + "\n")
	})
	_, _ = io.WriteString(out, b.String()) // out keeps its error
}

func writeParts(line func(string, ...any), parts []Part, total int64) {
	for i := range parts {
		if i == textParts && len(parts) > textParts+1 {
			var rest int64
			for j := i; j < len(parts); j++ {
				rest += parts[j].NS
			}
			line("  %12s us %5.1f %%  %d more", microseconds(rest), percent(rest, total), len(parts)-i)
			return
		}
		p := &parts[i]
		by := p.Reason
		if p.By != nil {
			by = describe(p.By)
			if at := p.By.where(); p.By.Kind == KindTask && at != "" {
				by += " in " + at
			} else if p.By.Kind == KindTask && p.By.Cgroup != "" && p.By.Cgroup != "/" {
				by += " in " + p.By.Cgroup
			}
		}
		times := ""
		if p.Count > 1 {
			times = fmt.Sprintf("  (%d times)", p.Count)
		}
		if p.Approximate {
			times += "  (approximate: sampled)"
		}
		line("  %12s us %5.1f %%  %-14s %s%s%s", microseconds(p.NS), percent(p.NS, total), p.Cause, by, p.Behalf.text(p.NS)+p.Activity.text(p.NS), times)
	}
	line("  %12s us in all", microseconds(total))
}

func percent(ns, total int64) float64 { return 100 * float64(ns) / float64(max(total, 1)) }

// microseconds formats nanoseconds as microseconds, without rounding.
func microseconds(ns int64) string { return fmt.Sprintf("%d.%03d", ns/1000, ns%1000) }

func (r *Result) writePath(line func(string, ...any)) {
	least := uint64(0)
	if len(r.Path) > textSteps {
		least = uint64(r.DelayNS) / textSteps
	}
	hidden := 0
	for i := range r.Path {
		s := &r.Path[i]
		if s.ToMonoNS-s.FromMonoNS < least {
			hidden++
			continue
		}
		what := string(s.Cause)
		if s.By != nil && (s.By.Kind != KindTask || s.By.TID != s.Task.TID) {
			what += " by " + describe(s.By)
		}
		if s.Why != "" {
			what += ", " + s.Why
		}
		where := ""
		if s.CPU >= 0 {
			where = fmt.Sprintf(" on CPU %d", s.CPU)
		}
		line("  %10.3f +%10.3f  %s%s %s%s: %s", float64(s.FromMonoNS-r.StartMonoNS)/1e6, float64(s.ToMonoNS-s.FromMonoNS)/1e6,
			strings.Repeat("  ", s.Depth), s.Task.Name, s.State, where, what)
	}
	if hidden > 0 {
		line("  and %d steps shorter than %s, see explain.json", hidden, duration(int64(least)))
	}
}
