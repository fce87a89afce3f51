package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestParseOverride(t *testing.T) {
	r := Rule{Name: "calls", Track: Syscall, Threshold: 10 * time.Millisecond, Timeout: time.Second}
	yes := true
	disk := Rule{Name: "disk", Track: Block, Threshold: time.Second}
	woken := Rule{Name: "woken", Track: Wakeup, Threshold: time.Second}
	for _, c := range []struct {
		rule               *Rule
		when               map[string][]string
		threshold, timeout string
		want               Override
	}{
		{&r, map[string][]string{"pid": {"1234"}}, "2ms", "", Override{When: Match{PID: []uint32{1234}}, Threshold: 2 * time.Millisecond}},
		{&r, nil, "2ms", "1s", Override{Threshold: 2 * time.Millisecond, Timeout: time.Second}},
		{&r, map[string][]string{"comm": {"postgres", "12*", "12", "true"}, "not_tid": {"7"}}, "", "5s", Override{
			When: Match{Comm: []string{"postgres", "12*", "12", "true"}, NotTID: []uint32{7}}, Timeout: 5 * time.Second,
		}},
		{&disk, map[string][]string{"sector": {"2048-4095"}}, "5ms", "", Override{When: Match{Sector: &Sectors{2048, 4095}}, Threshold: 5 * time.Millisecond}},
		{&disk, map[string][]string{"sector": {"7"}}, "5ms", "", Override{When: Match{Sector: &Sectors{7, 7}}, Threshold: 5 * time.Millisecond}},
		{&woken, map[string][]string{"preempted": {"true"}, "cpu": {"0", "3"}, "uid": {"root"}}, "1us", "", Override{
			When: Match{Preempted: &yes, CPU: []uint32{0, 3}, UID: []uint32{0}}, Threshold: time.Microsecond,
		}},
	} {
		got, err := ParseOverride(c.rule, c.when, c.threshold, c.timeout, testMachine{})
		diff := cmp.Diff(c.want, got)
		assert.Check(t, err == nil && diff == "", "%v %s %s: %v\n%s", c.when, c.threshold, c.timeout, err, diff)
	}
}

func TestBadParseOverride(t *testing.T) {
	r := Rule{Name: "calls", Track: Syscall, Threshold: 10 * time.Millisecond, Timeout: time.Second}
	ratchet := Rule{Name: "records", Track: Syscall, Threshold: 10 * time.Millisecond, Ratchet: true}
	chain := Rule{Name: "ways", Track: Chain, Threshold: 10 * time.Millisecond}
	const durations = "; allowed: a duration from 1us to 1h, such as 5ms"
	for _, c := range []struct {
		rule               *Rule
		when               map[string][]string
		threshold, timeout string
		want               string
	}{
		{&r, nil, "", "", "rule calls: nothing to set; allowed: a threshold, such as 2ms, a timeout, or both"},
		{&r, nil, "0", "", "rule calls: threshold is zero" + durations},
		{&r, nil, "0s", "", "rule calls: threshold is zero" + durations},
		{&r, nil, "-2ms", "", "rule calls: threshold -2ms is negative" + durations},
		{&r, nil, "2", "", "rule calls: threshold 2 has no unit" + durations},
		{&r, nil, "fast", "", `rule calls: threshold "fast" is not a duration` + durations},
		{&r, nil, "true", "", `rule calls: threshold "true" is not a duration` + durations},
		{&r, nil, "2s", "", "rule calls: timeout 1s is below the threshold; allowed: at least the threshold, 2s, or no threshold"},
		{&r, nil, "", "1ms", "rule calls: timeout 1ms is too short; allowed: a duration from 10ms to 24h, such as 5ms"},
		{&r, map[string][]string{"pit": {"1"}}, "2ms", "", `rule calls: unknown key "pit", did you mean "pid"; allowed: ` + strings.Join(whenKeys, ", ")},
		{&r, map[string][]string{"pid": {"postgres"}}, "2ms", "", "rule calls: pid is a string; allowed: an integer from 1 to 4194304"},
		{&r, map[string][]string{"pid": {}}, "2ms", "", "rule calls: pid is an empty list; allowed: at least one value, or no pid"},
		{&r, map[string][]string{"pid": {"0"}, "device": {"vda"}}, "2ms", "", "rule calls: pid is 0; allowed: an integer from 1 to 4194304; and device does not apply to track syscall; allowed: track block"},
		{&r, map[string][]string{"comm": {"a\nb: c"}, "not_comm": {""}}, "2ms", "", "rule calls: not_comm is empty; allowed: a string"},
		{&ratchet, nil, "", "1s", "rule records: ratchet cannot be combined with a timeout; allowed: a threshold"},
		{&chain, nil, "", "1s", "rule ways: timeout does not apply to track chain; allowed: threshold; timeouts with track wakeup, offcpu"},
	} {
		_, err := ParseOverride(c.rule, c.when, c.threshold, c.timeout, testMachine{})
		assert.Check(t, is.Error(err, c.want),
			"%v %s %s:\ngot  %v\nwant %s", c.when, c.threshold, c.timeout, err, c.want)
	}
}
