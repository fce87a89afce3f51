package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/record"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/test/support/schema"
)

// TestRecord: runs beside a daemon, which they do not disturb, report what the injector did,
// and leave nothing.
func TestRecord(t *testing.T) {
	needRoot(t)
	uid, injector := newUID(), inject.Build(t)
	h := newHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 5ms, every: 50ms, burst: 5}")))
	d := h.start(t)
	r := &recording{home: h, temporary: publicDir(t, "")}
	as := []string{"setpriv", "--reuid=" + strconv.Itoa(uid), "--regid=" + strconv.Itoa(uid), "--clear-groups", injector}
	napped := func(n int, length time.Duration) []string { return slices.Concat(as, napArgs(n, length, 1)) }

	const n = 60
	first, junit := filepath.Join(h.dir, "first.json"), filepath.Join(h.dir, "first.xml")
	a := r.run(t, []string{"-O", first, "--junit", junit}, napped(n, 20*time.Millisecond)...)
	assert.Check(t, a.code == 3, "outliers, but exit status %d\n%s", a.code, a.err)
	r.agrees(t, r.read(t, first), a.out, n)
	xml, err := os.ReadFile(junit)
	assert.Check(t, err == nil && bytes.Contains(xml, []byte(`failures="1"`)) && bytes.Contains(xml, []byte(`name="nap"`)), "%v\n%s", err, xml)

	second := filepath.Join(h.dir, "second.json")
	a = r.run(t, []string{"--compare", first, "--fail-on", "slower(nap)", "--fail-on", "p50(nap) > 1h", "-O", second}, napped(n, 50*time.Millisecond)...)
	report := r.read(t, second)
	assert.Check(t, a.code == 3 && report.Checks[0].Failed && !report.Checks[1].Failed, "twice as slow: exit status %d, %+v\n%s", a.code, report.Checks, a.err)
	r.agrees(t, report, a.out, n)

	a = r.run(t, []string{"--fail-on", "count(nap) > 0", "-o", "json"}, "sh", "-c", "echo said; exit 7")
	_, err = schema.Check(schemaDir, []byte(a.out))
	assert.Check(t, err)
	assert.Check(t, a.code == 7 && strings.Contains(a.err, "said\n"), "the command's own exit status: %d, %q", a.code, a.err)
	a = r.run(t, []string{"--for", "300ms"}, "sh", "-c", "sleep 1000 & echo $!; wait")
	pid, err := strconv.Atoi(strings.TrimSpace(a.out))
	assert.Check(t, err == nil && a.code == 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH), "ended by --for: %+v", a)

	r.interrupted(t)
	settled(t, d, "nap", 2*n)
	got := d.status().rule("nap").Outliers
	assert.Check(t, got == 2*n, "the daemon beside has seen %d outliers, not %d", got, 2*n)
}

// recording runs `tailcam record`.
type recording struct {
	*home
	temporary string
}

func (r *recording) command(t *testing.T, args []string, command ...string) *exec.Cmd {
	t.Helper()
	args = slices.Concat([]string{"record", "--rules", r.rules}, args, []string{"--"}, command)
	cmd := exec.CommandContext(t.Context(), built.tailcam, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+r.temporary)
	return cmd
}

// run holds that nothing stays.
func (r *recording) run(t *testing.T, args []string, command ...string) answer {
	t.Helper()
	a := outcome(t, r.command(t, args, command...))
	r.clean(t)
	return a
}

func (r *recording) clean(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(r.temporary)
	assert.Check(t, err == nil && len(left) == 0, "it left %v (%v)", left, err)
	nothingPinned(t)
}

func (r *recording) read(t *testing.T, path string) *record.Report {
	t.Helper()
	data, err := os.ReadFile(path)
	assert.NilError(t, err)
	_, err = schema.Check(schemaDir, data)
	assert.Check(t, err)
	report := &record.Report{}
	assert.NilError(t, json.Unmarshal(data, report))
	return report
}

// agrees compares a report with what the injector says that it did: each nap is in it,
// once, and is not longer than by the injector's clock, which is read outside.
func (r *recording) agrees(t *testing.T, report *record.Report, out string, n int) {
	t.Helper()
	naps, err := inject.Parse([]byte(out))
	assert.NilError(t, err)
	slices.SortFunc(naps, func(a, b inject.Event) int { return int(a.Delay() - b.Delay()) })
	assert.Assert(t, len(naps) == n, "injected %d of %d", len(naps), n)
	rule := &report.Rules[0]
	assert.Assert(t, rule.Name == "nap" && rule.Outliers == uint64(n) && rule.Histogram != nil && rule.Histogram.Count == uint64(n),
		"%d outliers: %+v", n, rule)
	// A bucket is 9.1 % wide. Half of the naps are not disturbed at once.
	middle, longest := float64(naps[n/2].Delay()), naps[n-1].Delay().Nanoseconds()
	h := rule.Histogram
	assert.Check(t, float64(h.P50NS) > middle/1.1 && float64(h.P50NS) < middle*1.1, "p50 is %d, injected %g", h.P50NS, middle)
	assert.Check(t, h.P50NS <= h.P90NS && h.P90NS <= h.P99NS && h.P99NS <= h.P999NS && h.P999NS <= h.MaxNS && h.MaxNS <= uint64(longest) &&
		rule.MaxNS == int64(h.MaxNS), "%+v, the longest injected is %d", h, longest)
	inSlices, outliers := uint64(0), uint64(0)
	for _, s := range rule.Slices {
		outliers += s.Outliers
		for _, c := range s.Count {
			inSlices += c
		}
	}
	assert.Check(t, inSlices == uint64(n) && outliers == uint64(n), "in slices %d delays and %d outliers of %d", inSlices, outliers, n)
	assert.Check(t, rule.Explained > 0 && len(rule.Verdicts) == int(rule.Explained) && len(rule.Culprits) > 0, "no verdict: %+v", rule)
	for _, v := range rule.Verdicts {
		assert.Check(t, v.Task == "inj-syscall" && v.Text != "" && v.DelayNS <= longest, "%+v", v)
	}
}

// interrupted ends a run by a signal: the command gets it, and nothing stays.
func (r *recording) interrupted(t *testing.T) {
	t.Helper()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		var out, log child.Output
		cmd := r.command(t, []string{"--fail-on", "never"}, "sh", "-c",
			`trap 'echo got; exit 9' TERM INT; echo ready; while :; do sleep 0.05; done`)
		cmd.Stdout, cmd.Stderr = &out, &log
		assert.NilError(t, cmd.Start())
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		eventually(t, "the command runs", func() bool { return strings.Contains(out.String(), "ready") })
		held := heldBy(t, cmd.Process.Pid)
		assert.Check(t, len(held) > 0, "it holds no BPF object: this test would prove nothing")
		assert.NilError(t, cmd.Process.Signal(s))
		<-done
		assert.Check(t, cmd.ProcessState.ExitCode() == 9 && strings.Contains(out.String(), "got"), "after %s: %s, %q\n%s",
			s, cmd.ProcessState, out.String(), log.String())
		held.gone(t)
		r.clean(t)
	}
}
