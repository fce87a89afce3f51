package trace

import "github.com/tailcam/tailcam/bpf/abi"

// OnCPU follows which task runs on a CPU, by its events in order. Kernels keep some switches from
// tracers: then an event is of another task than the one that the latest switch began. The zero
// value knows nothing.
type OnCPU struct {
	TID      int    // that runs, as far as switches say; 0: idle
	Last     uint64 // time of its latest event
	Switches int    // that were seen
	known    bool
	left     int // the task that the latest switch ended, at that time
	leftAt   uint64
}

// Follow takes the next event. If a switch before it was not seen, before says who seemed to run.
func (c *OnCPU) Follow(ev *Event) (before OnCPU, unseen bool) {
	next, was := 0, 0
	switch b := ev.Body.(type) {
	case Switch:
		next = b.NextTID
	case Exec:
		was = b.OldTID
	}
	return c.follow(ev.Type, ev.TID, ev.Time, next, was)
}

func (c *OnCPU) followRecord(r *Record) bool {
	_, unseen := c.follow(r.Type(), r.TID(), r.Time(), int(r.s32(abi.OffSwitchNextTid)), int(r.s32(abi.OffProcessChildTid)))
	return unseen
}

func (c *OnCPU) follow(t Type, tid int, at uint64, next, was int) (before OnCPU, unseen bool) {
	if t >= DumpStart || c.Switches > 0 && tid != c.TID && tid == c.left && at == c.leftAt {
		return *c, false // it tells of no moment, or that of the switch, of the task that left
	}
	if t == ProcessExec && c.TID == was {
		c.TID = tid // a thread that is not the first of its process takes the id of that one
	}
	before = *c
	unseen = c.known && c.TID != tid
	c.TID, c.Last, c.known = tid, at, true
	if t == SchedSwitch {
		c.left, c.leftAt, c.TID = tid, at, next
		c.Switches++
	}
	return before, unseen
}

// Unseen counts the switches that the kernel kept from tracers, in the records of one CPU in
// order. Only what lies in an interval that is complete counts: between them anything may be
// missing. Without any switch, they are not recorded, and nothing is known.
func Unseen(records []Record, complete []Interval) (n uint64) {
	var c OnCPU
	at := 0
	for i := range records {
		r := &records[i]
		for at < len(complete) && r.Time() > complete[at].To {
			at, c = at+1, OnCPU{Switches: c.Switches}
		}
		if at == len(complete) {
			break
		}
		if r.Time() >= complete[at].From && c.followRecord(r) {
			n++
		}
	}
	if c.Switches == 0 {
		return 0
	}
	return n
}

// Interval is from one time to another, of CLOCK_MONOTONIC.
type Interval struct{ From, To uint64 }
