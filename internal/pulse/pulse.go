// Package pulse has the daemon's loops look around at the same moments. Each look takes a
// CPU away from a service, and ten at once disturb it once.
package pulse

import "time"

// Calm is how often loops look around that have nothing to do, where nobody waits for what they
// would find. Each second of looks by all of them took 1.5 ms of CPU time from services.
const Calm = 5 * time.Second

var start = time.Now()

// After is time.After(every), but for the moment at which it ends: a multiple of every since
// the start of the process, at least half of every from now. Loops whose periods are
// multiples of each other so end their waits together.
func After(every time.Duration) <-chan time.Time {
	return time.After(wait(time.Since(start), every))
}

// wait returns how long after now, a time since the start, that moment is.
func wait(now, every time.Duration) time.Duration {
	d := every - now%every
	if d < every/2 {
		d += every
	}
	return d
}
