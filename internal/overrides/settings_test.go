package overrides

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
)

const ms = time.Millisecond

var start = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// set parses and adds one, as the daemon does.
func set(t *testing.T, s Settings, r *rules.Rule, when map[string][]string, threshold, timeout string, lasts time.Duration) Settings {
	t.Helper()
	limit, err := rules.ParseOverride(r, when, threshold, timeout, &rules.LocalMachine{})
	assert.NilError(t, err)
	add := Threshold{Rule: r.Name, When: when, Limit: limit}
	if lasts > 0 {
		add.Until = start.Add(lasts)
	}
	s, _, err = s.SetThreshold(add)
	assert.NilError(t, err)
	return s
}

func pid(n string) map[string][]string { return map[string][]string{"pid": {n}} }

func TestApply(t *testing.T) {
	file := []rules.Rule{
		{Name: "a", Track: rules.Wakeup, Threshold: 20 * ms, Overrides: []rules.Override{{When: rules.Match{PID: []uint32{9}}, Threshold: 5 * ms}}},
		{Name: "b", Track: rules.Syscall, Adaptive: &rules.Adaptive{Quantile: 0.99}},
	}
	s := set(t, Settings{}, &file[0], pid("1"), "2ms", "", 0)
	s = set(t, s, &file[0], pid("2"), "3ms", "40ms", 0)
	s = set(t, s, &file[0], nil, "10ms", "", time.Minute)
	s = set(t, s, &file[0], nil, "", "1s", time.Hour)
	s = set(t, s, &file[1], nil, "7ms", "", 0)
	s = s.Pause(Pause{Rule: "b"})
	got, err := s.Apply(file)
	want := []rules.Rule{
		{Name: "a", Track: rules.Wakeup, Threshold: 10 * ms, Timeout: time.Second, Overrides: []rules.Override{
			{When: rules.Match{PID: []uint32{2}}, Threshold: 3 * ms, Timeout: 40 * ms},
			{When: rules.Match{PID: []uint32{1}}, Threshold: 2 * ms},
			{When: rules.Match{PID: []uint32{9}}, Threshold: 5 * ms},
		}},
		{Name: "b", Track: rules.Syscall, Threshold: 7 * ms, Paused: true},
	}
	diff := cmp.Diff(want, got)
	assert.Check(t, err == nil && diff == "", "%v\n%s", err, diff)
	assert.Check(t, file[0].Threshold == 20*ms && len(file[0].Overrides) == 1 && file[1].Adaptive != nil,
		"the rules of the files have changed: %+v", file)
	s, _ = s.Resume("b")
	s, _, _ = s.ClearThresholds("", AllIDs)
	if got, err := s.Apply(file); err != nil || cmp.Diff(file, got) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(file, got))
	}
}

// What a new one replaces for good is gone; what outlasts it comes back.
func TestSet(t *testing.T) {
	r := &rules.Rule{Name: "a", Track: rules.Wakeup, Threshold: time.Second}
	ids := func(s Settings) string {
		var list []string
		for _, t := range s.Thresholds() {
			list = append(list, fmt.Sprint(t.ID))
		}
		return strings.Join(list, " ")
	}
	s := set(t, Settings{}, r, pid("1"), "2ms", "", time.Minute)
	s = set(t, s, r, pid("1"), "3ms", "", time.Hour)
	s = set(t, s, r, pid("2"), "3ms", "", 0)
	s = set(t, s, r, pid("1"), "1ms", "", time.Minute)
	got := ids(s)
	assert.Check(t, got == "4 3 2", "%s are set", got)
	s = set(t, s, r, pid("1"), "", "1s", 0)
	got = ids(s)
	assert.Check(t, got == "5 4 3 2", "%s are set, with a timeout that replaces no threshold", got)
	s = set(t, s, r, pid("1"), "1ms", "1s", 0)
	got = ids(s)
	assert.Check(t, got == "6 3", "%s are set", got)
	_, _, err := s.ClearThresholds("a", 5)
	assert.Check(t, is.Error(err, "rule a has no threshold 5 set: see tailcam threshold list"),
		"clear what is gone")
	if s, gone, err := s.ClearThresholds("a", 3); err != nil || len(gone) != 1 || ids(s) != "6" {
		t.Errorf("clear one: %v, %v, %s stay", err, gone, ids(s))
	}
	_, gone, err := s.ClearThresholds("b", AllIDs)
	assert.Check(t, err == nil && len(gone) == 0, "clear of a rule without: %v, %v", gone, err)
}

