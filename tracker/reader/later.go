package reader

import (
	"slices"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

// later brings outliers together with what the kernel side sends of their tasks' memory:
// before its outliers if the task is current, and after them at a switch.
type later[T any] struct {
	recent []laterItem[T] // newest last
}

type laterItem[T any] struct {
	tid    uint32
	timeNS uint64
	*events.Promise[T]
}

// maxLater bounds what is kept: of stacks 16 KiB each.
const maxLater = 64

func (l *later[T]) find(tid uint32, timeNS uint64) *events.Promise[T] {
	for i := len(l.recent) - 1; i >= 0; i-- {
		if k := &l.recent[i]; k.tid == tid && k.timeNS == timeNS {
			return k.Promise
		}
	}
	return nil
}

// promise finds what belongs to an outlier, or expects it.
func (l *later[T]) promise(tid uint32, timeNS uint64) *events.Promise[T] {
	if p := l.find(tid, timeNS); p != nil {
		return p
	}
	if len(l.recent) == maxLater {
		l.recent = l.recent[1:]
	}
	p := events.NewPromise[T]()
	l.recent = append(l.recent, laterItem[T]{tid, timeNS, p})
	return p
}

// promised is how long the ring buffer stays empty before what was promised is given up:
// it is sent some microseconds after its outlier.
const promised = 2 * time.Millisecond

// deadline is when to give up; zero: nothing is promised.
func (l *later[T]) deadline() time.Time {
	if slices.ContainsFunc(l.recent, func(k laterItem[T]) bool { return !k.IsKnown() }) {
		return time.Now().Add(promised)
	}
	return time.Time{}
}

// giveUp says that what was promised will not come.
func (l *later[T]) giveUp() {
	for _, k := range l.recent {
		var none T
		k.Fill(none)
	}
}
