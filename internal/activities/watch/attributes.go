package watch

import (
	"maps"
	"sync/atomic"

	"github.com/tailcam/tailcam/bpf/abi"
)

// attributes are those of a token, by their numbers; nil: it has none.
func (m *Maps) attributes(numbers *[abi.ActivityTokenAttributes]uint16) (list map[string]string) {
	for _, number := range numbers {
		if number == 0 || int(number) > m.Attributes {
			continue
		}
		a := sharedAt[abi.ActivityAttribute](m, m.first()+uint32(m.Tokens)+uint32(number)-1)
		if atomic.LoadUint32(&a.State) != abi.ActivityAttributeReady {
			continue
		}
		if key, value := ownText(a.Key[:]), ownText(a.Value[:]); key != "" && value != "" {
			if list == nil {
				list = map[string]string{}
			}
			list[key] = value
		}
	}
	return list
}

// maxLearned bounds the activities that Learn is remembered of: the latest.
const maxLearned = 1024

// learned are attributes that others have told of activities, by Record.ID.
type learned struct {
	of     map[string]map[string]string
	oldest []string
}

// Learn adds attributes to an activity, by its Record.ID, that it does not have by itself: what
// its thread has published while it worked for it. It keeps them.
func (w *Watcher) Learn(id string, attributes map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &w.learned
	if l.of == nil {
		l.of = map[string]map[string]string{}
	}
	if before := l.of[id]; before != nil {
		attributes = merged(before, attributes)
	} else {
		l.oldest = append(l.oldest, id)
	}
	l.of[id] = attributes
	if len(l.oldest) > maxLearned {
		delete(l.of, l.oldest[0])
		l.oldest = l.oldest[1:]
	}
}

// withLearned returns the record with what Learn has told of it: a copy, if that is more than it has.
// Requires w.mu.
func (w *Watcher) withLearned(r *Record) *Record {
	more := w.learned.of[r.ID]
	if more == nil {
		return r
	}
	c := *r
	c.Attributes = merged(more, r.Attributes)
	return &c
}

// merged has all of a and b; b's where both have a key.
func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
