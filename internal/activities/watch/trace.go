package watch

import (
	"encoding/hex"

	"github.com/tailcam/tailcam/bpf/abi"
)

// OfTraces returns the activities of some traces, by their ids in hexadecimal, which are live
// or have ended since a time in nanoseconds of CLOCK_MONOTONIC: of those that ended, what is
// remembered. What it returns does not change any more.
func (w *Watcher) OfTraces(ids []string, since uint64) (list []*Record) {
	wanted, byText := map[[16]byte]bool{}, map[string]bool{}
	for _, id := range ids {
		var raw [16]byte
		if hex.DecodedLen(len(id)) != len(raw) {
			continue
		}
		if n, err := hex.Decode(raw[:], []byte(id)); err == nil && n == len(raw) && raw != [16]byte{} {
			wanted[raw], byText[id] = true, true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.opts.Now()
	for _, f := range w.processes {
		w.read(f, func() {
			w.scanProcess(f, now)
			for i := range f.elements {
				if r := w.liveOf(f, i, now, wanted); r != nil {
					list = append(list, r)
				}
			}
		})
	}
	for _, r := range w.store.records() {
		if r.End >= since && byText[r.TraceID] {
			list = append(list, r)
		}
	}
	return list
}

// liveOf is the record of an element if it is live, and of a trace that is wanted; nil: it is
// not. Requires w.mu.
func (w *Watcher) liveOf(f *followed, i int, now uint64, wanted map[[16]byte]bool) *Record {
	e, token := &f.elements[i], f.first()+uint32(i)
	if e.live == nil || !wanted[sharedAt[abi.ActivityToken](f.Maps, token).TraceId] {
		return nil
	}
	t, account, ok := f.both(token)
	if !ok || t.Generation != e.generation || !wanted[t.TraceID] {
		return nil
	}
	return w.liveRecord(f, e, token, &t, account, now)
}
