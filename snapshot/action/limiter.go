package action

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
)

const (
	// maxLimited bounds the keys of all limits together. Those that have run lately and
	// find no room share the limit of their action.
	maxLimited = 4096
	// maxKeyPart bounds one part of a key, in bytes.
	maxKeyPart = 96
)

// limiter holds the limits of actions by key. It is not safe for concurrent use.
type limiter map[string]*rate.Limiter

// allow takes one run of an action from its limit. With peek it takes nothing.
func (l limiter) allow(item *Item, now time.Time, peek bool) bool {
	limit := item.Action.Limit
	if limit == nil {
		return true
	}
	b := l.bucket(item, now)
	if peek {
		return b.TokensAt(now) >= 1
	}
	return b.AllowN(now, 1)
}

// bucket returns the limit of an item's key.
func (l limiter) bucket(item *Item, now time.Time) *rate.Limiter {
	key := item.identity() + item.key()
	if b := l[key]; b != nil {
		return b
	}
	if len(l) >= maxLimited {
		for k, b := range l {
			if b.TokensAt(now) >= float64(b.Burst()) {
				delete(l, k) // as if it had never run
			}
		}
	}
	if len(l) >= maxLimited {
		key = item.identity()
		if b := l[key]; b != nil {
			return b
		}
	}
	b := rate.NewLimiter(rate.Every(item.Action.Limit.Every), item.Action.Limit.Burst)
	l[key] = b
	return b
}

// identity tells actions apart, also after a reload: one that changed is another.
func (it *Item) identity() string {
	a := &it.Action
	s := fmt.Sprintf("%q %q %v %+v", it.Owner, a.Run, a.User, *a.Limit)
	if a.If != nil {
		s += fmt.Sprintf("%+v", *a.If)
	}
	return s + "\x00"
}

// key is what the limit of an item is for.
func (it *Item) key() string {
	var parts []string
	o := &it.Outlier
	for _, per := range it.Action.Limit.Per {
		part := ""
		switch per {
		case rules.PerRule:
			part = o.Rule
		case rules.PerComm:
			part = o.Task.Comm
		case rules.PerCgroup:
			part = o.Task.Cgroup
		case rules.PerCulprit:
			part = snapshot.Culprit(o.Explained)
		case rules.PerCause:
			if o.Explained != nil {
				part = o.Explained.Cause
			}
		}
		parts = append(parts, part[:min(len(part), maxKeyPart)])
	}
	return strings.Join(parts, "\x00")
}
