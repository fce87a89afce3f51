package kernel

import (
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// MapSizes knows the memory of maps, as the kernel accounts for it (6.1). It asks once for each
// that is allocated as a whole: the answer is a file of /proc, and a tenth of a millisecond of CPU
// time. It is ready to use, and safe for concurrent use.
type MapSizes struct {
	mu    sync.Mutex
	known map[*ebpf.Map]uint64
}

// Sum is the memory of maps in bytes, without that of maps of which the kernel does not tell. It
// forgets all other maps.
func (s *MapSizes) Sum(maps []*ebpf.Map) (sum uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make(map[*ebpf.Map]uint64, len(maps))
	for _, m := range maps {
		n, ok := s.known[m]
		if !ok {
			info, err := m.Info()
			if err != nil {
				continue
			}
			n, _ = info.Memlock()
		}
		sum += n
		if m.Flags()&unix.BPF_F_NO_PREALLOC == 0 {
			known[m] = n
		}
	}
	s.known = known
	return sum
}

// MapBytes is the memory of the kernel side's maps, as the kernel accounts for it.
func (o *Objects) MapBytes() uint64 {
	var all []*ebpf.Map
	for _, m := range o.loaded.Load().byName {
		all = append(all, m)
	}
	o.tables.mu.Lock()
	defer o.tables.mu.Unlock()
	for n := range o.tables.list {
		for _, m := range o.tables.list[n].maps {
			all = append(all, m)
		}
	}
	return o.sizes.Sum(all)
}
