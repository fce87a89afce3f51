package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// maxTransits bounds the packets of one address that are kept.
const maxTransits = 1024

// transit is a packet on its way within this machine.
type transit struct {
	from, to uint64 // to 0: not received
	device   string
}

// noteTransit keeps what happens to a packet whose address is in an outlier's key.
func (m *model) noteTransit(ev *trace.Event, b *trace.Net) {
	list, ok := m.keyed[b.SKB]
	if !ok {
		return
	}
	n := len(list)
	switch {
	case ev.Type == trace.NetQueue && n < maxTransits:
		m.keyed[b.SKB] = append(list, transit{from: ev.Time, device: b.Dev})
	case ev.Type == trace.NetReceive && n > 0 && list[n-1].to == 0:
		list[n-1].to = ev.Time
	}
}

// threadPieces explains work that a thread did, and other work by its own events.
func (w *walker) threadPieces() []piece {
	o := w.outlier
	switch {
	case o.Key != nil:
		return w.keyPieces()
	case o.Began != "":
		return []piece{w.unexplained(0, o.Start, o.End, "not followed: "+o.Began+" began it, and another thread ended it")}
	}
	pieces := w.follow(o.TID, o.Start, o.End)
	if o.Loose {
		for i := range pieces {
			pieces[i].evidence = byKeyThread
		}
	}
	return pieces
}

// keyPieces explains work whose key is no thread: a request, work item or packet of that
// address. What none of these covers is unexplained.
func (w *walker) keyPieces() []piece {
	o := w.outlier
	p := piece{from: o.Start, to: o.End, cpu: -1, state: "blocked"}
	var found []piece
	if r := w.m.keyRequest(o); r != nil {
		q := p
		q.task, q.to = r.tid, o.End
		if r.complete > 0 {
			q.to = min(r.complete, o.End)
		}
		found = w.diskPieces(nil, q, r)
	} else if x := w.m.keyWork(o); x != nil {
		q := p
		q.to = min(x.end, o.End)
		found = w.workPieces(nil, q, &wake{tid: x.worker, work: x})
	} else {
		found = w.packetPieces(p)
	}
	var out []piece
	at, reason := o.Start, "not followed: its key ("+strings.Join(slices.Sorted(maps.Keys(o.Key)), ", ")+") is not a thread"
	if len(found) == 0 {
		reason += ", and the history has no request, work item or packet of it"
	}
	for i := range found {
		out = w.add(out, w.unexplained(0, at, found[i].from, reason))
		out = append(out, found[i])
		at = found[i].to
	}
	return w.add(out, w.unexplained(0, at, o.End, reason))
}

// keyRequest returns the block request of an outlier's key: its address, or its device and
// sector.
func (m *model) keyRequest(o *Outlier) *request {
	var found *request
	match := func(r *request) {
		m.scanned++
		if begin := r.started(); begin == 0 || begin > o.End || r.complete > 0 && r.complete <= o.Start {
			return
		}
		named := false
		for _, v := range o.Key {
			named = named || v == r.rq
		}
		dev, hasDev := o.Key["dev"]
		sector, hasSector := o.Key["sector"]
		named = named || hasDev && hasSector && dev == uint64(r.dev) && sector == r.sector
		// The latest that began by then: addresses are used again.
		if named && (found == nil || r.started() > found.started() && r.started() <= o.Start+lateEvents) {
			found = r
		}
	}
	for _, r := range m.requests {
		if m.scanned > maxScanned {
			return nil
		}
		match(r)
	}
	for _, v := range o.Key {
		if r := m.inFlight[v]; r != nil {
			match(r)
		}
	}
	return found
}

// keyWork returns the work item of an outlier's key.
func (m *model) keyWork(o *Outlier) *work {
	var found *work
	for _, t := range m.tasks {
		for _, x := range t.works {
			if m.scanned++; m.scanned > maxScanned {
				return nil
			}
			begin := cmp.Or(x.queued, x.start)
			if begin > o.End || x.end <= o.Start {
				continue
			}
			for _, v := range o.Key {
				if v == x.work && v != 0 && (found == nil || x.start < found.start || x.start == found.start && x.worker < found.worker) {
					found = x
				}
			}
		}
	}
	return found
}

// packetPieces explains the time in which a packet of the key's address was on its way.
func (w *walker) packetPieces(p piece) []piece {
	var out []piece
	names := slices.Sorted(maps.Keys(w.outlier.Key))
	for _, name := range names {
		for _, x := range w.m.keyed[w.outlier.Key[name]] {
			q := p
			q.from, q.to = max(x.from, p.from), p.to
			if x.to > 0 {
				q.to = min(x.to, p.to)
			}
			q.cause, q.by = Network, w.m.whoNetwork(x.device, 0)
			if q.from < q.to {
				out = append(out, q)
				p.from = q.to
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// keyText is the key of an outlier, for people: rq 0xffff888100000000.
func keyText(key map[string]uint64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(key)) {
		switch v := key[name]; {
		case name == "dev" && v < 1<<32:
			parts = append(parts, fmt.Sprintf("dev %d:%d", v>>20, v&0xfffff))
		case v >= 1<<32:
			parts = append(parts, fmt.Sprintf("%s %#x", name, v))
		default:
			parts = append(parts, fmt.Sprintf("%s %d", name, v))
		}
	}
	return strings.Join(parts, ", ")
}
