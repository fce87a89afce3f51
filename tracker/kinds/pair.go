package kinds

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// Label is how a label of a declared pair is shown.
type Label struct {
	Name   string
	As     rules.As
	AtExit bool
	// What the field turned out to be where it was found.
	Signed, Pointer, Text bool
}

func decodePair(o *events.Outlier, m *Message) {
	o.Key = map[string]uint64{}
	if m.Rule.Pair == nil {
		return
	}
	x := extra[abi.PairExtra](m)
	for i, k := range m.Rule.Pair.Key {
		if i < len(x.Part) {
			o.Key[k.Name] = x.Part[i]
		}
	}
	for i := range m.Labels {
		l := &m.Labels[i]
		if i >= len(x.Label) || l.AtExit && x.NoExit != 0 {
			continue
		}
		if o.Labels == nil {
			o.Labels = map[string]any{}
		}
		o.Labels[l.Name] = l.show(x.Label[i][:])
	}
	if comm := Text(x.EntryComm[:]); x.EntryTid != m.Tid && comm != "" {
		o.EntryTask = &events.Peer{PID: int(x.EntryPid), TID: int(x.EntryTid), Comm: comm}
	}
}

// show is a label as JSON carries it: a number, or text.
func (l *Label) show(raw []byte) any {
	n := binary.LittleEndian.Uint64(raw)
	switch l.As {
	case rules.AsHex:
		return fmt.Sprintf("%#x", n)
	case rules.AsIPv4:
		return netip.AddrFrom4([4]byte(raw[:4])).String()
	case rules.AsIPv6:
		return netip.AddrFrom16([16]byte(raw[:16])).Unmap().String()
	case rules.AsPort:
		return uint64(binary.BigEndian.Uint16(raw))
	case rules.AsDev:
		return fmt.Sprintf("%d:%d", uint32(n)>>20, n&0xfffff)
	case rules.AsString:
		return utf8Text(raw)
	case rules.AsSymbol:
		return fmt.Sprintf("%#x", n) // named by whoever knows symbols
	}
	switch {
	case l.Text:
		return utf8Text(raw)
	case l.Pointer:
		return fmt.Sprintf("%#x", n) // as a number it would lose digits in many readers of JSON
	case l.Signed:
		return int64(n)
	}
	return n
}

// PairLoss is something that a declared pair can lose, or leave out.
type PairLoss struct {
	Cause  string
	Advice string
	Count  func(*abi.PairState) uint64
}

// PairLosses are what is counted of each declared pair.
var PairLosses = []PairLoss{
	{"table_full", "raise capacity.pairs", func(s *abi.PairState) uint64 { return s.Full }},
	{"pair_replaced", "its key began again before it ended: a longer key, an exit or cancel hook that is missing, or on_duplicate: keep or count", func(s *abi.PairState) uint64 { return s.Replaced }},
	{"pair_kept", "entries were left out while their key was pending, as on_duplicate: keep says", func(s *abi.PairState) uint64 { return s.Kept }},
	{"pair_unsettled", "CPUs begin and end one key all the time: use a longer key", func(s *abi.PairState) uint64 { return s.Unsettled + s.Missed }},
	{"pair_unread", "a field of the key or of a condition could not be read: is its pointer one of user space, or NULL?", func(s *abi.PairState) uint64 { return s.Unread }},
	{"pair_crowded", "outliers inside each other on one CPU: raise the threshold", func(s *abi.PairState) uint64 { return s.Crowded }},
	{"pair_forgotten", "the task of the entry is gone, or forget_after has passed: name a cancel hook if this is often", func(s *abi.PairState) uint64 { return s.Forgotten }},
}
