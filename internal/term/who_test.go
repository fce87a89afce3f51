package term

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
)

func TestBlame(t *testing.T) {
	for _, c := range []struct {
		cause explain.Cause
		by    *explain.Who
		want  string
		rank  string
	}{
		{explain.Preempted, &explain.Who{Kind: explain.KindTask, Comm: "rt-hog", TID: 99, Prio: 49, Policy: "SCHED_FIFO"}, "preempted by rt-hog[99]", "SCHED_FIFO 50"},
		{explain.Runnable, &explain.Who{Kind: explain.KindTask, Comm: "a\x1b[2Jb", TID: 9, Prio: 125}, `in the queue behind a\x1b[2Jb[9]`, "nice 5"},
		{explain.Runnable, &explain.Who{Kind: explain.KindTask, TID: 9, Prio: -1}, "in the queue behind task[9]", "SCHED_DEADLINE"},
		{explain.Running, &explain.Who{Kind: explain.KindTask, Comm: "x", TID: 9, Prio: 120}, "running: x[9]", ""},
		{explain.Softirq, &explain.Who{Kind: explain.KindSoftirq, Name: "NET_RX"}, "softirq NET_RX", ""},
		{explain.IRQ, &explain.Who{Kind: explain.KindIRQ, Name: "irq 24"}, "interrupted by irq 24", ""},
		{explain.Timer, &explain.Who{Kind: explain.KindTimer, Name: "hrtimer_wakeup"}, "timer hrtimer_wakeup", ""},
		{explain.Timer, &explain.Who{Kind: explain.KindTimer, Name: "timer"}, "timer", ""},
		{explain.BlockDevice, &explain.Who{Kind: explain.KindDevice, Name: "sda"}, "disk: sda", ""},
		{explain.Throttled, &explain.Who{Kind: explain.KindCgroup, Name: "/user.slice"}, "throttled: cgroup /user.slice", ""},
		{explain.Runnable, &explain.Who{Kind: explain.KindSelf, Name: "idle"}, "in the queue behind itself", ""},
		{explain.Unexplained, nil, "unexplained", ""},
		{"new_cause\n", &explain.Who{Kind: "moon"}, `new cause\x0a: moon`, ""},
	} {
		if got, rank := Blame(c.cause, c.by), Rank(c.by); got != c.want || rank != c.rank {
			t.Errorf("%+v: %q, %q; want %q, %q", c.by, got, rank, c.want, c.rank)
		}
	}
}

func TestWidth(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 3, "漢字": 4, "e\u0301": 1, "▒█": 2, "µs…": 3} {
		assert.Check(t, is.Equal(Width(s), want), "Width(%q)", s)
	}
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"漢字漢", 5, "漢字…"}, {"漢字漢", 4, "漢…"}, {"abc", 0, ""}, {"abc", 1, "…"}} {
		assert.Check(t, is.Equal(Shorten(c.in, c.n), c.want), "Shorten(%q, %d)", c.in, c.n)
		got := Width(Fill(c.in, c.n))
		assert.Check(t, got == c.n, "Fill(%q, %d) has %d columns", c.in, c.n, got)
	}
	for _, c := range []struct {
		in   string
		n    int
		want []string
	}{
		{"a bc def", 4, []string{"a bc", "def"}}, {"abcdefgh ij", 4, []string{"abcd", "efgh", "ij"}}, {"", 4, nil},
		{"漢字漢", 3, []string{"漢", "字", "漢"}}, {"漢", 1, []string{"漢"}}, {"a  b", 9, []string{"a b"}},
	} {
		got := Wrap(c.in, c.n)
		if len(got) != len(c.want) {
			t.Errorf("Wrap(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
			continue
		}
		for i := range got {
			assert.Check(t, got[i] == c.want[i], "Wrap(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
	for share, want := range map[float64]string{0: "", 1: "████", 0.5: "██", 0.001: "▏", 0.54: "██▏", 7: "████", -1: ""} {
		assert.Check(t, is.Equal(Gauge(share, 4), want), "Gauge(%v)", share)
	}
}
