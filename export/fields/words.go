package fields

import "github.com/tailcam/tailcam/snapshot/trace"

// State writes the state that a task left its CPU in as perf and ftrace do: R
// runnable, R+ preempted, S sleeping, D not to be interrupted, T stopped, t
// traced, X and Z dead, P parked, I an idle kernel thread.
func State(s *trace.Switch) string {
	switch s.Reported() {
	case 0:
		return "R"
	case 1:
		return "S"
	case 2:
		return "D"
	case 4:
		return "T"
	case 8:
		return "t"
	case 16:
		return "X"
	case 32:
		return "Z"
	case 64:
		return "P"
	case 128:
		return "I"
	}
	return "R+"
}
