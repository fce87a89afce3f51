package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/disturbance"
)

// told is a witness that says one thing after the other, the last one for ever.
type told struct {
	accounts []disturbance.Account
	unseen   int64
	asked    int
	spans    [][]disturbance.Span
}

func (w *told) Between(spans ...disturbance.Span) disturbance.Account {
	w.spans = append(w.spans, spans)
	w.asked++
	return w.accounts[min(w.asked, len(w.accounts))-1]
}

func (w *told) Calm(time.Duration) {}

func (w *told) Unseen() disturbance.Switches {
	return disturbance.Switches{All: 100, Unseen: w.unseen}
}

var (
	calm      = &told{accounts: []disturbance.Account{quiet}}
	quiet     = disturbance.Account{Length: time.Second}
	disturbed = disturbance.Account{Length: 4 * time.Second, Stolen: 1300 * time.Millisecond, Disturbed: true}
	full      = disturbance.Account{Length: time.Second, Full: true}
)

const failsFirstRuns = `import (
	"os"
	"testing"
	"time"
)

var _ = time.Second

func runs(file string) int {
	was, _ := os.ReadFile(file)
	os.WriteFile(file, append(was, '.'), 0o600)
	return len(was) + 1
}
`

// failsFirst is a test that fails as often as it is told, over all processes,
// and a neighbour that counts its runs.
const failsFirst = failsFirstRuns + `
var began, ended = make(chan bool), make(chan bool)

func TestA(t *testing.T) {
	defer close(ended)
	if PARALLEL {
		t.Parallel()
		select {
		case <-began: // TestB, if it runs at all
		case <-time.After(2 * time.Second):
		}
	}
	t.Run("sub", func(t *testing.T) {
		if runs("a") <= LIMIT {
			t.Error("the first truth")
		}
	})
	t.Run("left out", func(t *testing.T) { t.Skip("needs root: here") })
}

func TestB(t *testing.T) {
	if PARALLEL {
		t.Parallel()
	}
	close(began)
	if PARALLEL { // beside TestA, to its end
		select {
		case <-ended:
		case <-time.After(2 * time.Second):
		}
	}
	runs("b")
}
`

func source(limit, parallel string) string {
	return strings.NewReplacer("LIMIT", limit, "PARALLEL", parallel).Replace(failsFirst)
}

// quick are flags that save time.
var quick = []string{"-vet=off", "-ldflags=-s -w"}

const skipsAllowed = `[{tests: ["m *"], says: ["needs root*"], when: [chance], why: x}]`

