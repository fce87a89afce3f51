package activities

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/kernel"
)

// rings are what bpf/accounts/carried.h and evicted.h write, mapped.
type rings struct {
	mu      sync.RWMutex
	carried []byte
	evicted []byte
}

// sizeRings gives each CPU that there is its part of the rings.
func sizeRings(spec *ebpf.CollectionSpec) error {
	cpus, err := kernel.PresentCPUs()
	if err != nil {
		return err
	}
	spec.Maps["carried"].MaxEntries = uint32(cpus) * abi.CarriedElements
	spec.Maps["evicted"].MaxEntries = uint32(cpus) * abi.EvictedElements
	return nil
}

func (r *rings) open(carried, evicted *ebpf.Map) (err error) {
	r.carried, err = mapRing(carried)
	if err == nil {
		r.evicted, err = mapRing(evicted)
	}
	return err
}

func mapRing(m *ebpf.Map) ([]byte, error) {
	b, err := unix.Mmap(m.FD(), 0, int(m.MaxEntries()*m.ValueSize()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map what threads carried: %w", err)
	}
	return b, nil
}

func (r *rings) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, b := range [][]byte{r.carried, r.evicted} {
		if b != nil {
			errs = append(errs, unix.Munmap(b))
		}
	}
	r.carried, r.evicted = nil, nil
	return errors.Join(errs...)
}

// whole returns the elements of a ring that are whole, in no order. They begin with a time,
// which is 0 while they are written.
func whole[T abi.ActivityCarried | abi.ActivityEvicted](ring []byte) (list []T) {
	var element T
	size := int(unsafe.Sizeof(element))
	for i := 0; i+size <= len(ring); i += size {
		written := (*uint64)(unsafe.Pointer(&ring[i]))
		before := atomic.LoadUint64(written)
		if before == 0 {
			continue
		}
		element = *(*T)(unsafe.Pointer(&ring[i]))
		if atomic.LoadUint64(written) == before {
			list = append(list, element)
		}
	}
	return list
}

// Carried returns what the kernel side has last seen threads carry, in no order: at most
// abi.CarriedElements of each CPU.
func (a *Activities) Carried() []abi.ActivityCarried {
	a.kernel.rings.mu.RLock()
	defer a.kernel.rings.mu.RUnlock()
	return whole[abi.ActivityCarried](a.kernel.rings.carried)
}

// Evicted returns which pages came back last that a token had evicted, in no order: at most
// abi.EvictedElements of each CPU. Not those that were evicted before a time in which nobody took
// part: they may have come back meanwhile, and have been evicted by another, unseen.
func (a *Activities) Evicted() []abi.ActivityEvicted {
	since := a.hooks.usedSince()
	a.kernel.rings.mu.RLock()
	defer a.kernel.rings.mu.RUnlock()
	return slices.DeleteFunc(whole[abi.ActivityEvicted](a.kernel.rings.evicted), func(e abi.ActivityEvicted) bool {
		return e.EvictedNs < since && since <= e.SinceNs
	})
}
