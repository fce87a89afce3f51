package accuracy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// again is how often a scenario is run anew whose own clock says that it did not
// happen; doubted, how often one is whose explanation is wrong, on a machine that
// has lost time to its hypervisor; rarely, how often one that cannot be caused is
// waited for; seldom, how often any that the load disturbs; confirmed, how often one
// must be explained rightly that was not at first; exceptions, how many such there may be.
const (
	again      = 60
	doubted    = 10
	rarely     = 3
	seldom     = 10
	confirmed  = 2
	exceptions = 2
)

// TestScenarios is the score: each scenario must be explained as it was.
func TestScenarios(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs into the kernel")
	}
	if testing.Short() {
		t.Skip("takes a minute: left out with -short")
	}
	alone(t)
	shared := &resources{t: t}
	load := underLoad(t)
	list := slices.Concat(scenarios(shared), timerScenarios(shared), endedScenarios(),
		sharedScenarios(shared), processScenarios(shared), diskScenarios(shared), servedScenarios(shared))
	if !*runAll {
		list = slices.DeleteFunc(list, func(s scenario) bool { return s.long })
	}
	c := watch(t, rules(list))
	rows := scoreAll(t, c, load, list)
	var table bytes.Buffer
	assert.NilError(t, printTable(&table, rows))
	t.Logf("\n%s", &table)
	if *tablePath != "" {
		assert.Check(t, os.WriteFile(*tablePath, table.Bytes(), 0o644))
	}
}

// scoreAll scores each of a list.
func scoreAll(t *testing.T, c *camera, load string, list []scenario) (rows []row) {
	for i := range list {
		s := &list[i]
		t.Run(s.name, func(t *testing.T) {
			r := row{scenario: s.name, cause: string(s.want.causes[0]), culprit: s.want.by, wrong: []string{"it did not come to an end"}}
			at := len(rows)
			rows = append(rows, r)
			defer func() { rows[at] = r }()
			if s.score(t, c, load, &r); len(r.wrong) > 0 && load == "" && !s.want.blamesOthers(r.verdict) {
				s.confirm(t, c, &r, rows)
			}
			for _, w := range r.wrong {
				t.Error(w)
			}
			t.Logf("%s\nadvice: %s", r.verdict, r.advice)
		})
	}
	return rows
}

// alone waits until no other run of this test is under way on the machine: they
// would disturb each other.
func alone(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "tailcam-scenarios.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	assert.NilError(t, err)
	t.Cleanup(func() { f.Close() })
}

// score runs a scenario until it is explained as it was. Where the hypervisor has
// taken nothing since the daemon began, it must be so when it first happens.
func (s *scenario) score(t *testing.T, c *camera, load string, r *row) {
	t.Helper()
	for wrong := 0; ; {
		spoilt := s.try(t, c, load, r)
		if spoilt == "" && len(r.wrong) > 0 && provoke.Stolen(t) > c.stolen {
			spoilt = "the hypervisor takes CPUs away, and it said: " + strings.Join(r.wrong, ", ")
			wrong++
		}
		switch {
		case spoilt == "" || wrong == doubted:
			return
		case s.rare && len(r.runs) == rarely, load != "" && len(r.runs) == seldom:
			r.unseen, r.wrong = spoilt, nil
			return
		case len(r.runs) == again:
			r.wrong = []string{"disturbed each time: " + strings.Join(r.runs, "; ")}
			return
		}
		r.runs = append(r.runs, spoilt)
	}
}

// confirm runs a scenario that was explained wrongly until it is explained rightly as often as
// tells that the first time was an exception, which the score states; or not.
func (s *scenario) confirm(t *testing.T, c *camera, r *row, rows []row) {
	t.Helper()
	n := 0
	for i := range rows {
		if rows[i].first != nil {
			n++
		}
	}
	if n == exceptions {
		return
	}
	if *keepDir != "" {
		kept := filepath.Join(*keepDir, s.name)
		assert.Check(t, os.RemoveAll(kept+".first"))
		if err := os.Rename(kept, kept+".first"); !errors.Is(err, os.ErrNotExist) { // as no outlier came
			assert.Check(t, err)
		}
	}
	first := *r
	t.Logf("wrong, and so run again: %s\n%s", strings.Join(r.wrong, "; "), r.verdict)
	for range confirmed {
		if s.score(t, c, "", r); len(r.wrong) > 0 {
			return
		}
	}
	r.first = &first
}

// try runs a scenario once, and judges what tailcam says, unless it did not happen.
func (s *scenario) try(t *testing.T, c *camera, load string, r *row) (spoilt string) {
	t.Helper()
	tr, leave := s.run(t, load)
	defer leave()
	if tr.Spoilt == "" && time.Duration(tr.End-tr.Start) < s.least()*11/10 {
		tr.Spoilt = "the victim did not wait"
	}
	if tr.Spoilt != "" {
		return tr.Spoilt
	}
	r.is = time.Duration(tr.Part)
	result, dir, err := c.find(s.caughtBy, tr, hang/3)
	if err != nil && s.rare {
		// Its clock cannot tell what happened in the call from what happened right before and after.
		return "it happened outside of the call: " + err.Error()
	}
	if err != nil {
		r.wrong = []string{err.Error()}
		return ""
	}
	said, wrong := s.want.judge(tr, result)
	if load != "" {
		r.partly, wrong = s.want.grade(tr, result, load, wrong)
	}
	r.said, r.wrong, r.verdict, r.advice = time.Duration(said), wrong, result.Verdict, result.Advice
	if *keepDir == "" {
		return ""
	}
	to := filepath.Join(*keepDir, s.name)
	assert.Check(t, os.RemoveAll(to))
	assert.Check(t, os.CopyFS(to, os.DirFS(dir)))
	text, err := json.Marshal(tr)
	assert.Check(t, err)
	assert.Check(t, os.WriteFile(filepath.Join(to, "truth.json"), text, 0o644))
	return ""
}

// run runs the scenario's program once. It stays until it is told to leave, so
// that tailcam finds its threads in /proc. A load may keep it from its end.
func (s *scenario) run(t *testing.T, load string) (_ *truth, leave func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	var r round
	if s.prepare != nil {
		s.prepare(t, &r)
	}
	cpu, other := quietCPUs(t)
	r.cpu, r.other = cpu, other
	args := []string{s.name, victim(s.name), strconv.Itoa(cpu), strconv.Itoa(other)}
	if r.argument != "" {
		args = append(args, r.argument)
	}
	cmd := exec.CommandContext(ctx, built.program, args...)
	cmd.Env = append(os.Environ(), r.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	late := func() bool { return load != "" && ctx.Err() != nil }
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stderr child.Output
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	in, err := cmd.StdinPipe()
	assert.NilError(t, err)
	assert.NilError(t, child.Start(cmd))
	leave = sync.OnceFunc(func() {
		in.Close()
		err := cmd.Wait()
		assert.Check(t, err == nil || late(), "scenario %v: %v\n%s", args, err, &stderr)
	})
	t.Cleanup(leave)
	if r.ready != nil {
		r.ready(t, cmd.Process.Pid)
	}
	_, wrote := io.WriteString(in, "go\n")
	var tr truth
	dec := json.NewDecoder(out)
	dec.DisallowUnknownFields()
	err = errors.Join(wrote, dec.Decode(&tr))
	if late() {
		return &truth{Spoilt: "the load kept it from its end"}, leave
	}
	assert.NilError(t, err, "scenario %v", args)
	if r.complete != nil && tr.Spoilt == "" {
		r.complete(t, &tr)
	}
	return &tr, leave
}
