package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	ct "github.com/tailcam/tailcam/internal/catalog/catalogtest"
)

// slowSnapshots makes two explained snapshots and a manual one.
func slowSnapshots(t *testing.T) (dir string, ids []string) {
	t.Helper()
	sda := &explain.Who{Kind: explain.KindDevice, Name: "sda", Device: "sda"}
	return ct.Make(t,
		ct.One{TID: 7, Parts: []explain.Part{ct.Part(explain.Preempted, ct.Task("rt-hog", 99, 49), 20)}},
		ct.One{TID: 8, Rule: "disk", Comm: "\x1b[2J", Age: time.Second, DelayNS: 30e6,
			Parts: []explain.Part{ct.Part(explain.BlockDevice, sda, 22), ct.Part(explain.Preempted, ct.Task("rt-hog", 100, 49), 8)}},
		ct.One{ByHand: true, Age: time.Minute})
}

func TestTop(t *testing.T) {
	dir, ids := slowSnapshots(t)
	want := `50.0ms of slow time in 2 outliers
2 outliers explained by 3 snapshots

CULPRIT    TIME  SHARE           OUTLIERS  MAINLY              WORST  SNAPSHOT
rt-hog   28.0ms    56%  ██████▋         2  preempted          20.0ms  20261120T231502
sda      22.0ms    44%  █████▎          1  disk, for \x1b[2J  22.0ms  20261120T231503
`
	status, stdout, stderr := invoke(t, "top", "--dir", dir)
	diff := cmp.Diff(want, stdout)
	assert.Check(t, status == exitOK && stderr == "" && diff == "", "status %d, %q\n%s", status, stderr, diff)
	_, stdout, _ = invoke(t, "top", "--dir", dir, "--by", "rule", "--count", "1")
	if !strings.Contains(stdout, "\nRULE    TIME  SHARE") || !strings.Contains(stdout, "\ndisk  30.0ms    60%") ||
		!strings.Contains(stdout, "sda 73%, rt-hog 27%") || !strings.HasSuffix(stdout, "1 more, 20.0ms total\n") {
		t.Errorf("by rule:\n%s", stdout)
	}
	_, stdout, _ = invoke(t, "top", "--dir", dir, "--by", "unit")
	for _, want := range []string{"\nUNIT              TIME", "\nunit not known  28.0ms", " rt-hog  20.0ms ", "\nsda             22.0ms", " disk    22.0ms "} {
		assert.Check(t, strings.Contains(stdout, want), "by unit: no %q in\n%s", want, stdout)
	}
	status, stdout, _ = invoke(t, "top", "--dir", dir, "--since", "1s", "-o", "json")
	n := isJSONLines(t, stdout)
	assert.Check(t, status == exitOK && n == 1 && strings.Contains(stdout, `"rows":[]`) &&
		strings.Contains(stdout, `"daemon":null`), "json: status %d, %s", status, stdout)
	for args, want := range map[string]string{
		"--by comm": "invalid --by comm: must be one of culprit, cause, rule, cgroup, unit, pod, container, image, pattern, wait-site, activity, activity-text", "--count 0": "invalid --count 0: must be a positive number",
		"--dir /no/such": "directory /no/such does not exist: set the snapshot directory with --snapshots-dir",
		"now":            `"tailcam top" takes no arguments, got "now": see "tailcam top --help"`,
	} {
		status, _, stderr := invoke(t, append([]string{"top"}, strings.Fields(args)...)...)
		assert.Check(t, status == statusOf(want) && stderr == "tailcam: "+want+"\n",
			"top %s: status %d, %q", args, status, stderr)
	}
	_, stdout, stderr = invoke(t, "top", "--dir", filepath.Dir(filepath.Join(dir, ids[0], "trace")))
	assert.Check(t, stdout == "" && strings.HasPrefix(stderr, "no outliers in "),
		"no snapshots there: %q, %q", stdout, stderr)
}

