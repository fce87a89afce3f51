package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// progress replaces the line on a terminal; nothing is printed elsewhere.
func progress(format string, args ...any) {
	if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err == nil {
		fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...)
	}
}

// printTable prints rows as aligned Markdown, one table a section. Rows that
// say little are in the JSON only.
func printTable(w io.Writer, rows []row) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.minor })
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].section == rows[0].section {
			n++
		}
		printSection(w, rows[:n])
		rows = rows[n:]
	}
}

func printSection(w io.Writer, rows []row) {
	lines := [][]string{{rows[0].section, "net", "gross", "events", "ratio", "span", "against", "verdict"}}
	for _, r := range rows {
		lines = append(lines, r.cells())
	}
	width := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, c := range l {
			width[i] = max(width[i], len(c))
		}
	}
	numeric := []bool{false, true, true, true, true, false, false, false}
	for i, l := range lines {
		var b strings.Builder
		for k, c := range l {
			if numeric[k] {
				fmt.Fprintf(&b, "| %*s ", width[k], c)
			} else {
				fmt.Fprintf(&b, "| %-*s ", width[k], c)
			}
		}
		fmt.Fprintln(w, b.String()+"|")
		if i == 0 {
			for k := range l {
				dashes := strings.Repeat("-", width[k])
				if numeric[k] {
					fmt.Fprintf(w, "| %s:", dashes)
				} else {
					fmt.Fprintf(w, "| %s ", dashes)
				}
			}
			fmt.Fprintln(w, "|")
		}
	}
	fmt.Fprintln(w)
}

// cells are one row's columns.
func (r *row) cells() []string {
	c := make([]string, 8)
	c[0] = r.Name
	if r.Note != "" {
		c[6] = r.Note
		return c
	}
	unit := 1.0
	if r.section == secHackbench || r.section == secProcessor {
		unit = 1e6
	}
	if r.NsNet != 0 {
		c[1] = number(r.NsNet / unit)
	}
	if r.NsGross != 0 {
		c[2] = number(r.NsGross / unit)
	}
	if r.Events != 0 {
		c[3] = number(float64(r.Events))
	}
	if r.Ratio != nil {
		c[4] = fmt.Sprintf("%.2f", *r.Ratio)
		c[5] = fmt.Sprintf("%.2f to %.2f", *r.RatioLow, *r.RatioHi)
	}
	c[6] = r.Against
	if r.Target != 0 {
		c[7] = fmt.Sprintf("%s: at most %g, %d rounds", r.Verdict, r.Target, r.Rounds)
	}
	return c
}

// number writes a whole number in groups of three digits.
func number(x float64) string {
	s := fmt.Sprintf("%.0f", x)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

func writeJSON(path string, rows []row) error {
	b, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
