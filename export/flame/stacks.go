// Package flame adds up where time went as stacks, and writes them as folded
// lines or as an interactive picture that needs nothing but a browser.
package flame

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode"

	"github.com/tailcam/tailcam/export/fields"
	"github.com/tailcam/tailcam/tracker/events"
)

// maxStacks bounds the different stacks that are told apart, and with them the
// memory: what comes later is added to its first frame and "[others]".
const maxStacks = 1 << 16

// others stands for stacks beyond maxStacks.
const others = "[others]"

// Stacks are weights in nanoseconds by stack: frames from the outermost to the
// innermost, with semicolons between. It is not safe for concurrent use.
type Stacks struct {
	weights map[string]uint64
	key     []byte
}

// NewStacks returns none.
func NewStacks() *Stacks { return &Stacks{weights: map[string]uint64{}} }

// Len returns how many different stacks there are.
func (s *Stacks) Len() int { return len(s.weights) }

// Add adds ns to a stack. Frames that are empty are left out.
func (s *Stacks) Add(ns uint64, frames ...string) {
	if ns == 0 {
		return
	}
	s.key = s.key[:0]
	first := 0
	for _, f := range frames {
		if f == "" {
			continue
		}
		if len(s.key) > 0 {
			s.key = append(s.key, ';')
		}
		s.key = appendFrame(s.key, f)
		if first == 0 {
			first = len(s.key)
		}
	}
	if _, ok := s.weights[string(s.key)]; !ok && len(s.weights) >= maxStacks {
		s.key = append(append(s.key[:first], ';'), others...)
		if _, ok := s.weights[string(s.key)]; !ok && len(s.weights) >= maxStacks+1024 {
			s.key = append(s.key[:0], others...)
		}
	}
	s.weights[string(s.key)] += ns
}

// appendFrame keeps a name from being read as two frames or two lines.
func appendFrame(b []byte, s string) []byte {
	for _, r := range s { // what is not UTF-8 becomes U+FFFD
		switch {
		case r == ';':
			b = append(b, ':')
		case !unicode.IsPrint(r):
			b = append(b, '?')
		default:
			b = append(b, string(r)...)
		}
	}
	return b
}

// Outliers are the stacks of outliers, each as heavy as its delay: the rule, the
// task's name, then its frames. Those of the kernel end in _[k], those of
// inlined functions in _[i]. Offsets within functions are left out, so that the
// same way adds up.
func Outliers(list []events.Outlier) *Stacks {
	s := NewStacks()
	for i := range list {
		o := &list[i]
		frames := []string{o.Rule, orUnknown(o.Task.Comm)}
		for _, f := range fields.Frames(&o.Stacks) {
			name := f.Function
			if name == unknown && f.Module != "" {
				name = "[" + f.Module + "]"
			}
			if f.Inlined {
				name += "_[i]"
			}
			if f.Kernel {
				name += "_[k]"
			}
			frames = append(frames, name)
		}
		s.Add(uint64(max(o.DelayNS, 0)), frames...)
	}
	return s
}

const unknown = "[unknown]"

func orUnknown(s string) string {
	if s == "" {
		return unknown
	}
	return s
}

// WriteFolded writes one line for each stack, in the order of their names: the
// frames, a space and the nanoseconds.
func (s *Stacks) WriteFolded(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, key := range slices.Sorted(maps.Keys(s.weights)) {
		if _, err := fmt.Fprintf(out, "%s %d\n", key, s.weights[key]); err != nil {
			return err
		}
	}
	return out.Flush()
}
