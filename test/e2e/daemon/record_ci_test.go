package daemon

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/record"
)

// The project that the job of TestRecordInCI builds and tests.
const (
	ciMakefile = "all:\n\ttouch built\ntest:\n\ttest -e built && for i in $$(seq 40); do sleep 0.01; done\n"
	ciRules    = "  - {name: wakeup, track: wakeup, threshold: 1us, when: {comm: [sleep]}, snapshot: {after: 1ms, every: 100ms}}\n" +
		"  - {name: disk-stuck, track: block, threshold: 1h, timeout: 1h}\n"
	// The package is not installed: PATH has what was built.
	ciSudo = "#!/bin/sh\ncase $1 in\napt-get) test -s \"$4\" ;;\n*) exec \"$@\" ;;\nesac\n"
)

// ciJob is what the test knows of a job of GitHub Actions.
type ciJob struct {
	Steps []struct {
		Name, If, Run, Uses string
		Env                 map[string]string
		With                map[string]any
	}
}

// TestRecordInCI: what configs/ci/github.yml runs on the main branch, twice: the second run is
// compared with the reports that the first ones have left, of which it keeps five.
func TestRecordInCI(t *testing.T) {
	needRoot(t)
	for _, tool := range []string{"bash", "curl", "make"} {
		needTool(t, tool, tool)
	}
	text, err := os.ReadFile("../../../configs/ci/github.yml")
	assert.NilError(t, err)
	var workflow struct{ Jobs map[string]ciJob }
	assert.NilError(t, yaml.Unmarshal(text, &workflow))
	job := workflow.Jobs["latency"]

	bin, temporary := publicDir(t, ""), publicDir(t, "")
	writeFile(t, filepath.Join(bin, "sudo"), ciSudo, 0o755)
	assert.NilError(t, os.Symlink(built.tailcam, filepath.Join(bin, "tailcam")))
	deb := writeFile(t, filepath.Join(temporary, "built.deb"), "a package", 0o644)
	env := append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "USER=root", "RUNNER_TEMP="+temporary, "TMPDIR="+temporary, "TAILCAM_DEB=file://"+deb)

	first := job.run(t, env, nil)
	left := baselines(t, first)
	assert.Assert(t, len(left) == 1, "%v", left)
	r := ciReport(t, first)
	assert.Check(t, r.Compared == nil && len(r.Rules) == 2 && r.Rules[0].Outliers > 0 && r.Checks[1].Expression == "count(disk-stuck) > 0", "%+v", r)

	report, err := os.ReadFile(left[0])
	assert.NilError(t, err)
	cached := map[string]string{}
	for _, at := range []string{"1", "2", "3", "4", "5", "6"} {
		cached["2026010"+at+"T000000.json"] = string(report)
	}
	second := job.run(t, env, cached)
	r = ciReport(t, second)
	assert.Assert(t, r.Compared != nil)
	assert.Check(t, len(r.Compared.Baselines) == len(cached), "%+v", r.Compared)
	left = baselines(t, second)
	assert.Check(t, len(left) == 5 && filepath.Base(left[0]) == "20260103T000000.json", "%v", left)
	nothingPinned(t)
}

// run runs a job's steps in a checkout of its own, as GitHub's runner does, with what its cache
// has, and returns the directory.
func (j *ciJob) run(t *testing.T, env []string, cached map[string]string) (dir string) {
	t.Helper()
	dir = publicDir(t, "")
	for _, sub := range []string{"ci", "baselines"} {
		assert.NilError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	writeFile(t, filepath.Join(dir, "Makefile"), ciMakefile, 0o644)
	writeFile(t, filepath.Join(dir, "ci", "tailcam.yaml"), rulesFile(ciRules), 0o644)
	for name, text := range cached {
		writeFile(t, filepath.Join(dir, "baselines", name), text, 0o644)
	}
	ran := 0
	for _, step := range j.Steps {
		if step.Run == "" {
			continue // an action
		}
		ran++
		cmd := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.Run)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 && strings.Contains(step.Run, "tailcam record") {
			t.Logf("a check failed, as it may on a busy machine:\n%s", out)
			continue
		}
		assert.NilError(t, err, "%s:\n%s", step.Name, out)
		if strings.HasPrefix(step.Name, "Show") {
			assert.Check(t, strings.Contains(string(out), "sleep "), "no explanation is shown: %q", out)
		}
	}
	assert.Equal(t, ran, 5)
	for _, name := range []string{"tailcam.xml", "tailcam.json", "snapshots"} {
		_, err := os.Stat(filepath.Join(dir, name))
		assert.NilError(t, err, "what the job keeps")
	}
	return dir
}

func ciReport(t *testing.T, dir string) (r record.Report) {
	t.Helper()
	assert.NilError(t, json.Unmarshal([]byte(readText(t, dir, "tailcam.json")), &r))
	return r
}

// baselines are the reports that a job has left in its cache, oldest first.
func baselines(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "baselines", "*.json"))
	assert.NilError(t, err)
	return list
}
