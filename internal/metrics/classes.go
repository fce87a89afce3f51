package metrics

import (
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/text"
)

const (
	maxClasses   = 16 // of a rule, with other
	maxClassName = 256
	other        = "other"
)

// classes decides which classes of a rule's histogram have series of their own. A
// class keeps its place, or stays in other, as long as the rule has it: what is in
// other never decreases.
type classes struct {
	own   map[string]bool // in a series of its own; false: in other
	count int             // of those with their own
}

func newClasses() *classes { return &classes{own: map[string]bool{}} }

// divide adds up a rule's histograms by the class that is shown, the most frequent
// ones first.
func (c *classes) divide(parts []*api.HistogramInfo) map[string]*delayCounts {
	names := make([]string, len(parts))
	divided := false
	for i, h := range parts {
		if h.By != "" {
			divided, names[i] = true, className(h.Class)
		}
	}
	maps.DeleteFunc(c.own, func(name string, own bool) bool {
		gone := !slices.Contains(names, name)
		if gone && own {
			c.count--
		}
		return gone
	})
	sums := map[string]*delayCounts{}
	for i, h := range parts {
		class := ""
		if divided {
			if h.By == "" {
				continue // the sum of the classes
			}
			class = c.place(names[i])
		}
		if sums[class] == nil {
			sums[class] = &delayCounts{}
		}
		sums[class].add(h)
	}
	return sums
}

// place returns the name itself, or other.
func (c *classes) place(name string) string {
	own, known := c.own[name]
	if !known {
		own = name != other && c.count < maxClasses-1
		c.own[name] = own
		if own {
			c.count++
		}
	}
	if own {
		return name
	}
	return other
}

// className is a class as a label: a cgroup may be called what its user likes.
func className(name string) string {
	name = text.Clean(name)
	if len(name) <= maxClassName {
		return name
	}
	name = name[:maxClassName]
	for !utf8.ValidString(name) {
		name = name[:len(name)-1]
	}
	return name
}
