package watch

import (
	"cmp"
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Stretch is a time in which a thread carried one token, in nanoseconds of CLOCK_MONOTONIC.
type Stretch struct {
	TID      int // in the initial pid namespace
	From, To uint64
}

// carriedToken is a token of a process, in one generation.
type carriedToken struct {
	serial, token, generation uint32
}

// timeline puts together what one thread carried, from what was seen of it, the oldest first.
// Between two sights two switches of tokens are known at most; what is not known stays open.
type timeline struct {
	add   func(carriedToken, Stretch)
	tid   int
	last  carriedToken // carried since from, and at least until seen
	from  uint64
	seen  uint64
	since uint64 // as the program wrote it
	seq   uint32 // as many switches of tokens were before
}

// saw takes in the next sight of the thread.
func (l *timeline) saw(c *abi.ActivityCarried) {
	now, past := &c.Half[0], &c.Half[1]
	token := carriedToken{c.Serial, now.Token, now.Generation}
	if token == l.last && now.SinceNs == l.since {
		l.seen = max(l.seen, c.TimeNs)
		return
	}
	// Times are the program's: they are kept in order, and in the past.
	at := min(max(now.SinceNs, l.from), c.TimeNs)
	before := carriedToken{c.Serial, past.Token, past.Generation}
	if before == l.last && past.SinceNs == l.since {
		l.close(at)
	} else {
		began := min(max(past.SinceNs, l.from), at)
		until := began
		if c.Seq-l.seq != 2 { // there was more in between
			until = min(max(l.seen, c.SliceNs), began)
		}
		l.close(until)
		if past.SinceNs != 0 && past.Token != 0 {
			l.emit(before, began, at)
		}
	}
	l.last, l.from, l.seen, l.since, l.seq = token, at, c.TimeNs, now.SinceNs, c.Seq
}

// close ends what is carried.
func (l *timeline) close(at uint64) {
	if l.last.token != 0 {
		l.emit(l.last, l.from, at)
	}
}

func (l *timeline) emit(t carriedToken, from, to uint64) {
	if from < to {
		l.add(t, Stretch{TID: l.tid, From: from, To: to})
	}
}

// stretches finds out what threads carried from what was seen of them, and tells add of each
// time in which one carried a token.
func stretches(sights []abi.ActivityCarried, add func(carriedToken, Stretch)) {
	slices.SortFunc(sights, func(a, b abi.ActivityCarried) int {
		return cmp.Or(cmp.Compare(a.Tid, b.Tid), cmp.Compare(a.TimeNs, b.TimeNs))
	})
	var l timeline
	for i := range sights {
		c := &sights[i]
		if i == 0 || int(c.Tid) != l.tid {
			l = timeline{add: add, tid: int(c.Tid)}
		}
		l.saw(c)
		if i+1 == len(sights) || sights[i+1].Tid != c.Tid {
			l.close(l.seen)
		}
	}
}