// The daemon adds outliers without a snapshot.
func TestTopWithDaemon(t *testing.T) {
	dir, _ := slowSnapshots(t)
	f, socket := serve(t)
	f.dir = dir
	missed := outlier("wakeup", 50e6)
	missed.StartMono, missed.EndMono = 1, 1+50e6
	f.Publish(missed)
	_, stdout, stderr := invoke(t, "top", "--socket", socket)
	for _, want := range []string{"100ms of slow time in 3 outliers\n", "1 without a snapshot (50.0ms), the daemon counted 2 in 1h00m\n", "\nnot explained: no snapshot holds it  50.0ms"} {
		assert.Check(t, strings.Contains(stdout, want), "no %q (%q) in\n%s", want, stderr, stdout)
	}
	_, stdout, _ = invoke(t, "top", "--socket", socket, "--dir", t.TempDir())
	assert.Check(t, !strings.Contains(stdout, "daemon"), "of another directory:\n%s", stdout)
}

func TestDiff(t *testing.T) {
	dir, ids := slowSnapshots(t)
	want := `A  ` + ids[0] + `
   victim waited to run.
B  ` + ids[1] + `
   \x1b[2J waited to run.

WHERE THE TIME WENT               A       B   CHANGE
disk                 sda          -  22.0ms  +22.0ms  new
preempted            rt-hog  20.0ms  8.00ms  -12.0ms  shorter
total                        20.0ms  30.0ms  +10.0ms
`
	status, stdout, stderr := invoke(t, "diff", "--dir", dir, ids[0][:15], ids[1][:15])
	diff := cmp.Diff(want, stdout)
	assert.Check(t, status == exitOK && stderr == "" && diff == "", "status %d, %q\n%s", status, stderr, diff)
	// Files, and what is not explained yet, do as well.
	status, stdout, _ = invoke(t, "diff", filepath.Join(dir, ids[0]), filepath.Join(dir, ids[1], "explain.json"), "-o", "json")
	var d struct {
		A     struct{ Name, Dir string }
		B     struct{ Name string }
		Parts []struct{ Became string }
	}
	err := json.Unmarshal([]byte(stdout), &d)
	assert.Check(t, err == nil && status == exitOK && d.A.Name == ids[0] && d.A.Dir != "" && len(d.Parts) == 2 &&
		d.Parts[0].Became == "new", "status %d, %v: %s", status, err, stdout)
	assert.NilError(t, os.Remove(filepath.Join(dir, ids[1], "explain.json")))
	if status, stdout, stderr := invoke(t, "diff", "--dir", dir, ids[0], ids[1]); status != exitOK || !strings.Contains(stdout, "30.0ms  +30.0ms  new") {
		t.Errorf("explained now: status %d, %q\n%s", status, stderr, stdout)
	}
	if err := os.WriteFile(filepath.Join(dir, "bad.json"), []byte(`{"version":1,"outliers":[{"delay_ns":5,"parts":[{"ns":4}]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                                       `missing argument: A: see "tailcam diff --help"`,
		ids[0]:                                   `missing argument: B: see "tailcam diff --help"`,
		ids[0] + " " + ids[2]:                    ids[2] + " has no outlier: it was taken manually",
		ids[0] + " 1999":                         `no such snapshot: "1999" in ` + dir + `: see "tailcam snapshots list"`,
		ids[0] + " /no/explain.json":             "read explanation: open /no/explain.json: no such file or directory",
		ids[0] + " " + dir + "/bad.json":         dir + "/bad.json: explain.json, outlier 0: its parts add up to 4 ns, its delay is 5 ns",
		ids[0] + " " + ids[1] + " --outlier 1,2": "invalid --outlier 2: " + ids[1] + " has 1 outlier",
		ids[0] + " " + ids[1] + " --outlier 1,2,3": "invalid --outlier: must be one number, or two such as 1,3",
	} {
		status, stdout, stderr := invoke(t, append([]string{"diff", "--dir", dir}, strings.Fields(args)...)...)
		assert.Check(t, status == statusOf(want) && stdout == "" && stderr == "tailcam: "+want+"\n",
			"diff %s: status %d, %q, %q", args, status, stdout, stderr)
	}
}
