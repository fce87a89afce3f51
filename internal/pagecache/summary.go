package pagecache

import "container/heap"

// summary counts many keys in bounded memory: space-saving, by weight (Metwally, Agrawal, El
// Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005). When it
// is full, a new key takes the counter of the key that has least. That one's weight is the
// most that the new one may have had before, and is its excess. Every key of more than the
// weight of all, divided by the number of counters, has one.
type summary[K comparable, V any] struct {
	most    int
	entries map[K]*entry[K, V]
	order   byWeight[K, V] // the least first
}

// entry is a counter. The weight of its key is between weight-excess and weight.
type entry[K comparable, V any] struct {
	key            K
	weight, excess uint64
	value          V
	position       int
}

func newSummary[K comparable, V any](most int) *summary[K, V] {
	return &summary[K, V]{most: most, entries: make(map[K]*entry[K, V])}
}

// add adds to the weight of a key. The value of a counter that changes its key begins anew.
func (s *summary[K, V]) add(key K, weight uint64) *entry[K, V] {
	e := s.entries[key]
	switch {
	case e != nil:
		e.weight += weight
		heap.Fix(&s.order, e.position)
	case len(s.order) < s.most:
		e = &entry[K, V]{key: key, weight: weight}
		s.entries[key] = e
		heap.Push(&s.order, e)
	default:
		e = s.order[0]
		delete(s.entries, e.key)
		*e = entry[K, V]{key: key, weight: e.weight + weight, excess: e.weight}
		s.entries[key] = e
		heap.Fix(&s.order, 0)
	}
	return e
}

// byWeight is a heap.
type byWeight[K comparable, V any] []*entry[K, V]

func (h byWeight[K, V]) Len() int           { return len(h) }
func (h byWeight[K, V]) Less(i, j int) bool { return h[i].weight < h[j].weight }
func (h byWeight[K, V]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

func (h *byWeight[K, V]) Push(x any) {
	e := x.(*entry[K, V])
	e.position = len(*h)
	*h = append(*h, e)
}

func (h *byWeight[K, V]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}
