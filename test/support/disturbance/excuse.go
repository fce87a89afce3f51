package disturbance

import "strings"

// What may be excused, and how often a test runs again for it at most.
const (
	// Candidates is how many tests may fail in one run for any of them to run
	// again: with more, it is not the machine.
	Candidates = 12
	// Reruns is how often a test runs again while the machine stays disturbed.
	Reruns = 3
)

// Excuse says why a test that failed may run again, alone: the machine was
// disturbed, or other tests of the same run left no CPU idle. It is empty when
// the failure is final, as it always is for what ran alone on a calm machine.
func Excuse(a Account, besideOthers bool) string {
	switch {
	case a.Disturbed:
		return "the machine was disturbed (" + a.String() + ")"
	case besideOthers && a.Full:
		return "it shared full CPUs with other tests"
	}
	return ""
}

// never are the words of failures that no load causes.
var never = []struct{ word, what string }{
	{"DATA RACE", "a data race"},
	{"race detected during execution of test", "a data race"},
	{"panic: ", "a panic"},
	{"fatal error: ", "a crash"},
	{"Kernel panic", "a kernel panic"},
	{"*** Test killed", "a hang"},
}

// Never names what no disturbance excuses in the output of a test; empty if
// there is nothing.
func Never(output string) string {
	for _, n := range never {
		if strings.Contains(output, n.word) {
			return n.what
		}
	}
	return ""
}
