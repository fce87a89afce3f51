package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/config"
)

// manPages writes the manual as `make install` does, and reads it.
func manPages(t *testing.T) map[string]string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	dir := t.TempDir()
	var stderr bytes.Buffer
	code := execute(t.Context(), newCLI(&stderr, &stderr, deps{}), []string{"man", "--config", "../../configs/tailcam.yaml", dir})
	assert.Assert(t, code == exitOK, "%s", &stderr)
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	pages := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		assert.NilError(t, err)
		pages[e.Name()] = string(text)
	}
	return pages
}

// TestManPages: each command has a page with all of its flags, and each page refers only to
// pages that exist.
func TestManPages(t *testing.T) {
	pages := manPages(t)
	plain := strings.NewReplacer(`\-`, "-", `\fB`, "", `\fI`, "", `\fR`, "")
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		file := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		page := plain.Replace(pages[file])
		assert.Assert(t, page != "", "no page %s", file)
		for _, s := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"} {
			assert.Check(t, is.Contains(page, "\n.SH "+s+"\n"), "%s", file)
		}
		if cmd.GroupID != "" { // every command of its own
			assert.Check(t, is.Contains(page, "\n.SH EXAMPLES\n"), "%s", file)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			assert.Check(t, f.Hidden || strings.Contains(page, "--"+f.Name), "%s does not have --%s", file, f.Name)
		})
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" && cmd.Name() != "completion" {
				walk(sub)
			}
		}
	}
	walk(newRoot(newCLI(&bytes.Buffer{}, &bytes.Buffer{}, deps{})))

	reference := regexp.MustCompile(`(tailcam[a-z.-]*)\(([15])\)`)
	for file, text := range pages {
		assert.Check(t, is.Contains(text, `"2026-01-01"`), "%s is not dated by SOURCE_DATE_EPOCH", file)
		for _, m := range reference.FindAllStringSubmatch(plain.Replace(text), -1) {
			name := m[1] + "." + m[2]
			// Made of docs/rules.md by scripts/install.sh.
			assert.Check(t, pages[name] != "" || name == "tailcam-rules.5", "%s refers to %s", file, name)
		}
	}
	assert.Check(t, is.Contains(plain.Replace(pages["tailcam-wait.1"]), ".TP\n3\nit did not within --timeout\n"))
}

// TestManConfiguration: tailcam.yaml(5) has every key with its default, as the daemon has it.
func TestManConfiguration(t *testing.T) {
	page := strings.NewReplacer(`\-`, "-", `\fB`, "", `\fR`, "").Replace(manPages(t)["tailcam.yaml.5"])
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(flags)
	var keys []string
	for line := range strings.Lines(page) {
		if key, _, ok := strings.Cut(line, " (default "); ok {
			keys = append(keys, strings.NewReplacer(".", "-", "_", "-").Replace(key))
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		assert.Check(t, f.Name == "config" || strings.Contains("\n"+strings.Join(keys, "\n")+"\n", "\n"+f.Name+"\n"),
			"--%s is not described", f.Name)
	})
	assert.Check(t, is.Contains(page, ".TP\nrules (default [/usr/lib/tailcam/rules.d, /etc/tailcam/rules.d])\nRule files"))
}
