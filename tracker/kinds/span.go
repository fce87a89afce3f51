package kinds

import (
	"hash/fnv"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

func decodeSpan(o *events.Outlier, m *Message) {
	x := extra[abi.SpanExtra](m)
	o.Span = &events.SpanInfo{
		Key:   Text(x.Key[:]),
		Begin: events.Peer{PID: int(x.Pid), TID: int(x.Tid), Comm: Text(x.Comm[:])},
	}
	o.Key = map[string]uint64{"hash": spanHash(o.Span.Key)}
}

// spanHash is a number for a key, the same everywhere and always.
func spanHash(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // it cannot fail
	return h.Sum64()
}

func spanFacts(f *rules.Facts, m *Message) { f.Key = Text(extra[abi.SpanExtra](m).Key[:]) }

// spanOwnerGone: who began the span has ended, so it has no state.
func spanOwnerGone(m *Message) bool { return extra[abi.SpanExtra](m).Gone != 0 }
