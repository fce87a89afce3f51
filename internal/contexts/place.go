package contexts

import (
	"errors"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/symbols"
)

// Source reads files and memory of processes, which may be hostile.
type Source interface {
	// ThreadLocal is like symbols.Resolver.ThreadLocal.
	ThreadLocal(pid int, name string) (symbols.ThreadLocal, error)
	Memory
}

// Limits of what a place can be.
const (
	maxModule = 1 << 16
	maxOffset = 1 << 30
)

var (
	errUnresolved = errors.New("its dynamic linker has not resolved " + Variable)
	errExeced     = errors.New("it has another program by now")
)

// Find finds where a process has the contexts of its threads. It returns
// symbols.ErrNoThreadLocal if it has none.
func Find(from Source, pid int) (place abi.ContextPlace, err error) {
	_, before, err := from.Words(pid)
	if err != nil {
		return place, err
	}
	v, err := from.ThreadLocal(pid, Variable)
	if err != nil {
		return place, err
	}
	var at []uint64
	switch v.Kind {
	case symbols.ThreadLocalFixed:
	case symbols.ThreadLocalOffset, symbols.ThreadLocalModule:
		at = []uint64{v.Address}
	case symbols.ThreadLocalDescriptor:
		at = []uint64{v.Address + 8} // after a function
	default:
		return place, errUnresolved
	}
	words, after, err := from.Words(pid, at...)
	if err != nil {
		return place, err
	}
	place.Offset = v.Offset
	dynamic := v.Kind == symbols.ThreadLocalModule
	switch {
	case dynamic:
		place.Module = words[0]
	case v.Kind == symbols.ThreadLocalDescriptor && isAddress(words[0]):
		dynamic = true
		if words, after, err = from.Words(pid, words[0], words[0]+8); err != nil {
			return place, err
		}
		if place.Module = words[0]; int64(words[1]) != v.Offset {
			return place, errUnresolved
		}
	case v.Kind != symbols.ThreadLocalFixed:
		place.Offset = int64(words[0])
	}
	if after != before {
		return place, errExeced
	}
	place.StartCode, place.StartStack = before.StartCode, before.StartStack
	if dynamic {
		place.Vector, place.Length, place.Entry = vector(v.Musl)
	}
	if !possible(&place, dynamic) {
		return abi.ContextPlace{}, errUnresolved
	}
	return place, nil
}

// possible reports whether there can be a variable.
func possible(place *abi.ContextPlace, dynamic bool) bool {
	if place.Offset > maxOffset || place.Offset < -maxOffset {
		return false
	}
	if dynamic {
		return place.Module > 0 && place.Module <= maxModule
	}
	return place.Offset != 0 // there, the C library has its own
}

// isAddress distinguishes the argument of a TLS descriptor: the address of a module and an
// offset, or an offset from the thread pointer, which is negative on x86 and small on
// arm64. Nothing is mapped that low (vm.mmap_min_addr).
func isAddress(argument uint64) bool { return argument >= 1<<16 && argument < 1<<56 }
