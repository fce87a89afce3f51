package stats

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/compile"
	"github.com/tailcam/tailcam/tracker/histogram"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// RuleHistogram is the distribution of every delay that a rule is about,
// whether it was an outlier or not.
type RuleHistogram struct {
	By      rules.Class
	Classes []ClassHistogram // one without a name, if it is not divided
	// Undecided counts delays that are in no class: the rule has cgroup or
	// device conditions, and the kernel side had not been told yet what they
	// say of this cgroup or device.
	Undecided uint64
}

// ClassHistogram is one part of a rule's histogram.
type ClassHistogram struct {
	Name string // of the device, system call or cgroup; override 1, …; other; empty: all
	ID   uint64 // the number behind the name; an override's is its place, from 0
	histogram.Histogram
}

// All is the histogram of all classes together.
func (r *RuleHistogram) All() histogram.Histogram {
	var all histogram.Histogram
	for i := range r.Classes {
		all.Merge(&r.Classes[i].Histogram)
	}
	return all
}

// other names the class of what found no room in a class, or is in none.
const other = "other"

// Trackers reads the histograms of the trackers that run.
func Trackers(o *kernel.Objects) (map[rules.Track]histogram.Histogram, error) {
	all := map[rules.Track]histogram.Histogram{}
	for _, track := range o.Trackers() {
		number := kinds.Of(track).Number
		h, _, err := Distribution(o, number)
		if number == abi.TrackWakeup || number == abi.TrackOffcpu {
			h, err = switched(o, number)
		}
		if err != nil {
			return nil, err
		}
		all[track] = h
	}
	return all, nil
}

// Histogram reads that of a rule. cgroup names a cgroup by its id, or returns
// an empty string.
func Histogram(o *kernel.Objects, h *compile.HistogramSlots, cgroup func(id uint64) string) (*RuleHistogram, error) {
	own, undecided, err := Distribution(o, h.Own)
	if err != nil {
		return nil, err
	}
	r := &RuleHistogram{By: h.Spec.By, Undecided: undecided}
	switch h.Spec.By {
	case rules.NoClass:
		r.Classes = []ClassHistogram{{Histogram: own}}
		return r, nil
	case rules.ByOverride:
		for j, n := range h.Overrides {
			if n == h.Own {
				continue
			}
			d, _, err := Distribution(o, n)
			if err != nil {
				return nil, err
			}
			r.Classes = append(r.Classes, ClassHistogram{Name: "override " + strconv.Itoa(j+1), ID: uint64(j), Histogram: d})
		}
	default:
		if r.Classes, err = classes(o, h, cgroup); err != nil {
			return nil, err
		}
	}
	if own.Count > 0 || len(r.Classes) == 0 || h.Spec.By == rules.ByOverride {
		r.Classes = append(r.Classes, ClassHistogram{Name: other, Histogram: own})
	}
	return r, nil
}

// classes reads those that the kernel side has found, the most frequent first.
func classes(o *kernel.Objects, h *compile.HistogramSlots, cgroup func(uint64) string) ([]ClassHistogram, error) {
	found := map[uint64]*ClassHistogram{}
	for b := h.Classes.First / abi.BucketKeys; b < (h.Classes.First+h.Classes.Count)/abi.BucketKeys; b++ {
		var bucket abi.Bucket
		if err := o.Maps().ClassKeys.Lookup(uint32(b), &bucket); err != nil {
			return nil, fmt.Errorf("read the classes of a histogram: %w", err)
		}
		for i, key := range bucket.Key {
			if key == 0 {
				continue
			}
			d, _, err := Distribution(o, b*abi.BucketKeys+i)
			if err != nil {
				return nil, err
			}
			c := found[key] // twice if two CPUs met it for the first time at once
			if c == nil {
				c = &ClassHistogram{}
				c.ID, c.Name = className(h.Spec.By, key, cgroup)
				found[key] = c
			}
			c.Merge(&d)
		}
	}
	list := make([]ClassHistogram, 0, len(found))
	for _, c := range found {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b ClassHistogram) int {
		if a.Count != b.Count && a.Count > b.Count {
			return -1
		}
		if a.Count != b.Count {
			return 1
		}
		return int(int64(a.ID) - int64(b.ID))
	})
	return list, nil
}

