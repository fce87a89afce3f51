package kernel

import (
	"maps"
	"slices"
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
func (s *MapSizes) Sum(all []*ebpf.Map) (sum uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make(map[*ebpf.Map]uint64, len(all))
	for _, m := range all {
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
	all := slices.Collect(maps.Values(o.loaded.Load().byName))
	o.tables.mu.Lock()
	defer o.tables.mu.Unlock()
	for n := range o.tables.list {
		all = append(all, o.tables.list[n].maps...)
	}
	return o.sizes.Sum(all)
}
