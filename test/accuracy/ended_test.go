package accuracy

import (
	"fmt"
	"time"

	"github.com/tailcam/tailcam/explain"
)

// endedScenarios are waits that something else ended than what they were for.
func endedScenarios() []scenario {
	only := func(c explain.Cause) []explain.Cause { return []explain.Cause{c} }
	// The only rule that sees all of it.
	reply := fmt.Sprintf("track: pair\n    entry: uprobe:%[1]s:await_reply\n    exit: uretprobe:%[1]s:await_reply\n    key: tid", built.program)
	return []scenario{
		{
			name: "signals", rule: reply,
			want: want{causes: only(explain.Task), by: "scn-server", root: explain.Running, rootBy: "scn-server", advice: "It is CPU time of scn-server"},
		},
		{name: "frozen-sleep", rule: trackOffCPU, want: want{causes: only(explain.Stopped), by: "scn-freezer"}, prepare: withFreezer},
		{
			name: "deadline", rule: trackWakeup,
			want: want{causes: only(explain.Limited), by: "SCHED_DEADLINE", says: "its own runtime", advice: "sched_runtime", within: 5 * time.Millisecond},
		},
		{name: "time-limit", rule: trackSyscall("poll"), want: want{causes: only(explain.Timer), by: "timer", says: "its own time limit"}},
	}
}