// className undoes what histogram_step in bpf/lib/histogram.h makes a key of.
func className(by rules.Class, key uint64, cgroup func(uint64) string) (id uint64, name string) {
	switch by {
	case rules.ByDevice:
		return key - 1, DiskName(uint32(key - 1))
	case rules.BySyscall:
		return key - 1, kinds.SyscallInfo(int(key - 1)).Label()
	}
	if path := cgroup(key); path != "" {
		return key, path
	}
	return key, "cgroup " + strconv.FormatUint(key, 10)
}

// DiskName is the kernel's name of a disk, or its numbers if it is gone.
func DiskName(dev uint32) string { return cmp.Or(linux.DiskName(dev), linux.Disk(dev)) }

// Distribution adds up one histogram over the CPUs.
func Distribution(o *kernel.Objects, number int) (h histogram.Histogram, undecided uint64, err error) {
	var buf [histogramBytes]byte
	for cpu := range o.HistogramCPUs {
		one, n, err := ofCPU(o, number, cpu, &buf)
		if err != nil {
			return h, 0, err
		}
		h.Merge(&one)
		undecided += n
	}
	return h, undecided, nil
}

// ofCPU reads one CPU's part of a histogram.
func ofCPU(o *kernel.Objects, number, cpu int, buf *[histogramBytes]byte) (h histogram.Histogram, undecided uint64, err error) {
	offset := int64(cpu*o.HistogramStride()+number) * histogramBytes
	if _, err := o.Memory().Distributions.ReadAt(buf[:], offset); err != nil {
		return h, 0, fmt.Errorf("read histogram %d of CPU %d: %w", number, cpu, err)
	}
	h, undecided = decodeHistogram(buf)
	return h, undecided, nil
}

// decodeHistogram reads a struct histogram, word by word: status reads
// hundreds of them, and package binary would take ten times as long.
func decodeHistogram(buf *[histogramBytes]byte) (h histogram.Histogram, undecided uint64) {
	word := func(offset uintptr) uint64 { return binary.LittleEndian.Uint64(buf[offset:]) }
	for i := range h.Bucket {
		h.Bucket[i] = word(uintptr(i) * 8)
		h.Count += h.Bucket[i]
	}
	var k abi.Histogram
	h.Sum, h.Max = word(unsafe.Offsetof(k.Sum)), word(unsafe.Offsetof(k.Max))
	// The CPU may be counting its first delay: the bucket is written before the least.
	h.Min = min(^word(unsafe.Offsetof(k.NotMin)), h.Max)
	return h, word(unsafe.Offsetof(k.Undecided))
}

const histogramBytes = int64(unsafe.Sizeof(abi.Histogram{}))

// Clear empties histograms that are given to another rule. No program uses them.
func Clear(o *kernel.Objects, n compile.Range) error {
	var empty [histogramBytes]byte
	for i := n.First; i < n.First+n.Count; i++ {
		for cpu := range o.HistogramCPUs {
			if _, err := o.Memory().Distributions.WriteAt(empty[:], int64(cpu*o.HistogramStride()+i)*histogramBytes); err != nil {
				return fmt.Errorf("clear histogram %d: %w", i, err)
			}
		}
	}
	if n.Count == 1 {
		return nil
	}
	for b := n.First / abi.BucketKeys; b < (n.First+n.Count)/abi.BucketKeys; b++ {
		if err := o.Maps().ClassKeys.Put(uint32(b), abi.Bucket{}); err != nil {
			return fmt.Errorf("clear the classes of a histogram: %w", err)
		}
	}
	return nil
}
