package call

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// maxPinned is how many ends of functions are pinned at most, two objects each: systemd keeps
// FileDescriptorStoreMax of a service, of which declared pairs and the main object need the rest.
// Functions beyond it end with the process.
const maxPinned = 160

// pinName is what an end of a function, by its index in ends, is called where it is pinned.
func pinName(function string, end int) string { return fmt.Sprintf("%d_%s", end, function) }

// tableName is what the table is called that functions of a type jump through at one end.
func tableName(e end, proto string) string { return e.program + "_" + proto }

// pins decides whether the ends of one more function are pinned. If not, the next daemon is told
// that it does not see the end of each call. Under s.pass.
func (s *Set) pins() bool {
	if !s.kernel.Pinned() {
		return false
	}
	all := s.pinned+len(s.ends) <= maxPinned
	s.kernel.KeepCalls(all && !s.unpinned)
	return all
}

// resume takes over the functions that an earlier daemon has left attached, each with all of its
// ends or not at all. Others that it has left end here.
func (s *Set) resume() error {
	taken := map[string]bool{}
	for w := range s.ways {
		for _, e := range ends {
			if e.attach == w.end {
				taken[tableName(e, w.proto)] = true
			}
		}
	}
	for name, f := range allOf(s.wanted, s.wanted32) {
		if s.ways[way{f.Proto, ends[0].attach}] == nil || !s.take(name) {
			continue
		}
		s.attached[name] = true
		for i := range s.ends {
			taken[pinName(name, i)] = true
		}
	}
	return s.kernel.UnpinCalls(taken)
}

// take takes over the ends of a function.
func (s *Set) take(function string) bool {
	programs, links := make([]*ebpf.Program, len(s.ends)), make([]link.Link, len(s.ends))
	for i := range s.ends {
		var err error
		if programs[i], links[i], err = s.kernel.TakeCall(pinName(function, i)); err == nil {
			continue
		}
		for j := range i { // with their pins: they are attached anew
			_ = links[j].Close()
			_ = programs[j].Close()
		}
		return false
	}
	for i := range s.ends {
		s.kernel.AddLink(s.ends[i].attachment(function, programs[i], links[i]))
	}
	s.programs = append(s.programs, programs...)
	s.pinned += len(s.ends)
	return true
}
