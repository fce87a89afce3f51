package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/api"
	ct "github.com/tailcam/tailcam/internal/catalog/catalogtest"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/snapshot"
)

// threeSnapshots makes an explained one, one of a task with a hostile name, and a
// manual one.
func threeSnapshots(t *testing.T) (dir string, ids []string) {
	t.Helper()
	return ct.Make(t,
		ct.One{Parts: []explain.Part{ct.Part(explain.Preempted, ct.Task("rt-hog", 99, 49), 20)}},
		ct.One{Age: time.Second, Rule: "disk", Comm: "\x1b[2J漢字", TID: 8, DelayNS: 30e6},
		ct.One{Age: time.Minute, ByHand: true})
}

func TestSnapshotsList(t *testing.T) {
	dir, ids := threeSnapshots(t)
	want := `SNAPSHOT         TIME                     RULE             DELAY  TASK            BLAME                    KEPT
20261120T231502  2026-11-20 23:15:02.123  wakeup          20.0ms  victim[7]       preempted by rt-hog[99]  worst
20261120T231503  2026-11-20 23:15:03.123  disk            30.0ms  \x1b[2J漢字[8]                           worst
20261120T231602  2026-11-20 23:16:02.123  manual because       -                                           newest
3 snapshots, … in ` + dir
	status, stdout, stderr := invoke(t, "snapshots", "list", "--dir", dir)
	got := sizes(stdout)
	diff := cmp.Diff(want, got)
	assert.Check(t, status == exitOK && stderr == "" && diff == "",
		"status %d, stderr %q\n%s", status, stderr, diff)
	status, alias, _ := invoke(t, "list", "snapshots", "--dir", dir)
	if status != exitOK || alias != stdout {
		t.Errorf("list snapshots: status %d\n%s", status, cmp.Diff(stdout, alias))
	}
	status, stdout, _ = invoke(t, "snapshots", "list", "--dir", dir, "-o", "json")
	n := isJSONLines(t, stdout)
	assert.Check(t, status == exitOK && n == 3 && strings.Contains(stdout, ids[0]) &&
		strings.Contains(stdout, `"blame":{"cause":"preempted"`), "json: status %d, %s", status, stdout)
}

// sizes replaces sizes, which depend on the file system.
func sizes(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		line = regexp.MustCompile(`[0-9.]+KiB( in)?`).ReplaceAllStringFunc(line, func(size string) string {
			if strings.HasSuffix(size, " in") {
				return "… in"
			}
			return ""
		})
		lines = append(lines, strings.TrimRight(strings.Replace(line, "SIZE", "", 1), " \n"))
	}
	return strings.Join(lines, "\n")
}

// The snapshot directory comes from the daemon, the environment, or a file.
func TestSnapshotsWhere(t *testing.T) {
	dir, ids := threeSnapshots(t)
	f, socket := serve(t)
	f.dir = dir
	none := filepath.Join(t.TempDir(), "none.sock")
	file := filepath.Join(t.TempDir(), "tailcam.yaml")
	assert.NilError(t, os.WriteFile(file, []byte("snapshots:\n  dir: "+dir+"\n"), 0o600))
	seen := func(how string, args ...string) {
		t.Helper()
		status, stdout, stderr := invoke(t, append([]string{"snapshots", "list", "-o", "json"}, args...)...)
		assert.Check(t, status == exitOK && stderr == "" && strings.Contains(stdout, ids[2]),
			"%s: status %d, %q, %q", how, status, stdout, stderr)
	}
	seen("daemon", "--socket", socket)
	seen("file", "--socket", none, "--config", file)
	t.Setenv("TAILCAM_SNAPSHOTS_DIR", dir)
	seen("environment", "--socket", none)
}

