package rules

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// reader converts the nodes of rule files to values and collects errors. A method
// that fails has recorded why; its caller continues with the rest.
type reader struct {
	machine Machine
	file    string                // being read
	errs    Errors                // of that file
	from    map[*yaml.Node]string // the files of nodes that extensions have brought; all others are of file

	// For all files:
	names      map[string]Position
	activities int // rules with activity
	rules      int
	shared     int // actions of no rule
	overrides  int
	commGlobs  int
	keyGlobs   int                        // over keys of spans
	members    int                        // pids, uids, system calls, irqs and CPUs in conditions
	lists      map[string]int             // conditions evaluated by the daemon, by kind
	verdicts   map[string]map[string]bool // the globs in them
}

// entry is one key of a mapping with its value.
type entry struct{ key, value *yaml.Node }

func (r *reader) fail(n *yaml.Node, allowed, format string, args ...any) {
	r.errs = append(r.errs, Error{r.position(n), fmt.Sprintf(format, args...), allowed})
}

// position is that of a node in its own file.
func (r *reader) position(n *yaml.Node) Position { return position(cmp.Or(r.from[n], r.file), n) }

// mapping reads the keys of a mapping; what names it in messages.
func (r *reader) mapping(n *yaml.Node, what string, keys []string) map[string]entry {
	allowed := strings.Join(keys, ", ")
	if n.Kind != yaml.MappingNode {
		r.fail(n, "a mapping with "+allowed, "%s is %s", what, kindOf(n))
		return nil
	}
	entries := make(map[string]entry, len(keys))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		first, twice := entries[name]
		switch {
		case key.Kind != yaml.ScalarNode:
			r.fail(key, allowed, "key is %s", kindOf(key))
		case !slices.Contains(keys, name):
			r.fail(key, allowed, "%s", r.unknown("key", name, keys))
		case twice:
			r.fail(key, "each key once", "duplicate key %s, first set in line %d", name, first.key.Line)
		default:
			entries[name] = entry{key, value}
		}
	}
	return entries
}

// unknown is Unknown, without a suggestion once there are too many errors.
func (r *reader) unknown(what, name string, allowed []string) string {
	if len(r.errs) > maxErrors {
		allowed = nil
	}
	return Unknown(what, name, allowed)
}

// list reads a list, or one value in its place.
func (r *reader) list(n *yaml.Node, what string) []*yaml.Node {
	switch {
	case n.Kind == yaml.SequenceNode && len(n.Content) > maxList:
		r.fail(n, fmt.Sprintf("at most %d", maxList), "%s has %d values", what, len(n.Content))
	case n.Kind == yaml.SequenceNode && len(n.Content) > 0:
		return n.Content
	case n.Kind == yaml.SequenceNode:
		r.fail(n, "at least one value, or no "+what, "%s is an empty list", what)
	case n.Kind == yaml.ScalarNode && !isNull(n):
		return []*yaml.Node{n}
	default:
		r.fail(n, "a list of values", "%s is %s", what, kindOf(n))
	}
	return nil
}

// text reads a non-empty string.
func (r *reader) text(n *yaml.Node, what string) (string, bool) {
	switch {
	case n.Kind == yaml.ScalarNode && !isNull(n) && n.Tag != "!!str":
		r.fail(n, fmt.Sprintf("a quoted string, %q", cut(n.Value)), "%s is %s", what, kindOf(n))
	case n.Kind != yaml.ScalarNode || isNull(n):
		r.fail(n, "a string", "%s is %s", what, kindOf(n))
	case n.Value == "":
		r.fail(n, "a string", "%s is empty", what)
	default:
		return n.Value, true
	}
	return "", false
}

// number reads an integer.
func (r *reader) number(n *yaml.Node, what string, least, most uint64) (uint64, bool) {
	v, err := strconv.ParseUint(n.Value, 10, 64)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!int" && err == nil && v >= least && v <= most {
		return v, true
	}
	allowed := fmt.Sprintf("an integer from %d to %d", least, most)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!int" {
		r.fail(n, allowed, "%s is %s", what, cut(n.Value))
	} else {
		r.fail(n, allowed, "%s is %s", what, kindOf(n))
	}
	return 0, false
}

func (r *reader) boolean(n *yaml.Node, what string) (value, ok bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		r.fail(n, "true, false", "%s is %s", what, kindOf(n))
		return false, false
	}
	return strings.EqualFold(n.Value, "true"), true
}

func (r *reader) duration(n *yaml.Node, what string, least, most time.Duration) time.Duration {
	allowed := DurationRange(least, most)
	if n.Kind != yaml.ScalarNode || isNull(n) || n.Tag == "!!bool" {
		r.fail(n, allowed, "%s is %s", what, kindOf(n))
		return 0
	}
	d, err := ParseDuration(n.Value, least, most)
	if err != nil {
		r.fail(n, allowed, "%s %v", what, err)
	}
	return d
}

// words reads a list of words out of allowed.
func words[T ~string](r *reader, n *yaml.Node, what string, allowed []T) []T {
	var names []string
	for _, a := range allowed {
		names = append(names, string(a))
	}
	var got []T
	for _, v := range r.list(n, what) {
		s, ok := r.text(v, what)
		switch {
		case !ok:
		case !slices.Contains(names, s):
			r.fail(v, strings.Join(names, ", "), "%s", r.unknown(what, s, names))
		case slices.Contains(got, T(s)):
			r.fail(v, "each value once", "duplicate value %s", s)
		default:
			got = append(got, T(s))
		}
	}
	return got
}

// kindOf names the type of a node.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "empty"
	case n.Tag == "!!int", n.Tag == "!!float":
		return "a number"
	case n.Tag == "!!bool":
		return "a boolean"
	case n.Tag == "!!timestamp":
		return "a date"
	}
	return "a string"
}

// maxList bounds the values of one list.
const maxList = 1024

// maxUID excludes the id that the kernel uses for "no user".
const maxUID = math.MaxUint32 - 1
