package watch

import (
	"encoding/hex"
	"fmt"
)

// Record is what is known of one activity.
type Record struct {
	ID         string // "KEY.TOKEN.GENERATION", of no other
	Name, Text string // any bytes: clean them before they are shown
	Value      uint64
	UID        uint32
	PID        int
	Identity
	TraceID, SpanID string // in hexadecimal; both or none
	// Attributes may be shared with other records. Keys and values may be any text.
	Attributes map[string]string
	Threads    []int // that carried it, as their process sees them: the latest last, and not all
	Live       bool
	Begin, End uint64 // in nanoseconds of CLOCK_MONOTONIC; End of a live one: now
	Values     Values // with wall and unexplained time
}

// Elapsed is End - Begin.
func (r *Record) Elapsed() uint64 { return r.End - r.Begin }

// newRecord is what the element says. Times are kept between the open and now.
func (w *Watcher) newRecord(f *followed, token uint32, t *Token, now uint64) *Record {
	r := &Record{
		Name: t.Name, Text: t.Text, Value: t.Value, UID: f.process.UID(), PID: f.process.PID(),
		Identity: f.identity, Attributes: t.Attributes,
		Begin: min(max(t.BeginNS, f.process.Opened()), now), End: now,
	}
	r.ID = fmt.Sprintf("%d.%d.%d", f.process.Key(), token, t.used())
	if t.TraceID != [16]byte{} && t.SpanID != [8]byte{} {
		r.TraceID, r.SpanID = hex.EncodeToString(t.TraceID[:]), hex.EncodeToString(t.SpanID[:])
	}
	return r
}
