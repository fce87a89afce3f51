// Package pagecache counts what happens to the kernel's page cache, file by file: pages that
// were asked for and there, brought in, dirtied and removed, and by whom. It loads BPF
// programs of its own, which go with the process whatever happens. It opens no file but
// /proc/self/mountinfo and directories of cgroups. Needs kernel 6.1+, CAP_BPF and
// CAP_PERFMON.
package pagecache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
)

// Options configures a Watch. Zero values mean defaults.
type Options struct {
	// File is a glob over paths, as in conditions on cgroups: * does not match slashes, **
	// does. Without a slash it is over the last name. Empty: all files.
	File string
	// Files is how many files are told apart, and how many pairs of a file and who removed
	// its pages; default 4096.
	Files int
	// Every is how often counts are taken from the kernel; default 200ms.
	Every time.Duration
	// Activities are the maps of the kernel side of activities, by name: see OpenMaps. nil: who
	// removes pages is told without requests.
	Activities map[string]*ebpf.Map
}

// Watch counts from Open to Close. It is not safe for concurrent use.
type Watch struct {
	opts    Options
	coll    *ebpf.Collection
	links   []link.Link
	missing []Missing
	counts  swapped // of files, by CPU
	who     swapped
	active  int // which of each pair the programs write

	files    *summary[abi.PagecacheKey, file]
	removals *summary[abi.PagecacheRemoval, struct{}] // without By
	requests *summary[abi.PagecacheRemoval, struct{}] // those with By
	total    abi.PagecacheCounts
	other    map[abi.PagecacheKey]bool // files that File does not match
	unnamed  uint64                    // pages of files that have no name, if there is a File
	unknown  uint64                    // and of those whose name is not known

	mounts  map[uint32][]mount // see places
	mounted time.Time

	cpus  int
	began time.Time
	until time.Time
}

// swapped is a map in the kernel that is in fact two: one is read while the other is written.
type swapped struct {
	outer *ebpf.Map
	inner [2]*ebpf.Map
}

// file is what is known of one file.
type file struct {
	counts abi.PagecacheCounts // since it is told apart
	name   name
}

// hook is a tracepoint, whose program has its name.
type hook struct {
	tracepoint string
	columns    []string // which are not known without it; none: nothing works
}

var hooks = []hook{
	{"mm_filemap_delete_from_page_cache", nil},
	{"mm_filemap_add_to_page_cache", nil},
	{"writeback_dirty_folio", []string{ColumnDirtied, ColumnMisses}},
	{"mm_filemap_get_pages", []string{ColumnHits}},
	{"mm_filemap_map_pages", []string{ColumnHits}},
	{"mm_filemap_fault", []string{ColumnHits}},
	{"mm_vmscan_memcg_reclaim_begin", []string{ColumnHow}},
	{"mm_vmscan_memcg_reclaim_end", []string{ColumnHow}},
}

// Bounds of what the kernel keeps between two readings.
const (
	mostBytes   = 32 << 20 // of counts of files, in each of two maps
	mostEntries = 16384
	fewEntries  = 1024
)

// Open loads and attaches the programs. opts may be nil.
func Open(opts *Options) (*Watch, error) {
	w := &Watch{other: map[abi.PagecacheKey]bool{}}
	if opts != nil {
		w.opts = *opts
	}
	if w.opts.Files <= 0 {
		w.opts.Files = 4096
	}
	if w.opts.Every <= 0 {
		w.opts.Every = 200 * time.Millisecond
	}
	w.files = newSummary[abi.PagecacheKey, file](w.opts.Files)
	w.removals = newSummary[abi.PagecacheRemoval, struct{}](w.opts.Files)
	w.requests = newSummary[abi.PagecacheRemoval, struct{}](w.opts.Files)
	if err := w.open(); err != nil {
		w.Close() //nolint:errcheck // the first error tells
		return nil, fmt.Errorf("watch the page cache: %w", err)
	}
	w.began = time.Now()
	return w, nil
}

func (w *Watch) open() error {
	var err error
	if w.cpus, err = ebpf.PossibleCPU(); err != nil {
		return err
	}
	spec, err := bpf.LoadPagecache()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if err := w.leaveOut(spec); err != nil {
		return err
	}
	entries := uint32(min(mostEntries, max(fewEntries, mostBytes/(w.cpus*countsSize))))
	spec.Maps["files"].InnerMap.MaxEntries = entries
	spec.Maps["removals"].InnerMap.MaxEntries = mostEntries
	if err := spec.Variables["page_shift"].Set(pageShift()); err != nil {
		return err
	}
	replace, err := w.share(spec)
	if err != nil {
		return err
	}
	w.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	for name, s := range map[string]*swapped{"files": &w.counts, "removals": &w.who} {
		s.outer = w.coll.Maps[name]
		for i := range s.inner {
			if s.inner[i], err = ebpf.NewMap(spec.Maps[name].InnerMap); err != nil {
				return fmt.Errorf("make a map of %s: %w", name, err)
			}
		}
		if err := s.outer.Put(uint32(0), s.inner[0]); err != nil {
			return fmt.Errorf("hand over a map of %s: %w", name, err)
		}
	}
	for i := range hooks {
		p := w.coll.Programs[hooks[i].tracepoint]
		if p == nil {
			continue
		}
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("attach to %s: %w", hooks[i].tracepoint, err)
		}
		w.links = append(w.links, l)
	}
	return nil
}

// leaveOut removes the programs whose tracepoint this kernel lacks.
func (w *Watch) leaveOut(spec *ebpf.CollectionSpec) error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("read the kernel's BTF: %w (tailcam needs a kernel with CONFIG_DEBUG_INFO_BTF)", err)
	}
	for i := range hooks {
		h := &hooks[i]
		var t *btf.Typedef
		err := kernel.TypeByName("btf_trace_"+h.tracepoint, &t)
		switch {
		case err == nil:
			continue
		case !errors.Is(err, btf.ErrNotFound):
			return err
		case h.columns == nil:
			return fmt.Errorf("this kernel has no tracepoint %s", h.tracepoint)
		}
		delete(spec.Programs, h.tracepoint)
		for _, c := range h.columns {
			w.missing = append(w.missing, Missing{Column: c, Reason: "this kernel has no tracepoint " + h.tracepoint})
		}
	}
	return nil
}

// pageShift is the logarithm of the size of pages.
func pageShift() uint32 {
	shift := uint32(0)
	for 1<<shift < os.Getpagesize() {
		shift++
	}
	return shift
}

// Run reads counts until ctx is done, and then what is left. Call it once.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(w.opts.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return w.Read()
		case <-tick.C:
		}
		if err := w.Read(); err != nil {
			return err
		}
	}
}

// Close detaches and removes everything. It may be called twice.
func (w *Watch) Close() error {
	var all error
	for _, l := range w.links {
		all = errors.Join(all, l.Close())
	}
	w.links = nil
	for _, s := range []*swapped{&w.counts, &w.who} {
		for i, m := range s.inner {
			if m != nil {
				all = errors.Join(all, m.Close())
			}
			s.inner[i] = nil
		}
	}
	if w.coll != nil {
		w.coll.Close()
	}
	return all
}