func TestAgain(t *testing.T) {
	slow(t)
	for name, test := range map[string]struct {
		source   string
		accounts []disturbance.Account
		unseen   int64
		status   int
		runs     int // of TestA
		want     []string
	}{
		"passes alone": {
			source("1", "false"), []disturbance.Account{disturbed}, 0, 0, 2,
			[]string{
				"the first truth",
				"m TestA: failed while the machine was disturbed (1.30 s stolen in 4.00 s); passed alone\n\nEND",
				"3 tests passed, 1 were skipped:\n  needs root: here\n      github.com/tailcam/tailcam/m TestA/left_out\n\nFailed, and what",
			},
		},
		"calm": {
			source("1", "false"), []disturbance.Account{quiet}, 0, 1, 1,
			[]string{"m TestA: failed while the machine was calm (nothing taken in 1.00 s); not run again\n\nEND"},
		},
		"full, and nobody else there": {source("1", "false"), []disturbance.Account{full}, 0, 1, 1, []string{"the machine was calm (nothing taken in 1.00 s); not run again"}},
		"full, beside another test": {
			source("1", "true"), []disturbance.Account{full}, 0, 0, 2,
			[]string{"m TestA: failed while it shared full CPUs with other tests; passed alone"},
		},
		"full, beside another test, and alone": {
			source("2", "true"), []disturbance.Account{full}, 0, 1, 2,
			[]string{"with other tests; failed alone on a calm machine as well (nothing taken in 1.00 s); not run again"},
		},
		"fails alone, then calm": {
			source("2", "false"), []disturbance.Account{disturbed, quiet}, 0, 1, 2,
			[]string{"; failed alone on a calm machine as well (nothing taken in 1.00 s); not run again"},
		},
		"fails alone, then passes": {
			source("2", "false"), []disturbance.Account{disturbed}, 0, 0, 3,
			[]string{"; failed alone while the machine was disturbed (1.30 s stolen in 4.00 s); passed alone"},
		},
		"never passes": {
			source("99", "false"), []disturbance.Account{disturbed}, 0, 1, 4,
			[]string{"; not run again: that is enough", "Once more, the ends of what failed:\n=== RUN   TestA/sub\n"},
		},
		"calm, not all is told": {
			source("2", "false"), []disturbance.Account{quiet}, 3, 0, 6,
			[]string{
				"m TestA: failed while the machine was calm (nothing taken in 1.00 s); of 100 switches between tasks the kernel told tracers nothing of 3; " +
					"alone TestA passed in 4 of 5 runs\n\nEND",
				"3 tests passed, 1 were skipped",
			},
		},
		"unsteady, not all is told": {
			source("3", "false"), []disturbance.Account{quiet}, 3, 1, 3,
			[]string{"nothing of 3; TestA failed in 2 of 2 runs alone as well", "Once more, the ends of what failed:\n=== RUN   TestA/sub\n"},
		},
		"fails alone, then calm, not all is told": {
			source("2", "false"), []disturbance.Account{disturbed, quiet}, 3, 0, 6,
			[]string{"; failed alone on a calm machine as well (nothing taken in 1.00 s); of 100 switches", "; alone TestA passed in 4 of 4 runs"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &told{accounts: test.accounts, unseen: test.unseen}
			status, printed := module(t, machine, test.source, skipsAllowed, append(quick, "-p", "1", "-parallel", "2")...)
			assert.Check(t, is.Equal(status, test.status), "exit status")
			for _, s := range test.want {
				assert.Check(t, strings.Contains(printed+"\nEND", s), "misses %q", s)
			}
			a := runs(t, "a")
			assert.Check(t, a == test.runs, "TestA ran %d times, want %d", a, test.runs)
			b := runs(t, "b")
			assert.Check(t, b == 1, "TestB, which passed, ran %d times", b)
			if t.Failed() {
				t.Log(printed)
			}
		})
	}
}

