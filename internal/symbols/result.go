package symbols

import (
	"slices"
	"sync"
	"unicode/utf8"
)

// Limits of what one stack may say. Stacks of 127 frames with the names and
// paths that compilers make take 10 to 30 KiB; who writes his own debug
// information could make it megabytes, in every event.
const (
	maxStackNames = 32 << 10 // bytes of frames, from which on each is cut to shortName
	maxStackBytes = 64 << 10 // of frames and sources together; then sources are left out
	shortName     = 96
)

// result is a stack that is being named. Who waits for it may take what there
// is when the time is over, while the rest still works.
type result struct {
	mu      sync.Mutex
	frames  []string
	sources []Source
	names   int // bytes of frames
	bytes   int // … and of sources
}

func newResult(addrs []uint64) *result {
	r := &result{frames: unknowns(addrs)}
	for _, f := range r.frames {
		r.names += len(f)
	}
	r.bytes = r.names
	return r
}

func (r *result) set(i int, frame string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(frame) > shortName && r.names-len(r.frames[i])+len(frame) > maxStackNames {
		frame = shortened(frame, shortName)
	}
	more := len(frame) - len(r.frames[i])
	r.names, r.bytes = r.names+more, r.bytes+more
	r.frames[i] = frame
}

// setSource cuts what does not fit: first the inlined functions go, outermost
// first, then all of it.
func (r *result) setSource(i int, s *Source) {
	if s == nil || !s.known() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	own := *s
	room := maxStackBytes - r.bytes
	if size := own.size(); size > room {
		own.Inlined = slices.Clone(own.Inlined)
		for ; size > room && len(own.Inlined) > 0; size = own.size() {
			own.Inlined = own.Inlined[:len(own.Inlined)-1]
		}
		if n := len(own.Inlined); n > 0 {
			own.Inlined[n-1].Function += truncatedSuffix // some are missing
		}
		if own.size() > room {
			return
		}
	}
	r.bytes += own.size()
	if r.sources == nil {
		r.sources = make([]Source, len(r.frames))
	}
	r.sources[i] = own
}

func (r *result) stack() Stack {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stack{slices.Clone(r.frames), slices.Clone(r.sources)}
}

// shortened cuts a text, and marks that.
func shortened(s string, most int) string {
	end := most - len(truncatedSuffix)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + truncatedSuffix
}
