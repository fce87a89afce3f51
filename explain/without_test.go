package explain

import (
	"bytes"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestWithout: what the path waited behind tasks of one name is taken off, if it is most.
func TestWithout(t *testing.T) {
	for _, c := range []struct {
		name  string
		trace func(s *script)
		track string
		want  string
		ns    int64
		tasks int
	}{
		{"a hog", func(s *script) {
			s.swap(500, 0, 0, third, sleeps(0)).swap(600, 1, 0, other, sleeps(0)).wake(1000, 1, other, victim, 0).swap(10000, 0, third, victim, sleeps(0)).swap(11000, 0, victim, 0, sleeps(0))
		}, "pair", "Without third 3 (SCHED_FIFO 50): about 1.0 ms instead of 10.0 ms (an estimate).", 1_000_000, 1},
		{"who keeps the holder of a lock away", lockHeld(120, 49, waitsFor(1, 2, false)), "pair", "Without hog 40 (real-time priority 50): about 1.0 ms instead of 10.0 ms (an estimate).", 1_000_000, 1},
		{"bulk", diskTrace(other, 4<<20, nil), "pair", "Without other 2: about 2.0 ms instead of 10.0 ms (an estimate).", 2_000_000, 1},
		{"its own time", func(s *script) { s.swap(500, 0, 0, victim, sleeps(0)) }, "syscall", "", 0, 0},
		{"a server's time", func(s *script) {
			s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(0)).wake(11000, 1, other, victim, 0)
		}, "offcpu", "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			c.trace(s)
			r := explained(t, &s.list, []Outlier{{Rule: "r", Track: c.track, TID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000}}, caseNames).Outliers[0]
			if c.want == "" {
				assert.Check(t, r.Without == nil, "%+v", r.Without)
				return
			}
			var text bytes.Buffer
			r.WriteText(&text)
			assert.Check(t, r.Without != nil && r.Without.NS == c.ns && r.Without.Tasks == c.tasks && r.Without.Text(r.DelayNS) == c.want, "%+v", r.Without)
			assert.Check(t, strings.Contains(text.String(), c.want), "%s", &text)
		})
	}
}
