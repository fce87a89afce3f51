package daemon

import "github.com/tailcam/tailcam/rules"

// helperLosses adds the losses of the helper processes.
func (d *daemon) helperLosses(add func(cause, rule string, track rules.Track, n uint64, advice string)) {
	s := d.symbols.Stats()
	add("symbols_refused", "", "", s.Refused,
		"stacks and command lines of processes, users or files that took too much time, or made a helper hang: left out for a while, longer each time; the log says who")
	add("helper_killed", "", "", s.Killed,
		"helpers that hung, ran out of time or memory, or died, and were replaced; the log says because of whom; raise symbols.max_memory if it is a program of yours")
	add("memory_unread", "", "", s.Unread, "stacks and command lines in memory that could not be read in time: files behind it may not answer")
	add("helper_stuck", "", "", uint64(max(s.Left, 0)), "helpers that hang in the kernel, in a file system that does not answer, and could not be ended yet")
}
