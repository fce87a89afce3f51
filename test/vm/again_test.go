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

	"github.com/tailcam/tailcam/test/support/disturbance"
	"github.com/tailcam/tailcam/test/vm/boot"
)

// told is a witness that says one thing after the other, the last one for ever.
type told struct {
	accounts []disturbance.Account
	asked    int
}

func (w *told) Between(...disturbance.Span) disturbance.Account {
	w.asked++
	return w.accounts[min(w.asked, len(w.accounts))-1]
}

func (w *told) Calm(time.Duration) {}

// guest is the result of a guest whose tests printed a log.
func guest(log string, exit boot.Status) *result {
	r := &result{target: targets[0], test: []byte(log), clock: newClock(), counts: count([]byte(log)), logs: "logs"}
	now := time.Now()
	r.span = disturbance.Span{From: now, To: now.Add(time.Minute)}
	r.failure = judge(exit.ExitCode(), r.counts, nil, "")
	return r
}

const (
	twoFail = "=== RUN   TestA\n--- FAIL: TestA (0.1s)\n=== RUN   TestB\n--- PASS: TestB (0.1s)\n=== RUN   TestC\n--- FAIL: TestC (1.0s)\nFAIL\n"
	oneMore = "=== RUN   TestA\n--- PASS: TestA (0.1s)\n=== RUN   TestC\n--- FAIL: TestC (1.0s)\nFAIL\n"
	bothOK  = "=== RUN   TestA\n--- PASS: TestA (0.1s)\n=== RUN   TestC\n--- PASS: TestC (1.0s)\nPASS\n"
	still   = "=== RUN   TestA\nthe guest stood still: CPU 1 let a timer wait\n--- FAIL: TestA (0.1s)\n=== RUN   TestB\n--- PASS: TestB (0.1s)\nFAIL\n"
	lastOK  = "=== RUN   TestC\n--- PASS: TestC (1.0s)\nPASS\n"
)

