package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

const (
	aRule = "rules: [{name: a, track: wakeup, threshold: 5ms, timeout: 1s, when: {comm: [x]}}]\n"
	bRule = "rules: [{name: b, track: wakeup, threshold: 5ms}]\n"
)

// tree writes files below a new directory and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		put(t, filepath.Join(dir, name), text)
	}
	return dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
}

// describe is a set in one line for each file: its rules, whether it is kept, its errors.
func describe(s *Set, dir string) string {
	var lines []string
	for _, e := range s.Lost {
		lines = append(lines, e.Error())
	}
	for _, f := range s.Files {
		line := f.Path + ": " + strings.Join(f.Rules, " ")
		if f.Kept {
			line += " (kept)"
		}
		for _, e := range f.Errors {
			line += " | " + e.Error()
		}
		lines = append(lines, line)
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), dir+"/", "")
}

// TestLayers: files of later directories replace files, extend and disable rules.
func TestLayers(t *testing.T) {
	dir := tree(t, map[string]string{
		"lib/a.yaml": aRule, "lib/b.yaml": bRule, "lib/c.yaml": strings.ReplaceAll(bRule, "name: b", "name: c"),
		"etc/b.yaml":    strings.ReplaceAll(bRule, "5ms", "7ms"),
		"etc/mine.yaml": "disable: [c]\nrules:\n- extend: a\n  threshold: 9ms\n  timeout:\n  stacks: []\n- {name: d, track: offcpu, threshold: 1s}\n",
	})
	set := LoadSet(nil, []string{dir + "/lib", dir + "/etc"}, &LocalMachine{})
	assert.Equal(t, describe(set, dir), "lib/a.yaml: a\nlib/c.yaml: \netc/b.yaml: b\netc/mine.yaml: d")
	assert.DeepEqual(t, set.Files[2].Replaces, []string{dir + "/lib/b.yaml"})
	a, b := set.Rules[0], set.Rules[1]
	assert.Assert(t, a.Threshold == 9*time.Millisecond && a.Timeout == 0 && len(a.Stacks) == 0 && a.When.Comm[0] == "x", "%+v", a)
	assert.Equal(t, a.Pos.String(), dir+"/lib/a.yaml:1:9")
	assert.Equal(t, b.Threshold, 7*time.Millisecond)
}

// TestLayerErrors: each bad layer beside what is said of it.
func TestLayerErrors(t *testing.T) {
	for _, c := range []struct{ yaml, want string }{
		{"rules: [{extend: aa, threshold: 1ms}]", `f:1:18: unknown rule "aa", did you mean "a"; allowed: the name of a rule in any file`},
		{"rules: [{extend: [a], threshold: 1ms}]", "f:1:18: extend is a list; allowed: a string"},
		{"rules: [{extend: a, name: b}]", "f:1:21: extend cannot change name; allowed: the keys to change; or a rule of its own, without extend"},
		{"rules: [{extend: a, track: irq}]", "f:1:21: extend cannot change track; allowed: the keys to change; or a rule of its own, without extend"},
		{"rules: [{extend: a, threshold: soon}]", `f:1:32: threshold "soon" is not a duration; allowed: a duration from 1us to 1h, such as 5ms`},
		{"rules: [{extend: a, when: {comm: [5]}}]", `f:1:35: comm is a number; allowed: a quoted string, "5"`},
		{"rules: [{extend: a, op: read}]", `f:1:21: unknown key "op", did you mean "on"` + ruleAllowed},
		{"disable: [x]", `f:1:11: unknown rule "x", did you mean "a"; allowed: the name of a rule in any file`},
		{"disable: []", "f:1:10: disable is an empty list; allowed: at least one value, or no disable"},
		{"disable: {a: b}", "f:1:10: disable is a mapping; allowed: a list of values"},
	} {
		_, errs := readSources([]source{{file: "base", data: []byte(aRule), machine: &LocalMachine{}}, {file: "f", data: []byte(c.yaml), machine: &LocalMachine{}}})
		assert.Check(t, len(errs["base"]) == 0, "%s: %v", c.yaml, errs["base"])
		assert.Check(t, errs["f"].Error() == c.want, "%s\ngot  %s\nwant %s", c.yaml, errs["f"].Error(), c.want)
	}
}

