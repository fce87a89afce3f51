package watch

import (
	"cmp"
	"slices"
)

// Carried is a live activity, and the slot of the thread that carries it.
type Carried struct {
	*Record
	Slot int
}

// CarriedOf returns what the threads of a process carry now, the one that began first before the
// others: of maps that only the kernel side writes, and that nobody follows.
func (w *Watcher) CarriedOf(p Process) (list []Carried) {
	now := w.opts.Now()
	p.Read(func(m *Maps) {
		f := newFollowed(p)
		if !f.use(m) {
			return
		}
		for slot := range m.Threads {
			t := m.thread(slot)
			h := t.Half[0]
			if t.TID <= 0 || h.Token < f.first() || int(h.Token-f.first()) >= m.Tokens {
				continue
			}
			token, account, ok := m.both(h.Token)
			if !ok || token.Generation != h.Generation || token.Generation&1 == 0 {
				continue
			}
			r := w.liveRecord(f, &element{live: &live{threads: []int{t.TID}}}, h.Token, &token, account, now)
			list = append(list, Carried{r, slot})
		}
	})
	slices.SortFunc(list, func(a, b Carried) int { return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.Slot, b.Slot)) })
	return list
}