// TestEach: of a test whose subtests are tests of their own, only those run again that failed, and
// then only those that failed again.
func TestEach(t *testing.T) {
	slow(t)
	const text = failsFirstRuns + `
func TestA(t *testing.T) {
	for name, limit := range map[string]int{"a": 1, "b": 0, "c.d": 2} {
		t.Run(name, func(t *testing.T) {
			if runs(name) <= limit {
				t.Error("the first truth")
			}
		})
	}
}
`
	for each, want := range map[string]map[string]int{
		"-each=^TestA$": {"a": 2, "b": 1, "c.d": 3},
		"-each=^TestB$": {"a": 3, "b": 3, "c.d": 3},
	} {
		t.Run(each, func(t *testing.T) {
			status, printed := module(t, &told{accounts: []disturbance.Account{disturbed}}, text, "", append(quick, each)...)
			assert.Check(t, status == 0 && strings.Contains(printed, "\n4 tests passed, none was skipped"), "exit status %d:\n%s", status, printed)
			for name, n := range want {
				assert.Check(t, is.Equal(runs(t, name), n), name)
			}
		})
	}
	for name, test := range map[string]struct {
		limits   string
		accounts []disturbance.Account
		status   int
		runs     map[string]int
		want     string
	}{
		"right as a rule": {
			`"a": 1, "b": 0, "c.d": 2`, []disturbance.Account{quiet}, 0, map[string]int{"a": 5, "b": 1, "c.d": 6},
			"nothing of 3; alone a passed in 4 of 4 runs; alone c.d passed in 4 of 5 runs",
		},
		"unsteady": {`"a": 1, "b": 0, "c.d": 3`, []disturbance.Account{quiet}, 1, map[string]int{"a": 3, "b": 1, "c.d": 3}, "; c.d failed in 2 of 2 runs alone as well"},
		"disturbed at first": {
			`"a": 1, "b": 0, "c.d": 2`, []disturbance.Account{disturbed, quiet}, 0, map[string]int{"a": 2, "b": 1, "c.d": 6},
			"; failed alone on a calm machine as well (nothing taken in 1.00 s); of 100 switches between tasks the kernel told tracers nothing of 3; alone c.d passed in 4 of 4 runs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			source := strings.ReplaceAll(text, `"a": 1, "b": 0, "c.d": 2`, test.limits)
			status, printed := module(t, &told{accounts: test.accounts, unseen: 3}, source, "", append(quick, "-each=TestA")...)
			assert.Check(t, is.Equal(status, test.status))
			assert.Check(t, strings.Contains(printed, test.want), printed)
			for name, n := range test.runs {
				assert.Check(t, is.Equal(runs(t, name), n), name)
			}
		})
	}
	many := strings.ReplaceAll(text, `"a": 1, "b": 0, "c.d": 2`, `"a": 9, "b": 9, "c": 9, "d": 9, "e": 9, "f": 9, "g": 9, "h": 9, "i": 9, "j": 9, "k": 9, "l": 9, "m": 9`)
	status, printed := module(t, &told{accounts: []disturbance.Account{disturbed}}, many, "", append(quick, "-each=TestA")...)
	assert.Check(t, status == 1 && strings.Contains(printed, "not run again: with 13 failures it is not the machine"), printed)
	_, _, err := ofEach([]string{"-p", "1", "-each=("})
	assert.ErrorContains(t, err, "-each: error parsing regexp")
}

func slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles and runs many tests: left out with -short")
	}
}

// runs counts what runs of the module left in its directory.
func runs(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	assert.NilError(t, err)
	return len(text)
}

// What no load causes fails at once, however little of the machine was left.
func TestNeverAgain(t *testing.T) {
	slow(t)
	const header = "import (\n\"os\"\n\"testing\"\n)\n\nvar _ = os.Args\n\n"
	const fails = `func TestA(t *testing.T) { t.Error("wrong") }` + "\n"
	for name, test := range map[string]struct{ source, want, timeout string }{
		"panic":            {header + fails + `func TestB(t *testing.T) { panic("at the disco") }`, "m TestA: not run again: a panic in TestB", "1m"},
		"panic of a child": {header + `func TestA(t *testing.T) { t.Error("the daemon said: panic: at the disco") }`, "m TestA: not run again: a panic", "1m"},
		"exit":             {header + fails + `func TestB(t *testing.T) { os.Exit(1) }`, "m TestA: not run again: its package ended before TestB", "1m"},
		"hang":             {header + fails + `func TestB(t *testing.T) { select {} }`, "m TestA: not run again: its package ended before TestB", "3s"},
		"race":             {header + `func TestA(t *testing.T) { t.Error("WARNING: DATA RACE") }`, "m TestA: not run again: a data race", "1m"},
		"too many": {
			header + strings.Join(slices.Collect(func(yield func(string) bool) {
				for name := 'A'; name < 'A'+disturbance.Candidates+1 && yield("func Test"+string(name)+"(t *testing.T) { t.Fail() }"); name++ {
				}
			}), "\n"), "m TestC: not run again: with 13 failures it is not the machine", "1m",
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, printed := module(t, &told{accounts: []disturbance.Account{disturbed}}, test.source, "", append(quick, "-timeout="+test.timeout)...)
			assert.Check(t, status == 1 && strings.Contains(printed, test.want) && !strings.Contains(printed, "Again, alone"),
				"exit status %d, want 1 and %q:\n%s", status, test.want, printed)
		})
	}
}

