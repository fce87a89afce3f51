package tracker

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// SpanInfo is what a program said of a piece of its work.
type SpanInfo struct {
	Key   string `json:"key"`   // any bytes that its program chose: clean it before it is shown
	Begin Peer   `json:"begin"` // who began it; the outlier's task ended it, or at a timeout began it

	gone bool // at a timeout: who began it has ended
}

// SpanCounters are what went amiss with spans since New.
type SpanCounters struct {
	Unknown   uint64 // ends without a begin
	BadKey    uint64 // begins and ends with a key that is empty, too long or not readable
	Forgotten uint64 // spans that made way for newer ones of the same user
	Outvied   uint64 // spans of the user with the most, that made way for a user with fewer
	Expired   uint64 // spans that nobody ended for too long
}

func (c *SpanCounters) add(s *bpf.TailcamCpuState) {
	c.Unknown += s.Span.Unknown
	c.BadKey += s.Span.BadKey
	c.Forgotten += s.Span.Forgotten
	c.Outvied += s.Span.Outvied
	c.Expired += s.Span.Expired
}

// addSpan fills in what only spans know. Any bytes will do.
func (o *Outlier) addSpan(raw *bpf.TailcamOutlier) {
	var x bpf.TailcamSpanExtra
	b := make([]byte, 0, len(raw.Extra)*8)
	for _, w := range raw.Extra {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	_, _ = binary.Decode(b, binary.LittleEndian, &x) // it is smaller than extra
	o.Span = &SpanInfo{
		Key:   text(x.Key[:]),
		Begin: Peer{PID: int(x.Pid), TID: int(x.Tid), Comm: text(x.Comm[:])},
		gone:  x.Gone != 0,
	}
	o.Key = map[string]uint64{"hash": spanHash(o.Span.Key)}
}

// spanHash is a number for a key, the same everywhere and always.
func spanHash(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // it cannot fail
	return h.Sum64()
}

// sizeSpans sets what the kernel side's table of spans depends on.
func (t *Tracker) sizeSpans(spec *ebpf.CollectionSpec, knobs map[string]any) error {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return fmt.Errorf("make a secret for the keys of spans: %w", err)
	}
	knobs["span_seed"] = binary.LittleEndian.Uint64(seed[:])
	places := t.growth.tables[tableSpans].places
	owners := max(2*places, 16) // each has a span at least; in two buckets that are not full
	knobs["span_share"] = uint32(places / 2)
	knobs["span_owner_mask"] = uint32(owners/8 - 1)
	spec.Maps["span_owner_keys"].MaxEntries = uint32(owners / 8)
	spec.Maps["span_owner_counts"].MaxEntries = uint32(owners)
	return nil
}

// tableSpans is the number of the pending table of spans (bpf/abi/abi.h).
const tableSpans = 4

// spanConditions lays out the conditions on the keys of spans.
func (c *compiled) spanConditions(m *rules.Match, k *bpf.TailcamConditions) error {
	for _, g := range []struct {
		bit  uint32
		list []string
		to   *bpf.TailcamGlobRange
	}{{matchKey, m.Key, &k.Key}, {matchNotKey, m.NotKey, &k.NotKey}} {
		if len(g.list) == 0 {
			continue
		}
		k.Fields |= g.bit
		*g.to = bpf.TailcamGlobRange{First: uint16(len(c.keyGlobs)), Count: uint16(len(g.list))}
		for _, p := range g.list {
			if len(p) > rules.MaxSpanKey {
				return fmt.Errorf("key %q: at most %d bytes", p, rules.MaxSpanKey)
			}
			var out bpf.TailcamKeyGlob
			for i := range len(p) {
				out.Pattern[i] = int8(p[i])
			}
			c.keyGlobs = append(c.keyGlobs, out)
		}
		if len(c.keyGlobs) > rules.MaxKeyGlobs {
			return fmt.Errorf("more than %d globs over keys in all rules together: remove some", rules.MaxKeyGlobs)
		}
	}
	return nil
}
