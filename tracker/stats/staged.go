package stats

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/histogram"
	"github.com/tailcam/tailcam/tracker/kernel"
)

// switched adds up the histogram of a tracker whose delays end in sched_switch,
// with those that the CPUs have noted and not counted yet (histogram_stage in
// bpf/lib/histogram.h).
func switched(o *kernel.Objects, number int) (all histogram.Histogram, err error) {
	var buf [histogramBytes]byte
	for cpu := range o.HistogramCPUs {
		// A CPU that is about to count gets some time for it. If it counts
		// while we read, we read again.
		for try := 0; ; try++ {
			var h histogram.Histogram
			before, err := readStaged(o, cpu)
			if err != nil {
				return all, err
			}
			if before.n%abi.Staged == abi.Staged-1 && try < 3 {
				time.Sleep(10 * time.Microsecond)
				continue
			}
			if h, _, err = ofCPU(o, number, cpu, &buf); err != nil {
				return all, err
			}
			after, err := readStaged(o, cpu)
			if err != nil {
				return all, err
			}
			if before.n/abi.Staged != after.n/abi.Staged && try < 100 {
				continue
			}
			before.addTo(&h, number)
			all.Merge(&h)
			break
		}
	}
	return all, nil
}

// staged are delays that a CPU has noted.
type staged struct {
	n      uint32
	delays [abi.Staged * 8]byte
}

func readStaged(o *kernel.Objects, cpu int) (s staged, err error) {
	var k abi.CpuState
	var n [4]byte
	at := int64(cpu) * int64(unsafe.Sizeof(k))
	if _, err = o.Memory().Cpus.ReadAt(n[:], at+int64(unsafe.Offsetof(k.Staged))); err == nil {
		_, err = o.Memory().Cpus.ReadAt(s.delays[:], at+int64(unsafe.Offsetof(k.Delays)))
	}
	if err != nil {
		return s, fmt.Errorf("read delays of CPU %d: %w", cpu, err)
	}
	s.n = binary.LittleEndian.Uint32(n[:])
	return s, nil
}

// addTo counts those of one tracker.
func (s *staged) addTo(h *histogram.Histogram, number int) {
	for i := range s.n % abi.Staged {
		if v := binary.LittleEndian.Uint64(s.delays[8*i:]); v&1 == uint64(number) {
			h.Add(v>>1, 1)
		}
	}
}
