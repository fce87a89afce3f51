package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/test/vm/boot"
)

// page is docs/kernels.md, made of the records.
func page(list []record) string {
	var b strings.Builder
	b.WriteString(`# Kernels that tailcam is tested on

<!-- Made from kernels.json by make test-kernels: change test/vm/page.go, run make kernels-page -->

Each kernel below was booted in a virtual machine (QEMU, two emulated CPUs), where tailcam had to
load every tracker and every shipped rule, and to report injected latencies as they were. The
kernels are Debian's; *sid* is the newest of its development release, *rt* are real-time kernels,
*16k* has memory pages of 16 KiB. *idle* runs two tests only, on one CPU, with a clock that jumps
while the machine is idle. What failed is shown as failed.

## The last runs

"tested" is the last run of any test. One that was left out then counts as it ended in the run
before that had it, which may be of an older version of tailcam. Not every test has run on each
kernel yet: "?" below, and the sum of the last columns, say so.

`)
	b.WriteString("| kernel | release | architecture | page size | tested | passed | failed | skipped |\n|---|---|---|---|---|---|---|---|\n")
	for _, t := range targets {
		i := slices.IndexFunc(list, func(r record) bool { return r.Kernel == t.name })
		if i < 0 {
			fmt.Fprintf(&b, "| %s | | %s | | not yet | | | |\n", t.name, t.arch.name)
			continue
		}
		r := &list[i]
		counts := map[outcome]int{}
		for _, o := range r.Tests {
			counts[o]++
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %d | %d | %d |\n", r.Kernel, r.Release, r.Arch, cmp.Or(r.Facts["page size"].Value, "4096"),
			r.Date, counts[pass], counts[fail], counts[leave])
	}
	whole := slices.DeleteFunc(slices.Clone(list), func(r record) bool { return strings.HasSuffix(r.Kernel, "-idle") })
	differ, alike := split(whole)
	b.WriteString("\n## What differs\n\nHooks of the kernel, and shipped rules that need them.\n\n")
	var notes notes
	table(&b, whole, differ, func(r *record, name string) string {
		f, known := r.Facts[name]
		if !known {
			return "?"
		}
		return notes.mark(f.Value, f.Why)
	})
	notes.print(&b)
	fmt.Fprintf(&b, "\n%d more hooks and shipped rules are the same on all of them:\n%s\n", len(alike), wrapped(alike))
	b.WriteString("\n## Tests\n\nTests of `test/vm/guest` that did not pass everywhere, or in part:\n\n")
	testTable(&b, whole)
	return b.String()
}

// split sorts the facts into those that are not the same on all kernels, and those that
// all have.
func split(list []record) (differ, alike []string) {
	all := map[string]map[string]bool{}
	for _, r := range list {
		for name, f := range r.Facts {
			if all[name] == nil {
				all[name] = map[string]bool{}
			}
			all[name][f.Value] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		same := len(all[name]) == 1 && !slices.ContainsFunc(list, func(r record) bool { return r.Facts[name].Value == "" })
		switch {
		case name == "page size":
		case same && all[name][boot.Yes]:
			alike = append(alike, name)
		default:
			differ = append(differ, name)
		}
	}
	return differ, alike
}

// table prints a row for each name and a column for each kernel.
func table(b *strings.Builder, list []record, names []string, cell func(r *record, name string) string) {
	b.WriteString("| |")
	for _, r := range list {
		b.WriteString(" " + r.Kernel + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(list)) + "\n")
	for _, name := range names {
		b.WriteString("| " + name + " |")
		for i := range list {
			b.WriteString(" " + cell(&list[i], name) + " |")
		}
		b.WriteString("\n")
	}
}

// testTable prints the tests that did not pass as a whole on every kernel.
func testTable(b *strings.Builder, list []record) {
	passed := map[string]int{}
	odd := map[string]bool{}
	for _, r := range list {
		for name, o := range r.Tests {
			if o == pass {
				passed[name]++
			} else {
				odd[name] = true
			}
		}
		for name := range r.Skips {
			odd[name] = true
		}
	}
	for name, n := range passed {
		if n < len(list) {
			odd[name] = true
		}
	}
	var notes notes
	table(b, list, slices.Sorted(maps.Keys(odd)), func(r *record, name string) string {
		if why, skipped := r.Skips[name]; skipped {
			return notes.mark(string(leave), why)
		}
		top, _, _ := strings.Cut(name, "/")
		if o := r.Tests[top]; o != "" {
			return strings.ReplaceAll(string(o), string(fail), "**fail**")
		}
		return "?"
	})
	notes.print(b)
	var rest []string
	for _, name := range slices.Sorted(maps.Keys(passed)) {
		if !odd[name] {
			rest = append(rest, name)
		}
	}
	fmt.Fprintf(b, "\n%d passed everywhere:\n%s\n", len(rest), wrapped(rest))
}

// notes are the reasons in a table, numbered.
type notes []string

// mark returns a value with the number of its reason, if it has one.
func (n *notes) mark(value, why string) string {
	if why == "" {
		return value
	}
	i := slices.Index(*n, why)
	if i < 0 {
		i = len(*n)
		*n = append(*n, why)
	}
	return fmt.Sprintf("%s (%d)", value, i+1)
}

func (n *notes) print(b *strings.Builder) {
	if len(*n) == 0 {
		return
	}
	b.WriteString("\n| | |\n|---|---|\n")
	for i, why := range *n {
		fmt.Fprintf(b, "| (%d) | %s |\n", i+1, strings.NewReplacer("|", "\\|", "\n", " ", "<", "\\<").Replace(why))
	}
}

// wrapped is a list of names in lines of at most 100 columns.
func wrapped(names []string) string {
	var lines []string
	line := ""
	for i, name := range names {
		word := "`" + name + "`,"
		if i == len(names)-1 {
			word = "`" + name + "`."
		}
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > 100:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return strings.Join(append(lines, line), "\n")
}