// The directory of a daemon in a container may have the same path as another one
// here, which must not be used instead.
func TestSnapshotsElsewhere(t *testing.T) {
	dir, _ := threeSnapshots(t)
	f, socket := serve(t)
	f.dir, f.dirID = dir, api.DirID(dir)
	_, stdout, _ := invoke(t, "snapshots", "list", "--socket", socket)
	assert.Check(t, strings.Contains(stdout, "rt-hog[99]"), "the same directory:\n%s", stdout)
	f.dirID = "1:2"
	_, stdout, stderr := invoke(t, "snapshots", "list", "--socket", socket)
	assert.Check(t, !strings.Contains(stdout, "rt-hog") && strings.Contains(stdout, "manual because"),
		"another one: %q\n%s", stderr, stdout)
	want := "tailcam: " + dir + " is not the daemon's directory here: if the daemon runs in a container, use --snapshots-dir, such as --snapshots-dir /proc/PID/root/…\n"
	for _, verb := range []string{"snapshots verify", "snapshots rm x", "snapshots prune --keep-count 1", "snapshots show", "top", "explain x"} {
		status, _, stderr := invoke(t, append(strings.Fields(verb), "--socket", socket)...)
		assert.Check(t, status == exitError && stderr == want, "%s: status %d, %q", verb, status, stderr)
	}
	status, _, _ := invoke(t, "snapshots", "verify", "--socket", socket, "--dir", dir)
	assert.Check(t, status == exitOK, "--dir is ignored")
}

func TestSnapshotsShow(t *testing.T) {
	dir, ids := threeSnapshots(t)
	status, stdout, stderr := invoke(t, "snapshots", "show", "--dir", dir, ids[0][:15])
	assert.Assert(t, status == exitOK && stderr == "", "status %d, %q", status, stderr)
	for _, want := range []string{
		ids[0] + "\n", "20.0ms  victim[7]", "    verdict      victim waited to run.\n", "    of that       20.0ms  100%  preempted by rt-hog[99]\n",
		"    kernel       schedule+0x1\n", "history    3 events on 1 CPU, at least 1.48s before the first outlier\n", "previous   none\n",
		`next       1.00s later  20261120T231503  disk  30.0ms  \x1b[2J漢字[8]` + "\n",
	} {
		assert.Check(t, strings.Contains(stdout, want), "no %q in\n%s", want, stdout)
	}
	// The newest one; by its path; and as JSON.
	_, stdout, _ = invoke(t, "snapshots", "show", "--dir", dir)
	assert.Check(t, strings.HasPrefix(stdout, ids[2]+"\n") && strings.Contains(stdout, "taken manually because") &&
		strings.Contains(stdout, "next       none"), "newest:\n%s", stdout)
	status, stdout, _ = invoke(t, "snapshots", "show", filepath.Join(dir, ids[1]), "-o", "json")
	var story struct {
		Snapshot      struct{ ID string }
		Before, After *struct{ ID string }
		Explanation   any
	}
	if err := json.Unmarshal([]byte(stdout), &story); err != nil || status != exitOK || story.Snapshot.ID != ids[1] ||
		story.Before.ID != ids[0] || story.After.ID != ids[2] || story.Explanation != nil {
		t.Errorf("status %d, %v: %+v", status, err, story)
	}
}