// A test that passes alone excuses no other package.
func TestAgainBesideAnotherPackage(t *testing.T) {
	slow(t)
	machine := &told{accounts: []disturbance.Account{disturbed}}
	status, printed := module(t, machine, source("1", "false"), skipsAllowed, quick...)
	assert.Assert(t, status == 0, "exit status %d:\n%s", status, printed)
	assert.NilError(t, os.Mkdir("other", 0o700))
	for name, test := range map[string]struct {
		source string
		want   int
	}{"fine": {"", 0}, "does not build": {"var x = undefined", 1}, "fails without a test": {"func init() { panic(1) }", 1}} {
		t.Run(name, func(t *testing.T) {
			assert.NilError(t, os.Remove("a"))
			text := "package other\n\nimport \"testing\"\n\n" + test.source + "\n\nfunc TestC(*testing.T) {}\n"
			assert.NilError(t, os.WriteFile("other/c_test.go", []byte(text), 0o600))
			status, printed := here(t, machine, quick...)
			assert.Check(t, status == test.want && strings.Contains(printed, "; passed alone"),
				"exit status %d, want %d:\n%s", status, test.want, printed)
		})
	}
}

func TestAlone(t *testing.T) {
	for in, want := range map[string]string{
		"./...":                                 "-count=1 -p=1 -run=^TestA$ x/m",
		"-race -short ./a ./b":                  "-count=1 -p=1 -run=^TestA$ -race -short x/m",
		"-count=1 -p 1 -timeout 20m a":          "-count=1 -p=1 -run=^TestA$ -timeout 20m x/m",
		"--run TestB -v -tags=x a -args -run y": "-count=1 -p=1 -run=^TestA$ -tags=x x/m -args -run y",
		"a -skip TestC -test.parallel 3":        "-count=1 -p=1 -run=^TestA$ -skip TestC x/m",
	} {
		assert.Check(t, is.Equal(strings.Join(parse(strings.Fields(in)).alone(test{"x/m", "TestA"}), " "), want),
			"%s", in)
	}
	assert.Check(t, is.Equal(strings.Join(parse([]string{"./..."}).alone(test{"x/m", "TestA"}, "a", "b.c"), " "), `-count=1 -p=1 -run=^TestA$/^(a|b\.c)$ x/m`))
	for in, want := range map[string]bool{"-p 1 a": true, "-p=1 a": true, "-p 2 a": false, "a": false, "a -args -p 1": false} {
		got := parse(strings.Fields(in)).onePackage()
		assert.Check(t, got == want, "%s: one package at once: got %v", in, got)
	}
	assert.Check(t, parse([]string{"-run", "TestA"}).selects() &&
		parse([]string{"--test.skip=TestA"}).selects() && !parse([]string{"a", "-args", "-run"}).selects(),
		"-run and -skip leave tests out, what follows -args does not")
}

// A real stream, of go test -json -p 2 ./a ./b: TestP and TestQ of a paused and
// then ran at once, TestS ran alone, but beside package b.
func TestTimeline(t *testing.T) {
	file, err := os.Open("testdata/parallel.json")
	assert.NilError(t, err)
	defer file.Close()
	var out strings.Builder
	s := newSummary(&out)
	assert.NilError(t, read(file, s))
	const a = "example/a"
	for name, want := range map[string]struct {
		spans       int
		beside, own bool // others, and others of its package
	}{"TestS": {1, true, false}, "TestP": {2, true, true}, "TestQ": {2, true, true}, "TestLast": {1, true, false}} {
		at := test{a, name}
		got := len(s.times.spans(at))
		assert.Check(t, got == want.spans, "%s: %d spans, want %d", name, got, want.spans)
		if got := s.times.beside(at, false); got != want.beside {
			t.Errorf("%s: beside others: got %v", name, got)
		}
		own := maps.Clone(s.times)
		maps.DeleteFunc(own, func(other test, _ *course) bool { return other.pkg != a })
		if got := own.beside(at, true); got != want.own {
			t.Errorf("%s: beside others of its package: got %v", name, got)
		}
	}
	want := []test{{a, "TestP"}, {"example/b", "TestOther"}}
	assert.Check(t, slices.Equal(s.failures, want), "failed: got %v, want %v", s.failures, want)
}
