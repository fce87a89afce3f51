package explain

import (
	"github.com/tailcam/tailcam/snapshot/trace"
)

// leastCalls is how many samples must have been called from a function: a single address may
// be a return address by chance, where a program has no frame pointers.
const leastCalls = 2

// caller is a function of a program that samples were called from.
type caller struct {
	samples int
	depth   int // sum of how far out it was
}

// userCallers names the functions that the innermost one of a program was called from, by frame
// pointers. What has no name is left out: without frame pointers, addresses may be anything.
func (m *model) userCallers(s *trace.Stack) []string {
	if !s.User || m.names.Code == nil {
		return nil
	}
	var list []string
	for _, address := range s.Frames[1:] {
		if address == 0 {
			break
		}
		if function := userFunction(m.names.Code(s.PID, address)); function != "" {
			list = append(list, function)
		}
	}
	return list
}

// calls notes what a sample was called from.
func (a *activity) calls(functions []string) {
	seen := map[string]bool{}
	for depth, f := range functions {
		if seen[f] {
			continue
		}
		seen[f] = true
		if a.callers == nil {
			a.callers = map[string]*caller{}
		}
		c := a.callers[f]
		if c == nil {
			c = &caller{}
			a.callers[f] = c
		}
		c.samples, c.depth = c.samples+1, c.depth+depth
	}
}

// caller is the innermost function of a program from which half of the samples or more were
// called, directly or not.
func (a *activity) caller() (best Site) {
	found := caller{}
	for f, c := range a.callers {
		if c.samples < leastCalls || 2*c.samples < a.samples {
			continue
		}
		mine, theirs := c.depth*found.samples, found.depth*c.samples // mean depths, to one denominator
		if best.Function == "" || mine < theirs || mine == theirs && (c.samples > found.samples || c.samples == found.samples && f < best.Function) {
			best, found = Site{Function: f, Samples: c.samples, Of: a.samples}, *c
		}
	}
	return best
}