func TestSnapshotsRemove(t *testing.T) {
	dir, ids := threeSnapshots(t)
	left := func() int {
		t.Helper()
		now, err := snapshot.IDs(dir)
		assert.NilError(t, err)
		return len(now)
	}
	// Nothing is removed unless all are found.
	for args, want := range map[string]string{
		ids[0] + " 1999":         `tailcam: no such snapshot: "1999" in ` + dir + `: see "tailcam snapshots list"`,
		"2026":                   `tailcam: ambiguous snapshot id: "2026" matches ` + ids[0] + ", " + ids[1] + " and 1 more: use a longer prefix",
		ids[1] + " ../snapshots": `tailcam: "../snapshots" is a path, not a snapshot id: name its directory with --snapshots-dir`,
		dir + "/" + ids[0]:       `tailcam: "` + dir + "/" + ids[0] + `" is a path, not a snapshot id: name its directory with --snapshots-dir`,
	} {
		status, stdout, stderr := invoke(t, append([]string{"snapshots", "rm", "--dir", dir}, strings.Fields(args)...)...)
		if status != exitError || stdout != "" || stderr != want+"\n" || left() != 3 {
			t.Errorf("%s: status %d, %q, %q, %d left", args, status, stdout, stderr, left())
		}
	}
	// One in use stays, the other goes.
	lock, err := os.Open(filepath.Join(dir, ids[0]))
	assert.NilError(t, err)
	defer lock.Close()
	assert.NilError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_SH))
	status, stdout, stderr := invoke(t, "snapshots", "rm", "--dir", dir, ids[0], ids[1][:15], ids[1])
	if status != exitError || left() != 2 || !strings.HasPrefix(stdout, "removed "+ids[1]+" ") ||
		stderr != "tailcam: remove snapshot "+ids[0]+": the snapshot is in use: try again when its actions have ended\n" {
		t.Errorf("status %d, %q, %q, %d left", status, stdout, stderr, left())
	}
	status, stdout, _ = invoke(t, "snapshots", "rm", "--dir", dir, ids[2], "-o", "json")
	if n := isJSONLines(t, stdout); status != exitOK || n != 1 || !strings.Contains(stdout, `"removed":true`) || left() != 1 {
		t.Errorf("status %d, %s, %d left", status, stdout, left())
	}
}

func TestSnapshotsPrune(t *testing.T) {
	dir, ids := threeSnapshots(t)
	status, stdout, _ := invoke(t, "snapshots", "prune", "--dir", dir, "--keep-count", "1", "--dry-run")
	if status != exitOK || strings.Count(stdout, "would remove 2") != 3 || !strings.Contains(stdout, "limit: count") || !strings.Contains(stdout, "would remove 2 snapshots, ") {
		t.Errorf("dry: status %d\n%s", status, stdout)
	}
	now, err := snapshot.IDs(dir)
	assert.Check(t, err == nil && len(now) == 3, "a dry run removed something: %v, %v", now, err)
	status, stdout, _ = invoke(t, "snapshots", "prune", "--dir", dir, "--older-than", "1d", "--keep-count", "2", "-o", "json")
	n := isJSONLines(t, stdout)
	assert.Check(t, status == exitOK && n != 0 && strings.Contains(stdout, `"removed":true`),
		"status %d, %s", status, stdout)
	now, err = snapshot.IDs(dir)
	assert.Check(t, err == nil && len(now) <= 2 && (len(now) != 2 || now[0] == ids[1]), "left %v, %v", now, err)
}

