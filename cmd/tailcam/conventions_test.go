package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	ct "github.com/tailcam/tailcam/internal/catalog/catalogtest"
)

// commands are all commands but those that cobra adds: completion and help.
func commands() []*cobra.Command {
	var list []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		list = append(list, cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(newCLI(&bytes.Buffer{}, &bytes.Buffer{}, testDeps())))
	return list
}

// Each command says what it does, at length, and has examples that begin with a program.
// Both are in its manual page.
func TestHelp(t *testing.T) {
	pages := manPages(t)
	unescape := strings.NewReplacer(`\-`, "-", `\(aq`, "'", `\e`, `\`, "...", "…", `\&`, "", `\(ti`, "~")
	for _, cmd := range commands() {
		path := cmd.CommandPath()
		assert.Check(t, cmd.Short != "" && !strings.HasSuffix(cmd.Short, "."), "%s: %q", path, cmd.Short)
		assert.Check(t, len(cmd.Long) > len(cmd.Short), "%s has no long help", path)
		assert.Check(t, strings.Contains(cmd.Example, path), "%s is not in its examples:\n%s", path, cmd.Example)
		page := unescape.Replace(pages[strings.ReplaceAll(path, " ", "-")+".1"])
		for line := range strings.Lines(cmd.Long) {
			assert.Check(t, utf8.RuneCountInString(line) <= 101, "%s: long line %q", path, line)
		}
		for line := range strings.Lines(cmd.Example) {
			assert.Check(t, strings.HasPrefix(line, "  "), "%s: not indented: %q", path, line)
			assert.Check(t, cmd.Hidden || strings.Contains(page, strings.TrimSpace(line)), "not in the page of %s: %q", path, line)
		}
		for _, status := range []string{"0", "1", "2"} {
			assert.Check(t, cmd.Hidden || strings.Contains(page, ".TP\n\\fB"+status+"\\fR\n"), "%s: no exit status %s", path, status)
		}
	}
}

// sharedFlags are those of several commands: type and shorthand. One name means one thing.
var sharedFlags = map[string]struct{ kind, shorthand, value string }{
	"after":         {"duration", "", "duration"},
	"by":            {"string", "", "key"},
	"config":        {"string", "", "file"},
	"count":         {"int", "n", "number"},
	"diff":          {"bool", "", ""},
	"filter":        {"stringArray", "", "key=glob"},
	"fleet":         {"string", "", "URL"},
	"for":           {"duration", "", "duration"},
	"force":         {"bool", "", ""},
	"format":        {"string", "", "format"},
	"out":           {"string", "O", "path"},
	"outlier":       {"intSlice", "", "numbers"},
	"output":        {"text|json|yaml", "o", "text|json|yaml"},
	"rule":          {"string", "", "rule"},
	"rules":         {"stringSlice", "", "files"},
	"since":         {"duration", "", "duration"},
	"sort":          {"string", "", "column"},
	"snapshots-dir": {"string", "", "directory"},
	"snapshot-url":  {"string", "", "template"},
	"socket-path":   {"string", "", "path"},
	"stacks":        {"bool", "v", ""},
	"timeout":       {"duration", "", "duration"},
	"where":         {"stringArray", "", "key=value"},

	"fleet-password-file": {"string", "", "file"},
}

// otherFlags mean another thing in streams of outliers than elsewhere: a place and a kind,
// where others have a duration.
var otherFlags = map[string]struct{ kind, shorthand, value string }{
	"tailcam events --after": {"string", "", "cursor"},
	"tailcam wait --after":   {"string", "", "cursor"},
	"tailcam wait --for":     {"string", "", "what"},
}

// A flag has one spelling, one type, one kind of value and one shorthand in all commands, and
// a shorthand one meaning.
func TestFlagsHaveOneSpelling(t *testing.T) {
	shorthands, users := map[string]string{}, map[string]int{}
	for _, cmd := range commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			users[f.Name]++
			value, _ := pflag.UnquoteUsage(f)
			want, ok := otherFlags[cmd.CommandPath()+" --"+f.Name]
			if !ok {
				want, ok = sharedFlags[f.Name]
			}
			if ok {
				assert.Check(t, f.Value.Type() == want.kind && f.Shorthand == want.shorthand && value == want.value,
					"%s: --%s is a %s, -%q, %q; elsewhere %+v", cmd.CommandPath(), f.Name, f.Value.Type(), f.Shorthand, value, want)
			}
			if f.Shorthand == "" {
				return
			}
			if n, ok := shorthands[f.Shorthand]; ok {
				assert.Check(t, n == f.Name, "%s: -%s is --%s, elsewhere --%s", cmd.CommandPath(), f.Shorthand, f.Name, n)
			}
			shorthands[f.Shorthand] = f.Name
		})
	}
	for name, n := range users {
		_, ok := sharedFlags[name]
		assert.Check(t, ok || n == 1, "--%s is a flag of %d commands, and not in the table", name, n)
	}
}

// The table of exit statuses in docs/cli.md is complete.
func TestExitStatuses(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	assert.NilError(t, err)
	for _, status := range []int{exitOK, exitError, exitUsage, exitNothing} {
		assert.Check(t, is.Contains(string(doc), fmt.Sprintf("\n| %d |", status)))
	}
	for _, cmd := range commands() {
		path := cmd.CommandPath()
		// What each command may say: a usage error before it does anything.
		status, stdout, stderr := invoke(t, append(strings.Fields(path)[1:], "--no-such-flag")...)
		assert.Check(t, status == exitUsage && stdout == "" && strings.HasPrefix(stderr, "tailcam: unknown flag: --no-such-flag"),
			"%s: status %d, %q, %q", path, status, stdout, stderr)
	}
	none := t.TempDir()
	for args, want := range map[string]int{
		"check --diff --load":                       exitUsage,
		"check --diff --config x":                   exitUsage,
		"completion bash x":                         exitUsage,
		"explain latest --dir " + none:              exitNothing,
		"explain --dir " + none:                     exitNothing,
		"snapshots show --dir " + none:              exitNothing,
		"snapshots pin latest --dir " + none:        exitNothing,
		"diff latest latest --dir " + none:          exitNothing,
		"export latest --format json --dir " + none: exitNothing,
		"snapshots list --dir " + none:              exitOK,
		"snapshots verify --dir " + none:            exitOK,
		"top --dir " + none:                         exitOK,
		"explain -o json --format svg":              exitUsage,
		"diff - -":                                  exitUsage,
		"check - x":                                 exitUsage,
		"status --color blue":                       exitUsage,
		"explain 1999 --dir " + none:                exitError,
	} {
		status, _, stderr := invoke(t, strings.Fields(args)...)
		assert.Check(t, status == want, "%s: status %d, not %d: %s", args, status, want, stderr)
	}
}

// Every command that prints data prints the same as JSON and as YAML, as its schema says.
func TestData(t *testing.T) {
	dir, ids := slowSnapshots(t)
	f, socket := serve(t)
	f.dir = dir
	f.Publish(outlier("wakeup", 6e6))
	good := filepath.Join(t.TempDir(), "good.yaml")
	assert.NilError(t, os.WriteFile(good, []byte("rules:\n  - {name: one, track: wakeup, threshold: 5ms}\n"), 0o600))
	commandLines := map[string]string{
		"check": "check " + good, "demo": "", "doctor": "", "events": "events", "wait": "", "histogram": "histogram", "status": "status",
		"list rules": "list rules", "list probes": "list probes", "list events": "list events --for 0s", "list accounts": "list accounts --for 0s", "list snapshots": "list snapshots",
		"explain": "explain " + ids[0], "top": "top", "diff": "diff " + ids[0] + " " + ids[1], "snapshot": "snapshot", "version": "version",
		"snapshots list": "snapshots list", "snapshots show": "snapshots show " + ids[0], "snapshots verify": "snapshots verify",
		"snapshots pack": "snapshots pack latest --force -O " + filepath.Join(t.TempDir(), "one.tailcam"),
		"snapshots pin":  "snapshots pin latest", "snapshots unpin": "snapshots unpin latest",
		"snapshots rm": "", "snapshots prune": "snapshots prune --dry-run --keep-count 1", "reload": "reload",
		"threshold list": "threshold list", "threshold set": "threshold set wakeup 2ms", "threshold clear": "threshold clear --all",
		"uninstall-check": "", "record": "", "cache": "",
		"activities": "activities", "activities slow": "activities slow --over 1ms", "activities diff": "activities diff 1.300.1 1.301.1",
	}
	for _, cmd := range commands() {
		if cmd.Flags().Lookup("output") == nil {
			continue
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "tailcam ")
		line, ok := commandLines[path]
		assert.Check(t, ok, "%s is not tested", path)
		if line == "" {
			continue // tested elsewhere: it waits, needs root, or removes
		}
		args := strings.Fields(line)
		if cmd.Flags().Lookup(socketFlag) != nil {
			args = append(args, "--socket", socket)
		}
		_, asJSON, stderr := invoke(t, append(args, "-o", "json")...)
		assert.Check(t, isJSONLines(t, asJSON) > 0, "%s prints nothing: %s", line, stderr)
		_, asYAML, _ := invoke(t, append(args, "-o", "yaml")...)
		var want, got []any
		for object := range strings.Lines(asJSON) {
			var v any
			assert.NilError(t, yaml.Unmarshal([]byte(object), &v)) // JSON is YAML, with the same types of numbers
			want = append(want, settled(v))
		}
		for dec := yaml.NewDecoder(strings.NewReader(asYAML)); ; {
			var v any
			err := dec.Decode(&v)
			if errors.Is(err, io.EOF) {
				break
			}
			assert.NilError(t, err, "%s:\n%s", line, asYAML)
			got = append(got, settled(v))
		}
		assert.Check(t, is.DeepEqual(want, got), "%s", line)
	}
}

// settled removes what differs from one run to the next.
func settled(v any) any {
	if m, ok := v.(map[string]any); ok {
		delete(m, "time")
	}
	return v
}

// --color wins over what the stream is, and over NO_COLOR; it may stand anywhere.
func TestColor(t *testing.T) {
	_, socket := serve(t)
	for args, want := range map[string]bool{
		"status": false, "status --color always": true, "--color always status": true, "status --color=never": false,
		"status --color auto": false, "nosuch --color always": true,
	} {
		for _, no := range []string{"", "1"} {
			t.Setenv("NO_COLOR", no)
			t.Setenv(socketEnv, socket)
			var out bytes.Buffer
			execute(t.Context(), newCLI(&out, &out, testDeps()), strings.Fields(args))
			assert.Check(t, strings.Contains(out.String(), "\x1b[") == want, "%s: %q", args, out.String())
		}
	}
}

// - is standard input where a file is read.
func TestStandardInput(t *testing.T) {
	dir, ids := slowSnapshots(t)
	from := func(text string, args ...string) (int, string, string) {
		p := testDeps()
		p.stdin = strings.NewReader(text)
		var stdout, stderr bytes.Buffer
		status := execute(t.Context(), newCLI(&stdout, &stderr, p), args)
		return status, stdout.String(), stderr.String()
	}
	status, stdout, stderr := from("rules:\n  - {name: one, track: wakeup, threshold: 5ms}\n", "check", "-")
	assert.Check(t, status == exitOK && strings.Contains(stdout, "<stdin>:2\n"), "%d, %q, %q", status, stdout, stderr)
	status, _, stderr = from("rules:\n  - {name: one, trak: wakeup}\n", "check", "-")
	assert.Check(t, status == exitError && strings.HasPrefix(stderr, "<stdin>:2:"), "%d, %q", status, stderr)
	for _, bad := range []string{"", "\x00", strings.Repeat("#", 1<<20+1)} {
		status, _, stderr = from(bad, "check", "-")
		assert.Check(t, status == exitError && stderr != "", "%d bytes: %d, %q", len(bad), status, stderr)
	}
	status, stdout, _ = from("rules: [1]", "check", "-", "-o", "json")
	assert.Check(t, status == exitError && isJSONLines(t, stdout) == 1 && strings.Contains(stdout, `"errors":[{"file":"<stdin>","line":1,`),
		"%d, %q", status, stdout)

	file := filepath.Join(dir, ids[0], "explain.json")
	explained, err := os.ReadFile(file)
	assert.NilError(t, err)
	_, want, _ := invoke(t, "diff", "--dir", dir, file, ids[1], "-o", "json")
	status, stdout, stderr = from(string(explained), "diff", "--dir", dir, "-", ids[1], "-o", "json")
	assert.Check(t, status == exitOK && stdout == strings.Replace(want, file, "-", 1),
		"%d, %q\n%s\n%s", status, stderr, stdout, want)
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
	for _, flag := range []string{"--socket-path", "--socket"} { // the second is its earlier name
		_, _, stderr = invoke(t, "status", flag, none)
		assert.Check(t, strings.Contains(stderr, none), "%s", stderr)
	}
}

// The earlier names of flags work wherever the flag is one, of the daemon too, and are in no help.
func TestEarlierFlagNames(t *testing.T) {
	for _, cmd := range commands() {
		for earlier, name := range map[string]string{"socket": socketFlag, "dir": dirFlag} {
			f := cmd.Flags().Lookup(earlier)
			assert.Check(t, f == cmd.Flags().Lookup(name) && (f == nil || f.Name == name), "%s --%s", cmd.CommandPath(), earlier)
			assert.Check(t, !strings.Contains(cmd.UsageString()+cmd.Long+cmd.Example, "--"+earlier+" "), "%s: --%s", cmd.CommandPath(), earlier)
		}
	}
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
