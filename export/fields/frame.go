package fields

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/tracker/events"
)

// Frame is one function of a stack.
type Frame struct {
	Function string // without the offset
	Module   string // file or kernel module; empty: not known, or the kernel itself
	File     string // of the source, if it is known
	Line     int
	Kernel   bool
	Inlined  bool // it has no frame of its own
	// Address is that of a function without a name: in its module, or in memory if Module is
	// empty; 0: not known.
	Address uint64
}

// Frames returns a stack from its outermost function to its innermost one, the
// user's side and then the kernel's, inlined functions as frames of their own.
func Frames(s *events.Stacks) []Frame {
	out := half(nil, s.Kernel, s.KernelSources(), true)
	out = half(out, s.User, s.UserSources(), false)
	slices.Reverse(out)
	return out
}

// half appends one side, innermost first.
func half(out []Frame, frames []events.Frame, sources []events.Source, kernel bool) []Frame {
	for i, text := range frames {
		f := split(text)
		f.Kernel = kernel
		if i < len(sources) {
			src := &sources[i]
			for _, in := range src.Inlined {
				out = append(out, Frame{Function: in.Function, Module: f.Module, File: in.File, Line: in.Line, Kernel: kernel, Inlined: true})
			}
			f.File, f.Line = src.File, src.Line
		}
		out = append(out, f)
	}
	return out
}

// split takes "symbol+0xoff (file)", "symbol+0xoff [module]", "[unknown]
// (file+0xoff)" and "[unknown] 0xaddr" apart.
func split(text string) (f Frame) {
	f.Function = text
	for _, ends := range [...][2]string{{" (", ")"}, {" [", "]"}} {
		if i := strings.LastIndex(text, ends[0]); i > 0 && strings.HasSuffix(text, ends[1]) {
			f.Function, f.Module = text[:i], withoutOffset(text[i+2:len(text)-1])
			break
		}
	}
	if strings.HasPrefix(f.Function, "[unknown]") || f.Function == "" {
		f.Address = address(text)
		f.Function = "[unknown]"
	}
	f.Function = withoutOffset(f.Function)
	return f
}

// address returns the last number of a frame without a name.
func address(text string) uint64 {
	i := strings.LastIndex(text, "0x")
	if i < 0 {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimRight(text[i+2:], ")]"), 16, 64)
	if err != nil {
		return 0
	}
	return n
}

func withoutOffset(s string) string {
	if i := strings.LastIndex(s, "+0x"); i > 0 {
		return s[:i]
	}
	return s
}
