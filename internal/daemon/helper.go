package daemon

import "github.com/tailcam/tailcam/rules"

// helperLosses adds the losses of the helper processes.
func (d *daemon) helperLosses(add func(cause, rule string, track rules.Track, n uint64, advice string)) {
	s := d.symbols.Stats()
	add("symbols_refused", "", "", s.Refused,
		"stacks and command lines of processes, users or files that take too long or hang a helper are skipped, longer each time; see the log")
	add("helper_killed", "", "", s.Killed,
		"helpers that hung, exceeded time or memory, or died, and were replaced; see the log; raise symbols.max_memory if you trust the program")
	add("memory_unread", "", "", s.Unread, "stacks and command lines in memory that could not be read in time; its backing files may not answer")
	add("helper_stuck", "", "", uint64(max(s.Left, 0)), "helpers that are blocked in the kernel on a file system that does not answer")
}
