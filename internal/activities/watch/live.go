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

// maxNamed bounds what LiveNamed returns of a process.
const maxNamed = 1024

// LiveNamed returns the live activities whose name is wanted, the one that began first before
// the others; of a process with more than maxNamed, some. What it returns does not change any
// more.
func (w *Watcher) LiveNamed(wanted func(name string) bool) (list []*Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.opts.Now()
	for _, f := range w.processes {
		w.read(f, func() {
			w.scanProcess(f, now)
			for i, found := 0, 0; i < len(f.elements) && found < maxNamed; i++ {
				e, token := &f.elements[i], f.first()+uint32(i)
				if e.live == nil {
					continue
				}
				t, account, ok := f.both(token)
				if ok && t.Generation == e.generation && wanted(t.Name) {
					list = append(list, w.liveRecord(f, e, token, &t, account, now))
					found++
				}
			}
		})
	}
	slices.SortStableFunc(list, func(a, b *Record) int { return cmp.Compare(a.Begin, b.Begin) })
	return list
}