func TestSnapshotsPin(t *testing.T) {
	dir, ids := threeSnapshots(t)
	f, socket := serve(t) // keeps 4
	f.dir = dir
	status, stdout, stderr := invoke(t, "snapshots", "pin", "--socket", socket, ids[0][:15], ids[0])
	assert.Check(t, status == exitOK && stderr == "" && stdout == "pinned "+ids[0]+"\n", "status %d, %q, %q", status, stdout, stderr)
	status, stdout, _ = invoke(t, "snapshots", "pin", "--socket", socket, ids[1], "-o", "json")
	assert.Check(t, status == exitOK && stdout == `{"schema":"tailcam/pin/v1","id":"`+ids[1]+`","pinned":true}`+"\n", "status %d, %q", status, stdout)
	status, stdout, stderr = invoke(t, "snapshots", "pin", "--socket", socket, ids[2])
	assert.Check(t, status == exitError && stdout == "" && stderr == "tailcam: pin snapshot "+ids[2]+
		": too many snapshots are pinned: at most 2 may be, half of snapshots.keep.count: unpin others, or raise it\n",
		"status %d, %q, %q", status, stdout, stderr)
	_, stdout, _ = invoke(t, "snapshots", "list", "--dir", dir)
	assert.Check(t, strings.Count(stdout, "  pinned  ") == 2, "%s", stdout)
	_, stdout, _ = invoke(t, "snapshots", "list", "--dir", dir, "-o", "json")
	assert.Check(t, strings.Count(stdout, `"pinned":true,"kept":"pinned"`) == 2, "%s", stdout)
	_, stdout, _ = invoke(t, "snapshots", "show", "--dir", dir, ids[0])
	assert.Check(t, strings.Contains(stdout, "\npinned     until tailcam snapshots unpin\n"), "%s", stdout)

	status, stdout, stderr = invoke(t, "snapshots", "rm", "--dir", dir, ids[2], ids[0])
	assert.Check(t, status == exitError && stdout == "" && stderr == "tailcam: "+ids[0]+" is pinned: see \"tailcam snapshots unpin\"\n",
		"status %d, %q, %q", status, stdout, stderr)
	status, stdout, stderr = invoke(t, "snapshots", "prune", "--dir", dir, "--keep-count", "1")
	assert.Check(t, status == exitOK && strings.HasPrefix(stdout, "removed "+ids[2]) &&
		strings.HasPrefix(stderr, "tailcam: 2 snapshots, ") && strings.HasSuffix(stderr, " remain: 2 of them pinned\n"),
		"status %d, %q, %q", status, stdout, stderr)
	// Where the limits are lower now.
	t.Setenv("TAILCAM_SNAPSHOTS_KEEP_COUNT", "2")
	_, stdout, _ = invoke(t, "snapshots", "list", "--dir", dir)
	assert.Check(t, strings.Count(stdout, "  pin ignored  ") == 1 && strings.Count(stdout, "  pinned") == 1, "%s", stdout)

	status, stdout, _ = invoke(t, "snapshots", "unpin", "--dir", dir, ids[0], ids[1])
	assert.Check(t, status == exitOK && stdout == "unpinned "+ids[0]+"\nunpinned "+ids[1]+"\n", "status %d, %q", status, stdout)
	status, _, _ = invoke(t, "snapshots", "rm", "--dir", dir, ids[0], ids[1])
	assert.Check(t, status == exitOK)
	status, _, stderr = invoke(t, "snapshots", "pin", "--dir", dir)
	assert.Check(t, status == exitUsage && strings.HasPrefix(stderr, "tailcam: missing argument: ID: see "), "status %d, %q", status, stderr)
}

