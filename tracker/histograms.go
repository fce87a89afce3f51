package tracker

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/histogram"
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

// Histograms are the distributions of all delays since New.
type Histograms struct {
	Trackers map[rules.Track]histogram.Histogram
	Rules    map[string]*RuleHistogram // rules that ask for one
}

// other names the class of what found no room in a class, or is in none.
const other = "other"

// Histograms reads all distributions and adds up those of the CPUs. They go on
// while they are read, so that the last few delays may be in a bucket, and not
// in the sum yet. With NoHistograms there are none.
func (t *Tracker) Histograms() (*Histograms, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := &Histograms{Trackers: map[rules.Track]histogram.Histogram{}, Rules: map[string]*RuleHistogram{}}
	if t.distributions == nil {
		return all, nil
	}
	for n, track := range rules.Tracks {
		if !t.plan.tracks[track] {
			continue
		}
		h, _, err := t.distribution(n)
		if err != nil {
			return nil, err
		}
		all.Trackers[track] = h
	}
	for i, r := range t.live.source {
		if t.live.histogramOf[i].spec == nil {
			continue
		}
		h, err := t.ruleHistogram(&t.live.histogramOf[i])
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
		all.Rules[r.Name] = h
	}
	return all, nil
}

func (t *Tracker) ruleHistogram(h *ruleHistogram) (*RuleHistogram, error) {
	own, undecided, err := t.distribution(h.own)
	if err != nil {
		return nil, err
	}
	r := &RuleHistogram{By: h.spec.By, Undecided: undecided}
	switch h.spec.By {
	case rules.NoClass:
		r.Classes = []ClassHistogram{{Histogram: own}}
		return r, nil
	case rules.ByOverride:
		for j, n := range h.overrides {
			if n == h.own {
				continue
			}
			d, _, err := t.distribution(n)
			if err != nil {
				return nil, err
			}
			r.Classes = append(r.Classes, ClassHistogram{Name: "override " + strconv.Itoa(j+1), ID: uint64(j), Histogram: d})
		}
	default:
		if r.Classes, err = t.classes(h); err != nil {
			return nil, err
		}
	}
	if own.Count > 0 || len(r.Classes) == 0 || h.spec.By == rules.ByOverride {
		r.Classes = append(r.Classes, ClassHistogram{Name: other, Histogram: own})
	}
	return r, nil
}

