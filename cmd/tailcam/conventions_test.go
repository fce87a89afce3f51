package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gotest.tools/v3/assert"

	ct "github.com/tailcam/tailcam/internal/catalog/catalogtest"
)

// visit calls do for each command that does something.
func visit(cmd *cobra.Command, do func(*cobra.Command)) {
	if cmd.Runnable() && !cmd.HasSubCommands() {
		do(cmd)
	}
	for _, sub := range cmd.Commands() {
		visit(sub, do)
	}
}

// Each command has examples, and each begins with the program or sudo.
func TestExamples(t *testing.T) {
	visit(newRoot(newCLI(&bytes.Buffer{}, &bytes.Buffer{}, testDeps())), func(cmd *cobra.Command) {
		assert.Check(t, cmd.Example != "", "%s has no example", cmd.CommandPath())
		assert.Check(t, strings.Contains(cmd.Example, cmd.CommandPath()), "%s: not in its examples:\n%s", cmd.CommandPath(), cmd.Example)
		for line := range strings.Lines(cmd.Example) {
			assert.Check(t, strings.HasPrefix(line, "  "), "%s: not indented: %q", cmd.CommandPath(), line)
		}
	})
}

// A flag has the same shorthand in all commands, and a shorthand one meaning.
func TestFlagsHaveOneSpelling(t *testing.T) {
	shorthands, names := map[string]string{}, map[string]string{}
	visit(newRoot(newCLI(&bytes.Buffer{}, &bytes.Buffer{}, testDeps())), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if s, ok := shorthands[f.Name]; ok {
				assert.Check(t, s == f.Shorthand, "%s: --%s is -%s, elsewhere -%s", cmd.CommandPath(), f.Name, f.Shorthand, s)
			}
			shorthands[f.Name] = f.Shorthand
			if f.Shorthand == "" {
				return
			}
			if n, ok := names[f.Shorthand]; ok {
				assert.Check(t, n == f.Name, "%s: -%s is --%s, elsewhere --%s", cmd.CommandPath(), f.Shorthand, f.Name, n)
			}
			names[f.Shorthand] = f.Name
		})
	})
}

func TestVersionFlag(t *testing.T) {
	_, want, _ := invoke(t, "version")
	status, stdout, stderr := invoke(t, "--version")
	assert.Check(t, status == exitOK && stdout == want && stderr == "", "status %d, %q, %q", status, stdout, stderr)
}

// Clients find the daemon where its variable says, unless a flag says otherwise.
func TestSocketVariable(t *testing.T) {
	_, socket := serve(t)
	t.Setenv(socketEnv, socket)
	status, _, stderr := invoke(t, "status")
	assert.Check(t, status == exitOK, "%s", stderr)
	none := filepath.Join(t.TempDir(), "none")
	_, _, stderr = invoke(t, "status", "--socket", none)
	assert.Check(t, strings.Contains(stderr, none), "%s", stderr)
}

func TestExplainLatest(t *testing.T) {
	dir, ids := ct.Make(t, ct.One{}, ct.One{Comm: "newest"})
	_, want, _ := invoke(t, "explain", filepath.Join(dir, ids[1]))
	for _, args := range [][]string{{"explain", "--dir", dir}, {"explain", "--dir", dir, "latest"}} {
		status, stdout, stderr := invoke(t, args...)
		assert.Check(t, status == exitOK && stdout == want, "%q: status %d, %s\n%s", args, status, stderr, stdout)
	}
	empty := t.TempDir()
	status, _, stderr := invoke(t, "explain", "--dir", empty)
	assert.Check(t, status == exitNothing && stderr == "tailcam: no snapshots in "+empty+"\n", "status %d, %q", status, stderr)
}
