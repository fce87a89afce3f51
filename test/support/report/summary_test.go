package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/skips"
)

// module runs the report over a module with one test file, and a list of skips,
// on a machine of which the witness tells.
func module(t *testing.T, machine witness, source, allowed string, args ...string) (status int, printed string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module github.com/tailcam/tailcam/m\n\ngo 1.26\n", "m_test.go": "package m\n\n" + source, "skips": allowed,
	} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
	return here(t, machine, args...)
}

// here runs the report over the module in the working directory.
func here(t *testing.T, machine witness, args ...string) (status int, printed string) {
	t.Helper()
	t.Setenv("GOFLAGS", "")
	list, err := skips.Load("skips")
	assert.NilError(t, err)
	var out strings.Builder
	status, err = run(append(args, "./..."), list, machine, &out)
	assert.NilError(t, err)
	return status, out.String()
}

func TestReport(t *testing.T) {
	const header = "import \"testing\"\n\n"
	for name, test := range map[string]struct {
		source  string
		allowed string
		status  int
		want    []string
		wantNot []string
	}{
		"pass": {
			header + `func TestA(t *testing.T) { t.Log("noise") }`,
			"",
			0,
			[]string{"ok  \tgithub.com/tailcam/tailcam/m", "1 tests passed, none was skipped"},
			[]string{"noise", "FAIL"},
		},
		"skip": {
			header + "func TestA(t *testing.T) { t.Log(\"noise\"); t.Skip(\"needs root: it\\nmounts\") }\nfunc TestB(t *testing.T) {}",
			`[{tests: [m TestA], says: ["needs root*"], when: [chance], why: x}]`,
			0,
			[]string{"1 tests passed, 1 were skipped:\n  needs root: it mounts\n      github.com/tailcam/tailcam/m TestA\n"},
			[]string{"noise"},
		},
		"fail": {
			header + `func TestA(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("the truth") }) }`,
			"",
			1,
			[]string{"the truth", "--- FAIL: TestA/sub", "FAIL\tgithub.com/tailcam/tailcam/m"},
			[]string{"ok"},
		},
		"panic": {
			header + `func TestA(t *testing.T) { panic("at the disco") }`,
			"",
			1,
			[]string{"at the disco", "FAIL\tgithub.com/tailcam/tailcam/m"},
			[]string{"ok"},
		},
		"exit": {
			"import (\n\"os\"\n\"testing\"\n)\n\n" + `func TestA(t *testing.T) { t.Log("last words"); os.Exit(3) }`,
			"",
			1,
			[]string{"last words", "FAIL\tgithub.com/tailcam/tailcam/m"},
			[]string{"ok"},
		},
		"build": {
			header + `func TestA(t *testing.T) { undefined() }`,
			"",
			1,
			[]string{"undefined: undefined", "FAIL\tgithub.com/tailcam/tailcam/m [build failed]"},
			[]string{"ok"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, printed := module(t, calm, test.source, test.allowed)
			assert.Check(t, is.Equal(status, test.status), "exit status")
			for _, s := range test.want {
				assert.Check(t, strings.Contains(printed, s), "misses %q", s)
			}
			for _, s := range test.wantNot {
				assert.Check(t, !strings.Contains(printed, s), "has %q", s)
			}
			if t.Failed() {
				t.Log(printed)
			}
		})
	}
}