// classes reads those that the kernel side has found, the most frequent first.
func (t *Tracker) classes(h *ruleHistogram) ([]ClassHistogram, error) {
	found := map[uint64]*ClassHistogram{}
	for b := h.classes.first / 8; b < (h.classes.first+h.classes.count)/8; b++ {
		var bucket bpf.TailcamBucket
		if err := t.objects.Maps["class_keys"].Lookup(uint32(b), &bucket); err != nil {
			return nil, fmt.Errorf("read the classes of a histogram: %w", err)
		}
		for i, key := range bucket.Key {
			if key == 0 {
				continue
			}
			d, _, err := t.distribution(b*8 + i)
			if err != nil {
				return nil, err
			}
			c := found[key] // twice if two CPUs met it for the first time at once
			if c == nil {
				c = &ClassHistogram{}
				c.ID, c.Name = t.className(h.spec.By, key)
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

// className undoes what histogram_step in bpf/histogram.h makes a key of.
func (t *Tracker) className(by rules.Class, key uint64) (id uint64, name string) {
	switch by {
	case rules.ByDevice:
		return key - 1, diskName(uint32(key - 1))
	case rules.BySyscall:
		return key - 1, rules.SyscallName(int(key - 1))
	}
	if t.opts.Host != nil {
		if path, err := t.opts.Host.CgroupPath(key); err == nil {
			return key, path
		}
	}
	return key, "cgroup " + strconv.FormatUint(key, 10)
}

// diskName is the kernel's name of a disk, or its numbers if it is gone.
func diskName(dev uint32) string { return cmp.Or(linux.DiskName(dev), linux.Disk(dev)) }

// distribution adds up one histogram over the CPUs.
func (t *Tracker) distribution(number int) (h histogram.Histogram, undecided uint64, err error) {
	var buf [histogramBytes]byte
	for cpu := range t.histogramCPUs {
		at := int64(cpu*t.histogramStride+number) * histogramBytes
		if _, err := t.distributions.ReadAt(buf[:], at); err != nil {
			return h, 0, fmt.Errorf("read histogram %d of CPU %d: %w", number, cpu, err)
		}
		one, n := decodeHistogram(&buf)
		h.Merge(&one)
		undecided += n
	}
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
	var k bpf.TailcamHistogram
	h.Sum, h.Max = word(unsafe.Offsetof(k.Sum)), word(unsafe.Offsetof(k.Max))
	// The CPU may be counting its first delay: the bucket is written before the least.
	h.Min = min(^word(unsafe.Offsetof(k.NotMin)), h.Max)
	return h, word(unsafe.Offsetof(k.Undecided))
}

const histogramBytes = 4096 // sizeof(struct histogram)

// openHistograms maps them, and the limits of rules, which change while they are in use.
func (t *Tracker) openHistograms() error {
	for _, m := range []struct {
		name string
		to   **ebpf.Memory
		used bool
	}{
		{"distributions", &t.distributions, !t.opts.NoHistograms},
		{"rules", &t.ruleMemory, true},
		{"overrides", &t.overrideMemory, true},
	} {
		if !m.used {
			continue
		}
		memory, err := t.objects.Maps[m.name].Memory()
		if err != nil {
			return fmt.Errorf("map %s: %w", m.name, err)
		}
		*m.to = memory
	}
	return nil
}

// clear empties histograms that are given to another rule. No program uses them.
func (t *Tracker) clear(n numbers) error {
	var empty [histogramBytes]byte
	for i := n.first; i < n.first+n.count; i++ {
		for cpu := range t.histogramCPUs {
			if _, err := t.distributions.WriteAt(empty[:], int64(cpu*t.histogramStride+i)*histogramBytes); err != nil {
				return fmt.Errorf("clear histogram %d: %w", i, err)
			}
		}
	}
	if n.count == 1 {
		return nil
	}
	for b := n.first / 8; b < (n.first+n.count)/8; b++ {
		if err := t.objects.Maps["class_keys"].Put(uint32(b), bpf.TailcamBucket{}); err != nil {
			return fmt.Errorf("clear the classes of a histogram: %w", err)
		}
	}
	return nil
}

// allotHistograms gives the rules of c their histograms. Under t.mu.
func (t *Tracker) allotHistograms(c *compiled) (allotted, error) {
	if t.opts.NoHistograms {
		for _, r := range c.source {
			if r.Histogram != nil {
				return nil, fmt.Errorf("rule %s needs a histogram: set histograms.enabled, or remove its histogram and its threshold's quantile", r.Name)
			}
		}
		c.histogramOf = make([]ruleHistogram, len(c.rules))
		return nil, nil
	}
	after, fresh, err := c.allot(t.allotted, t.histogramStride)
	if err != nil {
		return nil, err
	}
	for _, n := range fresh {
		if err := t.clear(n); err != nil {
			return nil, err
		}
	}
	return after, nil
}

// writeHistograms fills the half of the tables that is not live.
func (t *Tracker) writeHistograms(c *compiled) error {
	if t.opts.NoHistograms {
		return nil
	}
	half := c.generation & 1
	for i, h := range c.histogramRules {
		if err := t.objects.Maps["histogram_rules"].Put(half*maxRules+uint32(i), h); err != nil {
			return err
		}
	}
	var tables [2]bpf.TailcamHistogramTable
	v := t.objects.Variables["histogram_tables"]
	if err := v.Get(&tables); err != nil {
		return err
	}
	tables[half] = c.histogramTable
	return v.Set(tables)
}

// answer tells the kernel side what it asked: a rule with a histogram waits for it.
func (t *Tracker) answer(q *bpf.TailcamQuestion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.generation(q.Generation)
	if c == nil {
		return
	}
	// Without an answer the same question comes again.
	switch uint32(q.Kind) {
	case verdictCgroup:
		path := ""
		if t.opts.Host != nil {
			path, _ = t.opts.Host.CgroupPath(q.Id)
		}
		_ = t.teach(c, verdictCgroup, q.Id, verdict(c.cgroups, rules.CgroupMatch, path))
	case verdictDevice:
		_ = t.teach(c, verdictDevice, q.Id, verdict(c.devices, rules.GlobMatch, diskName(uint32(q.Id))))
	case verdictHandler:
		_ = t.teachHandlers(c)
	}
}