func TestAgain(t *testing.T) {
	quiet := disturbance.Account{Length: time.Second}
	disturbed := disturbance.Account{Length: 4 * time.Second, Stolen: time.Second, Disturbed: true}
	full := disturbance.Account{Length: time.Second, Full: true}
	for name, test := range map[string]struct {
		first    *result
		accounts []disturbance.Account
		beside   bool
		again    []*result
		asked    []string // tests of each boot
		failure  string
		said     string
	}{
		"passed": {first: guest(bothOK, boot.Passed), accounts: []disturbance.Account{disturbed}},
		"calm": {
			guest(twoFail, boot.Failed), []disturbance.Account{disturbed, quiet}, true, nil, nil,
			"2 tests failed", "TestC failed while the machine was calm (nothing taken in 1.00 s)",
		},
		"passes alone": {
			guest(twoFail, boot.Failed), []disturbance.Account{disturbed}, false, []*result{guest(bothOK, boot.Passed)},
			[]string{"TestA TestC"}, "", "TestA, TestC passed alone",
		},
		"stood still": {
			guest(still, boot.Failed), []disturbance.Account{quiet}, false, []*result{guest("=== RUN   TestA\n--- PASS: TestA (0.1s)\n", boot.Passed)},
			[]string{"TestA"}, "", "TestA failed while the guest stood still: CPU 1 let a timer wait\nTestA passed alone",
		},
		"full, alone": {
			guest(twoFail, boot.Failed), []disturbance.Account{full}, false, nil, nil,
			"2 tests failed", "TestA failed while the machine was calm (nothing taken in 1.00 s)",
		},
		"full, beside another guest": {
			guest(twoFail, boot.Failed), []disturbance.Account{full}, true, []*result{guest(oneMore, boot.Failed)},
			[]string{"TestA TestC"}, "2 tests failed", "TestC failed while the machine was calm (nothing taken in 1.00 s)",
		},
		"the second time": {
			guest(twoFail, boot.Failed), []disturbance.Account{disturbed}, false,
			[]*result{guest(oneMore, boot.Failed), guest(lastOK, boot.Passed)},
			[]string{"TestA TestC", "TestC"}, "", "TestC passed alone",
		},
		"never": {
			guest(twoFail, boot.Failed), []disturbance.Account{disturbed}, false,
			[]*result{guest(twoFail, boot.Failed), guest(twoFail, boot.Failed)},
			[]string{"TestA TestC", "TestA TestC"}, "2 tests failed", "not booted again: that is enough",
		},
		"runs nothing": {
			guest(twoFail, boot.Failed), []disturbance.Account{disturbed}, false, []*result{guest(lastOK, boot.Passed)},
			[]string{"TestA TestC"}, "2 tests failed", "alone: other tests ran; logs: logs",
		},
		"breaks": {
			guest(twoFail, boot.Failed), []disturbance.Account{disturbed}, false, []*result{guest("", boot.Warned)},
			[]string{"TestA TestC"}, "2 tests failed", "not booted again: tests passed, but the kernel warned",
		},
		"a panic": {
			guest("=== RUN   TestA\n--- FAIL: TestA (0.1s)\npanic: oh\n", boot.Failed), []disturbance.Account{disturbed}, false,
			nil, nil, "1 tests failed", "not booted again: a panic",
		},
		"too long": {
			guest("=== RUN   TestA\n--- FAIL: TestA (0.1s)\n", boot.Expired), []disturbance.Account{disturbed}, false,
			nil, nil, "the tests took too long", "not booted again: the tests took too long",
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := []*result{test.first}
			if test.beside {
				all = append(all, guest(bothOK, boot.Passed))
			}
			var asked []string
			test.first.again(&told{accounts: test.accounts}, all, func(tests []string, _ string) *result {
				asked = append(asked, strings.Join(tests, " "))
				return test.again[len(asked)-1]
			})
			assert.Check(t, test.first.failure == test.failure && slices.Equal(asked, test.asked),
				"failure %q after %q, want %q after %q", test.first.failure, asked, test.failure, test.asked)
			said := strings.Join(test.first.said, "\n")
			assert.Check(t, strings.HasSuffix(said, test.said), "said %q, want %q", said, test.said)
			var table strings.Builder
			assert.Check(t, printTable(&table, all) == (test.failure == "") &&
				strings.Contains(table.String(), "ok, again") == (test.failure == "" && asked != nil),
				"table:\n%s", table.String())
		})
	}
	// A clock that counts instructions does not see what the host does.
	idle := guest(twoFail, boot.Failed)
	idle.target = targets[slices.IndexFunc(targets, func(t target) bool { return t.name == "6.12-idle" })]
	final := idle.final()
	assert.Check(t, final == "its clock stands still while the host is busy", "%s: got %q", idle.target.name, final)
	// Skips of the first run still count.
	skips := guest(twoFail, boot.Failed)
	skips.refused = "a skip"
	skips.again(&told{accounts: []disturbance.Account{disturbed}}, nil, func([]string, string) *result { return guest(bothOK, boot.Passed) })
	assert.Check(t, skips.failure == "a skip", "a refused skip: got %q", skips.failure)
}

// The clock reads a log while it is written, in pieces that end anywhere.
func TestClock(t *testing.T) {
	const log = "=== RUN   TestA\r\n    a_test.go:1: said\r\n=== RUN   TestA/sub\r\n=== NAME  TestA\r\n--- FAIL: TestA (0.1s)\r\n" +
		"    --- FAIL: TestA/sub (0.1s)\r\n=== RUN   TestB\r\n--- PASS: TestB (2.00s)\r\n"
	c := newClock()
	begin := time.Now().Round(0)
	for i := range len(log) + 1 {
		c.see([]byte(log[:i]), begin.Add(time.Duration(i)*time.Second))
	}
	for test, ends := range map[string][2]string{"TestA": {"=== RUN   TestA\r\n", "--- FAIL: TestA (0.1s)\r\n"}, "TestB": {"=== RUN   TestB\r\n", "2.00s)\r\n"}} {
		at := func(line string) time.Time {
			return begin.Add(time.Duration(strings.Index(log, line)+len(line)) * time.Second)
		}
		want := (disturbance.Span{From: at(ends[0]).Add(-look), To: at(ends[1])})
		assert.Check(t, c.spans[test] == want, "%s: got %v, want %v", test, c.spans[test], want)
	}
	assert.Check(t, len(c.spans) == 2, "spans: %v", c.spans)
	// The same from a file.
	file := filepath.Join(t.TempDir(), "log")
	assert.NilError(t, os.WriteFile(file, []byte(log), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	once := newClock()
	once.follow(ctx, file)
	assert.Check(t, len(once.spans) == 2, "spans of a file: %v", once.spans)
}
