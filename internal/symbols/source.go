package symbols

import "unicode/utf8"

// Stack is what is known of the addresses of one call, innermost frame first.
type Stack struct {
	Frames []string // one an address; see Resolver.User and Resolver.Kernel
	// Sources holds one for each frame, those that are not known empty. It is
	// nil if none is known, or did not become known in time.
	Sources []Source
}

// Source is where in the source text a frame is.
type Source struct {
	File string // as the compiler knew it; empty: not known
	Line int    // 1 is the first; 0: not known
	// Inlined are the functions that the compiler put into the frame's own one,
	// innermost first. They were called where File and Line say.
	Inlined []Inlined
}

// Inlined is a function that has no frame of its own.
type Inlined struct {
	Function string
	File     string
	Line     int // where in it, or where it went on to the next inner one
}

func (s *Source) known() bool { return s.File != "" || len(s.Inlined) > 0 }

const (
	maxInlined  = 32   // functions inlined into each other: more than people read
	maxPathRead = 4096 // bytes of a source file's name
	maxPath     = 512  // bytes of it that are told: its end
)

// sourceOf turns a chain of functions, the innermost first, and the places
// they are at, into a source: the last function is the frame's own.
func sourceOf(chain []Inlined) *Source {
	if len(chain) == 0 {
		return &Source{}
	}
	last := len(chain) - 1
	s := &Source{File: chain[last].File, Line: chain[last].Line}
	if last > 0 {
		s.Inlined = chain[:last:last]
	}
	return s
}

// bytes is the memory that it takes, about.
func (s *Source) bytes() int64 {
	if s == nil {
		return 0
	}
	n := 128 + len(s.File)
	for _, f := range s.Inlined {
		n += 64 + len(f.Function) + len(f.File)
	}
	return int64(n)
}

// size is what it adds to an event: its texts, and some bytes for each number.
func (s *Source) size() int {
	n := 16 + len(s.File)
	for _, f := range s.Inlined {
		n += 16 + len(f.Function) + len(f.File)
	}
	return n
}

// sourceFile makes a file's name safe to print and bounds it: its end tells
// more than its beginning.
func sourceFile(name string) string {
	if len(name) <= maxPath {
		return clean(name)
	}
	start := len(name) - maxPath
	for start < len(name) && !utf8.RuneStart(name[start]) {
		start++
	}
	return truncatedSuffix + clean(name[start:])
}

// sourceLine bounds a line number.
func sourceLine(n int64) int {
	if n < 0 || n > 1<<31-1 {
		return 0
	}
	return int(n)
}