// TestKeep: a file that has become bad keeps its rules, and the others change.
func TestKeep(t *testing.T) {
	dir := tree(t, map[string]string{"etc/a.yaml": aRule, "etc/b.yaml": bRule})
	paths := []string{dir + "/etc"}
	before := LoadSet(nil, paths, &LocalMachine{})
	assert.Equal(t, describe(before, dir), "etc/a.yaml: a\netc/b.yaml: b")
	for _, c := range []struct{ name, file, text, want string }{
		{"syntax", "a.yaml", "rules: [", "etc/a.yaml: a (kept) | etc/a.yaml:1:1: invalid YAML: did not find expected node content\netc/b.yaml: b"},
		{"name of another", "a.yaml", bRule, `etc/a.yaml: a (kept) | etc/a.yaml:1:16: duplicate name "b", first used at etc/b.yaml:1:16; allowed: a unique name for each rule` + "\netc/b.yaml: b"},
		{"new file", "c.yaml", "rules: 5", "etc/a.yaml: a\netc/b.yaml: b\netc/c.yaml:  | etc/c.yaml:1:8: rules is a number; allowed: a list of rules"},
		{"extension", "c.yaml", "rules: [{extend: a, threshold: 2s}]", "etc/a.yaml: a\netc/b.yaml: b\n" +
			"etc/c.yaml:  | etc/a.yaml:1:59: timeout 1s is below the threshold; allowed: at least the threshold, 2s, or no threshold"},
		{"unreadable", "a.yaml", "", "etc/a.yaml: a (kept) | etc/a.yaml:1:1: file is empty\netc/b.yaml: b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(dir, "etc", c.file)
			old, err := os.ReadFile(file)
			put(t, file, c.text)
			set := LoadSet(before, paths, &LocalMachine{})
			if err == nil {
				put(t, file, string(old))
			} else {
				assert.NilError(t, os.Remove(file))
			}
			assert.Equal(t, strings.ReplaceAll(describe(set, dir), dir+"/", ""), c.want)
			again := LoadSet(set, paths, &LocalMachine{})
			assert.Equal(t, describe(again, dir), "etc/a.yaml: a\netc/b.yaml: b")
		})
	}
	// Of a directory that is gone, all files keep their rules.
	assert.NilError(t, os.Rename(dir+"/etc", dir+"/gone"))
	set := LoadSet(before, paths, &LocalMachine{})
	assert.Assert(t, len(set.Rules) == 2 && len(set.Errors()) == 3, "%s", describe(set, dir))
	// A file that is gone takes its rules along.
	assert.NilError(t, os.Rename(dir+"/gone", dir+"/etc"))
	assert.NilError(t, os.Remove(dir+"/etc/b.yaml"))
	assert.Equal(t, describe(LoadSet(set, paths, &LocalMachine{}), dir), "etc/a.yaml: a")
}

// TestKeepUnchanged: a file that did not change stays, though its program is gone.
func TestKeepUnchanged(t *testing.T) {
	dir := tree(t, map[string]string{"run": "", "etc/b.yaml": bRule})
	assert.NilError(t, os.Chmod(dir+"/run", 0o755))
	put(t, dir+"/etc/a.yaml", "rules: [{name: a, track: wakeup, threshold: 5ms, actions: [{run: ["+dir+"/run]}]}]")
	before := LoadSet(nil, []string{dir + "/etc"}, &LocalMachine{})
	assert.Equal(t, len(before.Rules), 2)
	assert.NilError(t, os.Remove(dir+"/run"))
	set := LoadSet(before, []string{dir + "/etc"}, &LocalMachine{})
	assert.Assert(t, len(set.Rules) == 2 && set.Files[0].Kept && len(set.Errors()) == 1, "%s", describe(set, dir))
}
