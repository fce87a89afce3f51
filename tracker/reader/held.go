package reader

import (
	"time"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/events"
)

const (
	// maxHeld bounds the outliers that wait for a decision. Beyond that they are decided
	// with what is known.
	maxHeld = 256
	// holdTime is how long an outlier waits at most, and holdPoll how often it is tried.
	holdTime = 500 * time.Millisecond
	holdPoll = 10 * time.Millisecond
)

// held are outliers that a rule cannot decide before a container runtime has answered,
// oldest first.
type held struct {
	list []heldOutlier
	next time.Time // when they are tried again
}

type heldOutlier struct {
	raw   *abi.Outlier
	until time.Time
}

func (h *held) full() bool { return len(h.list) >= maxHeld }

func (h *held) add(raw *abi.Outlier, now time.Time) {
	if len(h.list) == 0 {
		h.next = now.Add(holdPoll)
	}
	h.list = append(h.list, heldOutlier{raw, now.Add(holdTime)})
}

// deadline is when Read must try them; zero: nothing is held.
func (h *held) deadline() time.Time {
	if len(h.list) == 0 {
		return time.Time{}
	}
	return h.next
}

// decideHeld decides outliers that wait; nil: none is wanted, or can be decided yet.
func (r *Reader) decideHeld(now time.Time) *events.Outlier {
	h := &r.held
	if len(h.list) == 0 || now.Before(h.next) {
		return nil
	}
	for i := 0; i < len(h.list); {
		w := h.list[i]
		o, wait := r.rules.Decide(w.raw, now.After(w.until))
		if wait {
			i++
			continue
		}
		h.list = append(h.list[:i], h.list[i+1:]...)
		if known := r.decided(o, w.raw); known != nil {
			return known // the next call goes on at once
		}
	}
	h.next = now.Add(holdPoll)
	return nil
}

// earlier is the first of two moments; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