func TestSnapshotsVerify(t *testing.T) {
	dir, ids := threeSnapshots(t)
	status, stdout, stderr := invoke(t, "snapshots", "verify", "--dir", dir)
	assert.Check(t, status == exitOK && stderr == "" && strings.HasSuffix(stdout, "ok: 3 snapshots\n"),
		"status %d, %q\n%s", status, stderr, stdout)
	assert.NilError(t, os.Truncate(filepath.Join(dir, ids[0], "trace/kernel/kernel_0"), 70))
	if err := os.WriteFile(filepath.Join(dir, ids[1], "snapshot.json"), []byte(`{"version":1,"id":"\u001b[31m"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr = invoke(t, "snapshots", "verify", "--dir", dir)
	if status != exitError || stderr != "" || !strings.HasSuffix(stdout, "2 of 3 snapshots damaged\n") || !strings.Contains(stdout, "trace: read trace of CPU 0") {
		t.Errorf("status %d, %q\n%s", status, stderr, stdout)
	}
	status, stdout, _ = invoke(t, "snapshots", "verify", "--dir", dir, "-o", "json", ids[0], ids[2])
	n := isJSONLines(t, stdout)
	assert.Check(t, status == exitError && n == 2 && strings.Contains(stdout, `"ok":false`) &&
		strings.Contains(stdout, `"file":"trace"`), "status %d, %s", status, stdout)
	// A damaged one is reported, and does not hide the others.
	status, stdout, stderr = invoke(t, "snapshots", "list", "--dir", dir)
	assert.Check(t, status == exitOK && strings.Count(stdout, "\n") == 4 &&
		strings.Contains(stderr, "cannot read snapshot "+ids[1]+`: `), "status %d, %q\n%s", status, stderr, stdout)
}

func TestSnapshotsEmpty(t *testing.T) {
	dir := t.TempDir()
	for args, want := range map[string]string{
		"verify": "no snapshots in " + dir + "\n",
		"show":   "tailcam: no snapshots in " + dir + "\n", "rm latest": "tailcam: no snapshots in " + dir + "\n", "show x": `tailcam: no such snapshot: "x" in ` + dir + ": see \"tailcam snapshots list\"\n",
		"rm x": `tailcam: no such snapshot: "x" in ` + dir + ": see \"tailcam snapshots list\"\n",
	} {
		status, stdout, stderr := invoke(t, append(append([]string{"snapshots"}, strings.Fields(args)...), "--dir", dir)...)
		expected := map[string]int{"verify": exitOK, "show": exitNothing, "show x": exitError, "rm x": exitError, "rm latest": exitNothing}
		assert.Check(t, status == expected[args] && stdout == "" && stderr == want, "%s: status %d, %q, %q", args, status, stdout, stderr)
	}
	if status, stdout, stderr := invoke(t, "snapshots", "list", "--dir", dir); status != exitOK || stdout != "no snapshots in "+dir+"\n" || stderr != "" {
		t.Errorf("list: status %d, %q, %q", status, stdout, stderr)
	}
	status, stdout, _ := invoke(t, "snapshots", "prune", "--keep-count", "1", "--dir", dir)
	assert.Check(t, status == exitOK && stdout == "removed 0 snapshots, 0B\n",
		"prune: status %d, %q", status, stdout)
}

// An error about permissions says what to do.
func TestSnapshotsForbidden(t *testing.T) {
	if os.Getuid() == 0 {
		err := dirError("/x", &os.PathError{Op: "open", Path: "/x", Err: syscall.EACCES})
		assert.Check(t, err.Error() == "cannot read /x: permission denied: use sudo", "%v", err)
		return // root may read everything
	}
	dir := filepath.Join(t.TempDir(), "locked")
	assert.NilError(t, os.Mkdir(dir, 0))
	status, _, stderr := invoke(t, "snapshots", "verify", "--dir", dir)
	want := "tailcam: cannot read " + dir + ": permission denied: use sudo\n"
	assert.Check(t, status == exitError && stderr == want, "status %d, %q", status, stderr)
}

// The shell completes ids, the newest first.
func TestSnapshotsComplete(t *testing.T) {
	dir, ids := threeSnapshots(t)
	complete := func(args ...string) string {
		var stdout, stderr bytes.Buffer
		execute(context.Background(), newCLI(&stdout, &stderr, testDeps()), append([]string{"__complete", "snapshots"}, args...))
		return stdout.String()
	}
	lines := strings.Split(complete("rm", "--dir", dir, ""), "\n")
	assert.Check(t, len(lines) >= 4 && strings.HasPrefix(lines[0], ids[2]+"\tmanual, ") &&
		strings.HasPrefix(lines[2], ids[0]+"\twakeup, ") && lines[3] == ":36", "%q", lines)
	got := complete("rm", "--dir", dir, ids[1][:15])
	assert.Check(t, strings.Count(got, "\n") == 2 && strings.HasPrefix(got, ids[1]), "begun: %q", got)
	got = complete("pin", "--dir", dir, "la")
	assert.Check(t, strings.HasPrefix(got, "latest\tthe newest\n:"), "latest: %q", got)
	got = complete("show", "--dir", dir, ids[0], "")
	assert.Check(t, strings.HasPrefix(got, ":"), "a second one: %q", got)
}

// A table gives way where the terminal is narrow.
func TestSnapshotsNarrow(t *testing.T) {
	dir, _ := threeSnapshots(t)
	var stdout, stderr bytes.Buffer
	c := newCLI(&stdout, &stderr, testDeps())
	c.out = term.New(&stdout, &term.Options{Terminal: true, Columns: 80})
	assert.Assert(t, execute(context.Background(), c, []string{"snapshots", "list", "--dir", dir}) == exitOK,
		"%v", stderr.String())
	for line := range strings.Lines(stdout.String()) {
		n := term.Width(strings.TrimRight(line, "\n"))
		assert.Check(t, n <= 80 || strings.Contains(line, dir), "%d columns: %q", n, line)
	}
}
