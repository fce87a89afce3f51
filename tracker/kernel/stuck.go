package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// limited is a piece of work that a slot may hold, and that may time out.
type limited struct {
	start    uint32 // offset of when it began
	deadline uint32 // offset of its struct deadline
}

// limitedIn finds the work that a slot may hold in the layout of its type. The
// start of what "deadline" is about is start_ns or issue_ns, that of
// "off_deadline" is off_ns.
func limitedIn(t btf.Type, at uint32) []limited {
	var found []limited
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Array:
		size, err := btf.Sizeof(t.Type)
		if err != nil {
			return nil
		}
		for i := range t.Nelems {
			found = append(found, limitedIn(t.Type, at+i*uint32(size))...)
		}
	case *btf.Struct:
		for _, m := range t.Members {
			if !strings.HasSuffix(m.Name, "deadline") {
				found = append(found, limitedIn(m.Type, at+m.Offset.Bytes())...)
				continue
			}
			starts := []string{"start_ns", "issue_ns"}
			if prefix := strings.TrimSuffix(m.Name, "deadline"); prefix != "" {
				starts = []string{prefix + "ns"}
			}
			i := slices.IndexFunc(t.Members, func(s btf.Member) bool { return slices.Contains(starts, s.Name) })
			if i >= 0 {
				found = append(found, limited{at + t.Members[i].Offset.Bytes(), at + m.Offset.Bytes()})
			}
		}
	}
	return found
}

// stuckIn counts the work in a slot, by the ids of the rules whose timeouts have
// fired for it.
func stuckIn(slot []byte, list []limited, count *[abi.MaxRules]int) {
	for _, l := range list {
		start := binary.NativeEndian.Uint64(slot[l.start:])
		d := slot[l.deadline:]
		if start == 0 || binary.NativeEndian.Uint64(d) != start { // the rest is about other work
			continue
		}
		fired := binary.NativeEndian.Uint64(d[8:])
		for id := range count {
			count[id] += int(fired >> id & 1)
		}
	}
}

// StuckByID counts pending work past a timeout that has fired for it, by the id of the
// rule. It reads the slots that are in use of tracks alone, one system call each,
// while they change: what ends meanwhile may be counted.
func (o *Objects) StuckByID(tracks map[rules.Track]bool) ([abi.MaxRules]int, error) {
	var count [abi.MaxRules]int
	var errs []error
	for n := range o.tables.list {
		if slices.ContainsFunc(kinds.Trackers(n), func(t rules.Track) bool { return tracks[t] }) {
			errs = append(errs, o.stuckInTable(n, &count))
		}
	}
	if tracks[rules.IRQ] || tracks[rules.Softirq] {
		slot := make([]byte, o.Maps().Interrupts.ValueSize())
		for cpu := range o.Maps().Interrupts.MaxEntries() {
			if err := o.Maps().Interrupts.Lookup(cpu, slot); err != nil {
				errs = append(errs, fmt.Errorf("read the interrupts of CPU %d: %w", cpu, err))
				break
			}
			stuckIn(slot, o.tables.interrupts, &count)
		}
	}
	return count, errors.Join(errs...)
}

func (o *Objects) stuckInTable(n int, count *[abi.MaxRules]int) error {
	o.tables.mu.Lock()
	p := o.tables.list[n]
	o.tables.mu.Unlock()
	if !p.used {
		return nil
	}
	_, slots, _ := p.Maps(o.Maps())
	slot := make([]byte, slots.ValueSize())
	for segment, keys := range p.parts {
		if segment > 0 {
			slots = p.maps[2*segment-1]
		}
		err := eachKey(keys, func(index uint32, _ uint64) error {
			if err := slots.Lookup(index, slot); err != nil {
				return err
			}
			stuckIn(slot, p.limited, count)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the pending table of %s: %w", p.Name, err)
		}
	}
	return nil
}

// eachKey visits the keys in one segment of a table.
func eachKey(segment *ebpf.Map, visit func(index uint32, key uint64) error) error {
	buckets := make([]abi.Bucket, segment.MaxEntries())
	numbers := make([]uint32, len(buckets))
	var cursor ebpf.MapBatchCursor
	n, err := segment.BatchLookup(&cursor, numbers, buckets, nil)
	if err != nil && n < len(buckets) {
		return err
	}
	for i := range buckets[:n] {
		for k, key := range buckets[i].Key {
			if key == 0 {
				continue
			}
			if err := visit(numbers[i]*abi.BucketKeys+uint32(k), key); err != nil {
				return err
			}
		}
	}
	return nil
}
