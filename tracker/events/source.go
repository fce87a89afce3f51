package events

import (
	"path"
	"strconv"
)

// Sources tell where in the source text the frames of Stacks are. A list has
// one for each frame, empty ones where it is not known, or is left out.
type Sources struct {
	Kernel []Source `json:"kernel,omitempty"`
	User   []Source `json:"user,omitempty"`
	Waker  []Source `json:"waker,omitempty"`
}

// Source is where in the source text a frame is.
type Source struct {
	File string `json:"file,omitempty"` // as the compiler knew it
	Line int    `json:"line,omitempty"` // 1 is the first
	// Inlined are the functions that the compiler put into the frame's own one,
	// innermost first. They have no frame; they were called where File and Line say.
	Inlined []Inlined `json:"inlined,omitempty"`
}

// Inlined is a function that has no frame of its own.
type Inlined struct {
	Function string `json:"function"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
}

// KernelSources are those of Kernel, or nil.
func (s *Stacks) KernelSources() []Source {
	if s.Sources == nil {
		return nil
	}
	return s.Sources.Kernel
}

// UserSources are those of User, or nil.
func (s *Stacks) UserSources() []Source {
	if s.Sources == nil {
		return nil
	}
	return s.Sources.User
}

// WakerSources are those of Waker, or nil.
func (s *Stacks) WakerSources() []Source {
	if s.Sources == nil {
		return nil
	}
	return s.Sources.Waker
}

// StackLines writes a stack for people, innermost first: a line for each frame
// and one for each function inlined into it, with file and line where known.
// sources may be nil. Names are not made safe for a terminal.
func StackLines(frames []Frame, sources []Source) []string {
	out := make([]string, 0, len(frames))
	for i, f := range frames {
		var s Source
		if i < len(sources) {
			s = sources[i]
		}
		for _, in := range s.Inlined {
			out = append(out, in.Function+" (inlined)"+location(in.File, in.Line))
		}
		out = append(out, f+location(s.File, s.Line))
	}
	return out
}

// StackNames writes a stack for flame graphs, innermost first: a function that
// was inlined is a frame of its own, and ends in _[i], as others mark it.
func StackNames(frames []Frame, sources []Source) []string {
	out := make([]string, 0, len(frames))
	for i, f := range frames {
		if i < len(sources) {
			for _, in := range sources[i].Inlined {
				out = append(out, in.Function+"_[i]")
			}
		}
		out = append(out, f)
	}
	return out
}

// location is a file, with the directory that it is in, and a line.
func location(file string, line int) string {
	if file == "" {
		return ""
	}
	dir, name := path.Split(file)
	short := path.Join(path.Base(dir), name)
	if dir == "" || path.Base(dir) == "." {
		short = name
	}
	if line == 0 {
		return "  " + short
	}
	return "  " + short + ":" + strconv.Itoa(line)
}
