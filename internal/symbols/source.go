package symbols

import "unicode/utf8"

// Stack is a symbolized stack, innermost frame first.
type Stack struct {
	Frames []string // one per address; see Resolver.User and Resolver.Kernel
	// Sources has one element per frame, empty if unknown. It is nil if none is known
	// in time.
	Sources []Source
}

// Source is the source position of a frame.
type Source struct {
	File string // as recorded by the compiler; "": unknown
	Line int    // from 1; 0: unknown
	// Inlined are functions inlined into the frame's function, innermost first. File
	// and Line are the outermost call.
	Inlined []Inlined
}

// Inlined is an inlined function.
type Inlined struct {
	Function string
	File     string
	Line     int // position in it, or of the call to the next inner one
}

func (s *Source) known() bool { return s.File != "" || len(s.Inlined) > 0 }

const (
	maxInlined  = 32   // depth of inlining
	maxPathRead = 4096 // bytes of a file name
	maxPath     = 512  // bytes kept of it: its end
)

// sourceOf converts functions and positions, innermost first, to a source. The last
// function is the frame's own.
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

// bytes returns the approximate memory used.
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

// size returns the approximate size in an event.
func (s *Source) size() int {
	n := 16 + len(s.File)
	for _, f := range s.Inlined {
		n += 16 + len(f.Function) + len(f.File)
	}
	return n
}

// sourceFile makes a file name printable and keeps its end if it is too long.
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
