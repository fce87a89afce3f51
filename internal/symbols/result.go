package symbols

import (
	"slices"
	"sync"
	"unicode/utf8"
)

// Limits of one stack. Stacks of 127 frames with long names and paths take 10 to 30
// KiB; hostile debug information could add megabytes to every event.
const (
	maxStackNames = 32 << 10 // bytes of frames beyond which each is truncated to shortName
	maxStackBytes = 64 << 10 // of frames and sources; beyond that, sources are left out
	shortName     = 96
)

// result is a stack being symbolized. It can be read at any time, while work on it
// continues.
type result struct {
	mu      sync.Mutex
	frames  []string
	sources []Source
	names   int // bytes of frames
	bytes   int // of frames and sources
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
		frame = truncate(frame, shortName)
	}
	more := len(frame) - len(r.frames[i])
	r.names, r.bytes = r.names+more, r.bytes+more
	r.frames[i] = frame
}

// setSource adds a source as far as it fits: without some inlined functions, outermost
// first, or not at all.
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
			own.Inlined[n-1].Function += truncatedSuffix // truncated
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

// truncate truncates a text and marks that.
func truncate(s string, most int) string {
	end := most - len(truncatedSuffix)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + truncatedSuffix
}