func TestExpire(t *testing.T) {
	r := &rules.Rule{Name: "a", Track: rules.Wakeup, Threshold: time.Second}
	_, ok := (Settings{}).NextExpiry()
	assert.Check(t, !ok, "nothing ends, but when?")
	s := set(t, Settings{}, r, pid("1"), "2ms", "", time.Minute)
	s = set(t, s, r, pid("2"), "2ms", "", 0)
	s = s.Pause(Pause{Rule: "a", Until: start.Add(time.Second)})
	next, ok := s.NextExpiry()
	assert.Check(t, ok && next.Equal(start.Add(time.Second)), "next %v, %v", next, ok)
	s, gone := s.Expire(start.Add(time.Second))
	assert.Check(t, is.DeepEqual([]string{"pause of rule a: expired"}, gone))
	s, gone = s.Expire(start.Add(time.Hour))
	diff := cmp.Diff([]string{"threshold 1 of rule a (pid=1): expired"}, gone)
	assert.Check(t, diff == "" && len(s.Thresholds()) == 1, "%v stay\n%s", s.Thresholds(), diff)
}

func TestFollow(t *testing.T) {
	a, b := rules.Rule{Name: "a", Track: rules.Wakeup, Threshold: time.Second}, rules.Rule{Name: "b", Track: rules.OffCPU, Threshold: time.Second}
	s := set(t, Settings{}, &a, map[string][]string{"preempted": {"true"}}, "2ms", "", 0)
	s = set(t, s, &a, pid("2"), "2ms", "", 0)
	s = set(t, s, &b, pid("3"), "2ms", "", 0)
	s = set(t, s, &a, pid("4"), "500ms", "", 0)
	s = s.Pause(Pause{Rule: "a"}).Pause(Pause{Rule: "b"})
	a.Track, a.Timeout = rules.Syscall, 100*ms // also where a limit is out of order now
	s, gone := s.Reconcile([]rules.Rule{a}, &rules.LocalMachine{})
	want := []string{
		"threshold 1 of rule a (preempted=true): rule a: preempted does not apply to track syscall; allowed: track wakeup",
		"threshold 3 of rule b (pid=3): the rule is gone",
		"pause of rule b: the rule is gone",
	}
	assert.Check(t, is.DeepEqual(want, gone))
	_, paused := s.Paused("a")
	assert.Check(t, paused && len(s.Thresholds()) == 2, "left: %+v", s)
}

func TestTooMany(t *testing.T) {
	file := []rules.Rule{{Name: "a", Track: rules.Wakeup, Threshold: time.Second, Overrides: make([]rules.Override, 1)}}
	var s Settings
	for i := range MaxThresholds {
		s = set(t, s, &file[0], pid(fmt.Sprint(i+1)), "2ms", "", 0)
	}
	if _, _, err := s.SetThreshold(Threshold{Rule: "a"}); err == nil || err.Error() != "256 thresholds are set already: clear some of them (see tailcam threshold list)" {
		t.Errorf("one more: %v", err)
	}
	if _, err := s.Apply(file); err == nil || err.Error() != "257 overrides, with those of the rule files, but the kernel side holds 256: clear some (see tailcam threshold list)" {
		t.Errorf("with the file's: %v", err)
	}
}

func TestParseFor(t *testing.T) {
	const allowed = "; allowed: a duration from 100ms to 720h, such as 5ms"
	for s, want := range map[string]string{
		"10m": "", "": "", "0": "for is zero" + allowed, "-1s": "for -1s is negative" + allowed, "5": "for 5 has no unit" + allowed, "1ms": "for 1ms is too short" + allowed,
	} {
		got := ""
		if _, err := ParseEnd(s, start); err != nil {
			got = err.Error()
		}
		assert.Check(t, is.Equal(got, want), "%q", s)
	}
}
