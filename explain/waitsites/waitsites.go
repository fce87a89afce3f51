// Package waitsites is a dictionary of the kernel's functions: what it means that a task
// waits in one, or works in one for long. It is data, and reads nothing.
//
// Kernel stacks of tasks that are off their CPUs have no functions of the scheduler's own
// section, such as schedule, mutex_lock or wait_for_completion (in_sched_functions in
// kernel/sched/core.c): what counts is who called them.
package waitsites

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Site is a place of the kernel where time goes.
type Site struct {
	// Functions any of which it is: other kernels' names for it, and those around it.
	Functions []string
	// Words say what is waited for, or what is done.
	Words string
	// Advice is what to check or change; "": nothing in general.
	Advice string
	// Whose: Advice is to find whom the wait is for: there is none where that is known.
	Whose bool

	// Limit is which limit it is, as the explanation calls it, such as memory_high; "": none.
	Limit string

	// Queue is what of a disk's queue it waits for, as the explanation calls it, such as
	// queue_full; "": nothing.
	Queue string

	// Obvious: it says no more than what else is known of the wait, such as the system call.
	Obvious bool

	// Spins: it waits there on a CPU for a lock, whose holder wakes it.
	Spins bool

	// Adaptive: it waits there on a CPU for a lock of the kernel, for as long as its holder has
	// another CPU (mutex_spin_on_owner in kernel/locking/mutex.c).
	Adaptive bool

	leaf    bool // only as the innermost frame, but for those of locks: the wait is its own
	lock    bool // a function of a lock itself, which others call to take it
	general bool // only if no frame further out says more
	area    *Area
}

// Area is a part of the kernel. Some are modules, or are not in every kernel.
type Area struct {
	Name   string
	Marker string // a function that is there if the area is; "": it always is
}

// Area is the part of the kernel that it belongs to.
func (s *Site) Area() Area { return *s.area }

// Match is a site in a stack.
type Match struct {
	*Site
	Function string // of the stack
}

type index struct{ waits, works map[string]*Site }

var lookup = sync.OnceValue(func() index {
	return index{waits: byFunction(waits), works: byFunction(works)}
})

func byFunction(areas []areaSites) map[string]*Site {
	m := map[string]*Site{}
	for i := range areas {
		for j := range areas[i].sites {
			s := &areas[i].sites[j]
			s.area = &areas[i].Area
			for _, f := range s.Functions {
				m[f] = s
			}
		}
	}
	return m
}

// areaSites are the sites of an area.
type areaSites struct {
	Area
	sites []Site
}

// Wait finds where a task waits, by the kernel stack of its wait, the innermost frame
// first. The innermost site counts; one that is general, such as "for a page", only if no
// other is further out. False: nothing is known of these functions.
func Wait(frames []string) (Match, bool) { return find(lookup().waits, frames) }

// Work finds what a task does, by a kernel stack of it while it runs, likewise.
func Work(frames []string) (Match, bool) { return find(lookup().works, frames) }

// General reports whether a function of a running task gives way to what it is called by.
func General(function string) bool {
	s := lookup().works[function]
	return s != nil && s.general
}

// Works lists what a task does, by a kernel stack of it while it runs: each site once, by its
// innermost frame.
func Works(frames []string) (all []Match) {
	for i, frame := range frames {
		name := Function(frame)
		s := lookup().works[name]
		if s == nil || s.leaf && i > 0 || slices.ContainsFunc(all, func(m Match) bool { return m.Site == s }) {
			continue
		}
		all = append(all, Match{s, name})
	}
	return all
}

func find(sites map[string]*Site, frames []string) (m Match, ok bool) {
	inner := true // all frames so far are of a lock
	for _, frame := range frames {
		name := Function(frame)
		s := sites[name]
		innermost := inner
		inner = inner && s != nil && s.lock
		if s == nil || s.leaf && !innermost {
			continue
		}
		if !s.general {
			return Match{s, name}, true
		}
		if !ok {
			m, ok = Match{s, name}, true
		}
	}
	return m, ok
}

// Function is the function of a frame such as "ext4_sync_file.isra.0+0x12 [ext4]", as its
// source calls it; "" if the frame has no name.
func Function(frame string) string {
	name, _, _ := strings.Cut(frame, "+")
	name, _, _ = strings.Cut(name, " ")
	name, _, _ = strings.Cut(name, ".") // clones of compilers
	if strings.HasPrefix(name, "0x") {
		return ""
	}
	return name
}

// Sites lists all of them, of waits and of work.
func Sites() []*Site {
	lookup() // sets their areas
	var all []*Site
	for _, areas := range [][]areaSites{waits, works} {
		for i := range areas {
			for j := range areas[i].sites {
				all = append(all, &areas[i].sites[j])
			}
		}
	}
	return all
}

// Check holds the dictionary against the functions of a kernel, and returns what has been
// renamed or removed: sites none of whose functions is there, in areas that are.
func Check(has func(function string) bool) (missing []string) {
	for _, s := range Sites() {
		if m := s.area.Marker; m != "" && !has(m) || slices.ContainsFunc(s.Functions, has) {
			continue
		}
		missing = append(missing, fmt.Sprintf("%s: none of %s is in this kernel", s.area.Name, strings.Join(s.Functions, ", ")))
	}
	return missing
}
