package disturbance

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

var begin = time.Date(2026, 11, 20, 23, 15, 2, 0, time.UTC)

// at is a span in ms from begin.
func at(from, to int) Span {
	return Span{begin.Add(time.Duration(from) * time.Millisecond), begin.Add(time.Duration(to) * time.Millisecond)}
}

// seconds10 are 10 s of samples of two CPUs that were half idle, changed by edit.
func seconds10(edit func(i int, s *sample)) []sample {
	var samples []sample
	for i := range 50 {
		s := sample{Span: at(200*i, 200*(i+1)), idle: 200 * time.Millisecond}
		edit(i, &s)
		samples = append(samples, s)
	}
	return samples
}

func TestAccount(t *testing.T) {
	const tick = 10 * time.Millisecond
	quiet := func(int, *sample) {}
	once := func(at int, taken time.Duration) func(int, *sample) {
		return func(i int, s *sample) {
			if i == at {
				s.stolen = taken
			}
		}
	}
	for name, test := range map[string]struct {
		edit            func(int, *sample)
		spans           []Span
		disturbed, full bool
	}{
		"quiet":               {quiet, []Span{at(0, 10000)}, false, false},
		"nothing known":       {quiet, []Span{at(20000, 30000)}, false, false},
		"no span":             {func(_ int, s *sample) { s.stolen = tick }, nil, false, false},
		"a tick a second":     {func(i int, s *sample) { s.stolen = time.Duration(i%5/4) * tick }, []Span{at(0, 10000)}, false, false},
		"five ticks a second": {func(_ int, s *sample) { s.stolen = tick }, []Span{at(0, 10000)}, true, false},
		"one bad second":      {once(20, 60*time.Millisecond), []Span{at(0, 10000)}, true, false},
		"before":              {once(20, 60*time.Millisecond), []Span{at(4300, 10000)}, false, false},
		"after":               {once(20, 60*time.Millisecond), []Span{at(0, 3900)}, false, false},
		"between two spans":   {once(20, 60*time.Millisecond), []Span{at(0, 3900), at(4300, 9000)}, false, false},
		"in the second span":  {once(20, 60*time.Millisecond), []Span{at(0, 1000), at(3900, 9000)}, true, false},
		"a short test":        {once(20, 30*time.Millisecond), []Span{at(4010, 4020)}, true, false},
		"late":                {func(_ int, s *sample) { s.late = 12 * time.Millisecond }, []Span{at(0, 1000)}, true, false},
		"late as it was stolen": {
			func(_ int, s *sample) { s.late, s.stolen = 6*time.Millisecond, 6*time.Millisecond }, []Span{at(0, 1000)}, false, false,
		},
		"others, a little": {func(_ int, s *sample) { s.others = 4 * tick }, []Span{at(0, 1000)}, false, false},
		"others":           {func(_ int, s *sample) { s.others = 5 * tick }, []Span{at(0, 1000)}, true, false},
		"full":             {func(i int, s *sample) { s.idle *= time.Duration(1 - i/25) }, []Span{at(0, 10000)}, false, true},
		"full by the end":  {func(i int, s *sample) { s.idle *= time.Duration(1 - i/25) }, []Span{at(0, 4900)}, false, false},
		"full but for a tick": {
			func(_ int, s *sample) { s.idle = 2 * tick }, []Span{at(0, 10000)}, false, true, // of 40 ticks
		},
	} {
		a := account(seconds10(test.edit), 2, test.spans...)
		assert.Check(t, a.Disturbed == test.disturbed && a.Full == test.full,
			"%s: got %+v, want disturbed %v, full %v", name, a, test.disturbed, test.full)
	}
	a := account(seconds10(func(i int, s *sample) { s.stolen, s.others = tick, time.Duration(i)*time.Millisecond }), 2, at(0, 1000), at(2000, 2500))
	want := "0.08 s stolen, 0.04 s used by others in 1.60 s"
	assert.Check(t, a.String() == want, "got %q, want %q", a, want)
	a = account(seconds10(quiet), 2, at(0, 100))
	assert.Check(t, a.String() == "nothing taken in 0.20 s", "got %q", a)
}

func TestExcuse(t *testing.T) {
	quiet, disturbed := Account{Length: time.Second}, Account{Length: time.Second, Stolen: time.Second / 2, Disturbed: true}
	full := Account{Length: time.Second, Full: true}
	for _, test := range []struct {
		account Account
		beside  bool
		want    string
	}{
		{quiet, false, ""},
		{quiet, true, ""},
		{full, false, ""},
		{full, true, "it shared full CPUs with other tests"},
		{disturbed, false, "the machine was disturbed (0.50 s stolen in 1.00 s)"},
		{disturbed, true, "the machine was disturbed (0.50 s stolen in 1.00 s)"},
	} {
		assert.Check(t, is.Equal(Excuse(test.account, test.beside), test.want),
			"%+v, beside others %v", test.account, test.beside)
	}
	for output, want := range map[string]string{
		"    a_test.go:3: 5.1 ms instead of 5 ms\n":                        "",
		"WARNING: DATA RACE\n":                                             "a data race",
		"    testing.go:1712: race detected during execution of test\n":    "a data race",
		"panic: runtime error: index out of range [recovered]\n":           "a panic",
		"fatal error: concurrent map writes\n":                             "a crash",
		"[    7.2] Kernel panic - not syncing: Fatal exception\n":          "a kernel panic",
		"*** Test killed with quit: ran too long (11m0s).\n":               "a hang",
		"panic: test timed out after 3s\n\trunning tests:\n\t\tTestB (3s)": "a panic",
	} {
		assert.Check(t, is.Equal(Never(output), want), "%q", output)
	}
}
