package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
	ct "github.com/tailcam/tailcam/internal/catalog/catalogtest"
	"github.com/tailcam/tailcam/internal/record"
)

// TestDiffNoise: what hardly changed, and is hardly anything, is one line; json has all.
func TestDiffNoise(t *testing.T) {
	slow := func(ms, a, b float64) ct.One {
		return ct.One{DelayNS: int64(ms * 1e6), Parts: []explain.Part{
			ct.Part(explain.Preempted, ct.Task("hog", 99, 49), ms-a-b), ct.Part(explain.Runnable, ct.Task("a", 9, 120), a), ct.Part(explain.Runnable, ct.Task("b", 9, 120), b)}}
	}
	dir, ids := ct.Make(t, slow(20, 0.003, 0.001), slow(30, 0.002, 0.002))
	status, stdout, _ := invoke(t, "diff", "--dir", dir, ids[0], ids[1])
	assert.Check(t, status == exitOK && strings.Contains(stdout, "\n2 small parts") && !strings.Contains(stdout, " a "), "%d\n%s", status, stdout)
	status, stdout, _ = invoke(t, "diff", "--dir", dir, ids[0], ids[1], "-o", "json")
	var d struct{ Parts []json.RawMessage }
	err := json.Unmarshal([]byte(stdout), &d)
	assert.Check(t, status == exitOK && err == nil && len(d.Parts) == 3, "%v %s", err, stdout)
}

// TestDiffSets: directories, packs and files, and what cannot be compared.
func TestDiffSets(t *testing.T) {
	dir, ids := slowSnapshots(t)
	tmp, other := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	pack := filepath.Join(other, "slow.tailcam")
	status, _, stderr := invoke(t, "snapshots", "pack", ids[0], "--dir", dir, "-O", pack)
	assert.Assert(t, status == exitOK, "%s", stderr)
	readings := filepath.Join("..", "..", "internal", "record", "testdata")
	one, two := filepath.Join(readings, "naps-1ms.jsonl"), filepath.Join(readings, "naps-2ms.jsonl")
	for args, want := range map[string]string{
		"--from " + dir + " --to " + other:                                           "compared with 1 earlier; ratios with their 99% intervals\n",
		"--from " + filepath.Join(dir, ids[1]) + " --to " + pack:                     "RULE", // that rule is not in the pack
		"--from " + dir + " --from " + pack + " --to " + dir:                         "compared with 2 earlier",
		"--from " + pack + " --from " + pack + " --to " + dir:                        "compared with 1 earlier",
		"--from " + one + " --to " + two:                                             "naps  p50",
		"--from " + one + " --to " + filepath.Join(readings, "naps-1ms-again.jsonl"): "  same\n",
	} {
		status, stdout, stderr := invoke(t, append([]string{"diff"}, strings.Fields(args)...)...)
		assert.Check(t, status == exitOK && strings.Contains(stdout, want), "%s: %d, %s\n%s", args, status, stderr, stdout)
	}
	status, stdout, _ := invoke(t, "diff", "--from", one, "--to", two, "-o", "json")
	var c record.Comparison
	err := json.Unmarshal([]byte(stdout), &c)
	assert.Check(t, status == exitOK && err == nil && c.Of == record.Histograms && c.Rules[0].Delays[0].Outcome == record.Slower && c.After.File == two, "%v %s", err, stdout)

	// Standard input is either side: histograms, a pack; and never both.
	for _, c := range []struct{ file, args, same string }{
		{one, "--from - --to " + two, "--from " + one + " --to " + two},
		{two, "--from " + one + " --to -", "--from " + one + " --to " + two},
		{pack, "--from - --to " + dir, "--from " + pack + " --to " + dir},
		{pack, "--from " + dir + " --to -", "--from " + dir + " --to " + pack},
	} {
		text, err := os.ReadFile(c.file)
		assert.NilError(t, err)
		_, want, _ := invoke(t, append([]string{"diff"}, strings.Fields(c.same)...)...)
		p := testDeps()
		p.stdin = bytes.NewReader(text)
		var stdout, stderr bytes.Buffer
		status := execute(t.Context(), newCLI(&stdout, &stderr, p), append([]string{"diff"}, strings.Fields(c.args)...))
		assert.Check(t, status == exitOK && stdout.String() == want && want != "", "%s: %d, %s\n%s\nwant\n%s", c.args, status, &stderr, &stdout, want)
	}

	empty, bad := t.TempDir(), filepath.Join(t.TempDir(), "bad.tailcam")
	assert.NilError(t, os.WriteFile(bad, []byte("no pack"), 0o600))
	for args, want := range map[string]string{
		"--from " + dir:                                         "--from and --to need each other",
		"--from " + dir + " --to " + dir + " x":                 "name two snapshots, or --from and --to, not both",
		"--from " + dir + " --to " + dir + " --outlier 1":       "--outlier is of two snapshots",
		"--from " + dir + " --to " + empty:                      "--to " + empty + ": no snapshots and no packs (*.tailcam) in it",
		"--from /no/dir --to " + dir:                            "--from /no/dir: no such file or directory",
		"--from " + bad + " --to " + dir:                        "it is no packed snapshot",
		"--from " + one + " --to " + dir:                        "cannot compare histograms with snapshots: name two of a kind",
		"--from " + dir + " --to " + dir + " --to " + dir:       "--to names 2 sets",
		"--from - --to -":                                       "standard input can be one --from or --to, not several",
		"--from - --to " + dir:                                  "--from -: it is empty",
		"--from " + filepath.Join(dir, ids[2]) + " --to " + dir: "no snapshot has an outlier that ended",
	} {
		status, stdout, stderr := invoke(t, append([]string{"diff"}, strings.Fields(args)...)...)
		assert.Check(t, status != exitOK && stdout == "" && strings.Contains(stderr, want), "%s: %d, %q\n%s", args, status, stderr, stdout)
	}
	left, err := os.ReadDir(tmp)
	assert.Check(t, err == nil && is.Len(left, 0)().Success(), "left in TMPDIR: %v", left)
}
