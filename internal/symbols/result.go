package symbols

import (
	"slices"
	"sync"
)

// result is a stack that is being named. Who waits for it may take what there
// is when the time is over, while the rest still works.
type result struct {
	mu      sync.Mutex
	frames  []string
	sources []Source
}

func newResult(addrs []uint64) *result { return &result{frames: unknowns(addrs)} }

func (r *result) set(i int, frame string) {
	r.mu.Lock()
	r.frames[i] = frame
	r.mu.Unlock()
}

func (r *result) setSource(i int, s *Source) {
	if s == nil || !s.known() {
		return
	}
	r.mu.Lock()
	if r.sources == nil {
		r.sources = make([]Source, len(r.frames))
	}
	r.sources[i] = *s
	r.mu.Unlock()
}

func (r *result) stack() Stack {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stack{slices.Clone(r.frames), slices.Clone(r.sources)}
}
