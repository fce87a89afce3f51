package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/skips"
	"github.com/tailcam/tailcam/test/vm/boot"
)

func TestCount(t *testing.T) {
	c := count([]byte(`=== RUN   TestA
=== RUN   TestA/sub
--- PASS: TestA (0.01s)
    --- PASS: TestA/sub (0.00s)
=== RUN   TestB
    b_test.go:7: no such hook
--- SKIP: TestB (0.00s)
=== RUN   TestC
--- SKIP: TestC (0.00s)
=== RUN   TestD
    d_test.go:9: wrong
--- FAIL: TestD (0.00s)
=== RUN   TestE
=== RUN   TestE/one
    e_test.go:3: no KVM
=== RUN   TestE/two
    e_test.go:5: fine
--- PASS: TestE (0.01s)
    --- SKIP: TestE/one (0.00s)
    --- PASS: TestE/two (0.00s)
FAIL
`))
	assert.Check(t, c.passed == 2 && c.failed == 1, "got %d passed and %d failed, want 2 and 1", c.passed, c.failed)
	want := []skip{{"TestB", "no such hook"}, {"TestC", "no reason given"}, {"TestE/one", "no KVM"}}
	assert.Check(t, slices.Equal(c.skipped, want), "skipped: got %q, want %q", c.skipped, want)
	list := skips.List{}
	refused := c.refused(list, "6.1", []string{"./p"})
	assert.Check(t, slices.Equal(refused, want), "refused: got %q, want %q", refused, want)
}

// What failed stands at the end, whatever passed after it.
func TestPrintFailures(t *testing.T) {
	c := count([]byte("=== RUN   TestA\n--- PASS: TestA (0.01s)\n=== RUN   TestB\n=== RUN   TestB/sub\r\n" +
		"    b_test.go:7: wrong\n        {\"level\":\"info\"}\n--- FAIL: TestB (0.00s)\n    --- FAIL: TestB/sub (0.00s)\n=== RUN   TestC\n--- PASS: TestC (0.01s)\n" +
		"=== RUN   TestD\n    d_test.go:8: fine until here\n"))
	var printed strings.Builder
	printFailures(&printed, &result{target: target{name: "6.1"}, counts: c, failure: "the tests ended early", said: []string{"not booted again"}})
	assert.Check(t, is.Equal(printed.String(), `
=== 6.1: TestB
=== RUN   TestB
=== RUN   TestB/sub
    b_test.go:7: wrong
--- FAIL: TestB (0.00s)

=== 6.1: TestD
=== RUN   TestD
    d_test.go:8: fine until here

6.1: FAILED: the tests ended early
6.1: not booted again
`))
}

func TestJudge(t *testing.T) {
	good, bad := counts{passed: 3}, counts{passed: 2, failed: 1}
	for _, test := range []struct {
		name   string
		exit   int
		counts counts
		kernel string
		want   string
	}{
		{"passed", boot.Passed.ExitCode(), good, "", ""},
		{"nothing ran", boot.Passed.ExitCode(), counts{}, "", "no test ran"},
		{"failed", boot.Failed.ExitCode(), bad, "", "1 tests failed"},
		{"failed, status lies", boot.Passed.ExitCode(), bad, "", "1 tests failed, though their exit status is 0"},
		{"crashed", boot.Failed.ExitCode(), good, "", "the tests ended early"},
		{"out of memory", boot.Failed.ExitCode(), good, "x\n[ 1.0] Out of memory: Killed process 9\ny", "the tests ended early: [ 1.0] Out of memory: Killed process 9"},
		{"provoked", boot.Passed.ExitCode(), good, "[ 9.1] watchdog: BUG: soft lockup - CPU#1 stuck for 3s! [tc-lockup:77]\nx", ""},
		{"not provoked", boot.Passed.ExitCode(), good, "[ 9.1] watchdog: BUG: soft lockup - CPU#1 stuck for 3s! [x:77]",
			"tests passed, but the kernel says: [ 9.1] watchdog: BUG: soft lockup - CPU#1 stuck for 3s! [x:77]"},
		{"passed with trouble", boot.Passed.ExitCode(), good, "BUG: scheduling while atomic", "tests passed, but the kernel says: BUG: scheduling while atomic"},
		{"warned", boot.Warned.ExitCode(), good, "", "tests passed, but the kernel warned"},
		{"init failed", boot.Broken.ExitCode(), counts{}, "", "init could not set up the guest"},
		{"too long", boot.Expired.ExitCode(), good, "", "the tests took too long"},
		{"panic", 0, good, "Kernel panic - not syncing", "no exit status: the kernel restarted: Kernel panic - not syncing"},
		{"qemu", 1, counts{}, "", "qemu exits with 1: no such option"},
		{"killed", -1, counts{}, "", "qemu exits with -1: no such option"},
	} {
		assert.Check(t, is.Equal(judge(test.exit, test.counts, []byte(test.kernel), "no such option\n"), test.want),
			"%s", test.name)
	}
}

// TestTroubleIsNoticed ruins guests in every way that the harness must notice.
func TestTroubleIsNoticed(t *testing.T) {
	if os.Getenv("TAILCAM_TEST_VM") != "1" {
		t.Skip("boots virtual machines and downloads a kernel: set TAILCAM_TEST_VM=1")
	}
	root, err := moduleRoot()
	assert.NilError(t, err)
	base := layout(root)
	unlock, err := base.lock()
	assert.NilError(t, err)
	defer unlock()
	kernels, err := pick("6.1", "", everyTurn)
	assert.NilError(t, err)
	assert.NilError(t, os.MkdirAll(base.kernels, 0o755))
	if _, err := getKernel(context.Background(), base, kernels[0]); err != nil {
		t.Fatal(err) // fetched here once, not by all at once
	}
	list, err := skips.Load(filepath.Join(root, skipsFile))
	assert.NilError(t, err)
	for _, test := range []struct {
		run, want string
		timeout   time.Duration
	}{
		{"TestFails", "1 tests failed", time.Minute},
		{"TestSkips", "no test ran", time.Minute},
		{"TestSkips|TestPasses", "skips that test/skips.yaml does not allow", time.Minute},
		{"TestPanics", "no exit status: the kernel restarted: ", time.Minute},
		{"TestRestarts", "no exit status: the kernel restarted", time.Minute},
		{"TestEatsMemory", "Out of memory: Killed process", time.Minute},
		{"TestHangs", "the tests took too long", 10 * time.Second},
		{"TestSleeps", "the tests ended early", 10 * time.Second},
		{"TestStarves", "hangs: killed after ", 5 * time.Second},
	} {
		t.Run(test.run, func(t *testing.T) {
			t.Parallel()
			d := base
			d.build, d.logs = t.TempDir(), filepath.Join(t.TempDir(), "logs")
			opts := &options{
				kernels: kernels, packages: []string{"./test/vm/trouble"}, run: "^(" + test.run + ")$",
				jobs: 1, timeout: test.timeout, memory: 512, skips: list,
			}
			p, err := buildPayloads(context.Background(), d, opts)
			assert.NilError(t, err)
			got := runAll(context.Background(), d, p, opts)[0].failure
			assert.Check(t, strings.Contains(got, test.want), "got %q, want %q", got, test.want)
		})
	}
}
