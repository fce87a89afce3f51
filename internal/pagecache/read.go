package pagecache

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf/abi"
)

const (
	countsSize = int(unsafe.Sizeof(abi.PagecacheCounts{}))
	batch      = 1024  // entries that are read at once
	mostOther  = 65536 // files that are remembered not to match
)

// Read takes the counts of the kernel. They are complete up to then: each is read after no
// program uses its map any more.
func (w *Watch) Read() error {
	w.until = time.Now()
	old := w.active
	w.active = 1 - old
	for _, s := range []*swapped{&w.counts, &w.who} {
		if err := s.outer.Put(uint32(0), s.inner[w.active]); err != nil {
			return fmt.Errorf("read the page cache's counts: %w", err)
		}
	}
	if err := w.readFiles(w.counts.inner[old]); err != nil {
		return fmt.Errorf("read counts of files: %w", err)
	}
	if err := w.readRemovals(w.who.inner[old]); err != nil {
		return fmt.Errorf("read who removed pages: %w", err)
	}
	return nil
}

func (w *Watch) readFiles(m *ebpf.Map) error {
	keys := make([]abi.PagecacheKey, batch)
	values := make([]abi.PagecacheCounts, batch*w.cpus)
	return drain(m, keys, values, func(n int) {
		for i := range keys[:n] {
			w.addFile(keys[i], values[i*w.cpus:(i+1)*w.cpus])
		}
	})
}

func (w *Watch) readRemovals(m *ebpf.Map) error {
	keys, values := make([]abi.PagecacheRemoval, batch), make([]uint64, batch)
	return drain(m, keys, values, func(n int) {
		for i := range keys[:n] {
			if w.opts.File == "" || w.files.entries[keys[i].File] != nil {
				w.addRemoval(keys[i], values[i])
			}
		}
	})
}

// addRemoval adds pages that were removed, and for which request if that is known.
func (w *Watch) addRemoval(who abi.PagecacheRemoval, pages uint64) {
	if who.By.Serial != 0 {
		w.requests.add(who, pages)
		who.By = abi.ActivityReference{}
	}
	w.removals.add(who, pages)
}

// drain empties a map.
func drain[K, V any](m *ebpf.Map, keys []K, values []V, visit func(n int)) error {
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookupAndDelete(&cursor, keys, values, nil)
		end := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !end {
			return err
		}
		visit(n)
		if end {
			return nil
		}
	}
}

// addFile adds what the CPUs have counted of one file.
func (w *Watch) addFile(key abi.PagecacheKey, cpus []abi.PagecacheCounts) {
	var sum abi.PagecacheCounts
	for i := range cpus {
		addCounts(&sum, &cpus[i])
	}
	e := w.files.entries[key]
	var n name
	if e == nil {
		if n = w.nameOf(key); w.opts.File != "" && !w.wants(key, &n, weight(&sum)) {
			return
		}
	}
	addCounts(&w.total, &sum)
	e = w.files.add(key, weight(&sum))
	addCounts(&e.value.counts, &sum)
	if n.found {
		e.value.name = n
	}
}

// wants reports whether File matches a file that has no counter.
func (w *Watch) wants(key abi.PagecacheKey, n *name, pages uint64) bool {
	switch {
	case w.other[key]:
		return false
	case !n.found: // it was forgotten, as there are too many
		w.unknown += pages
		return false
	case !n.known():
		w.unnamed += pages
		return false
	case w.matches(key, n):
		return true
	}
	if len(w.other) >= mostOther {
		clear(w.other) // they are asked for again
	}
	w.other[key] = true
	return false
}

// weight is what a file is kept for: the pages in all of its columns.
func weight(c *abi.PagecacheCounts) uint64 {
	return c.Lookups + c.Added + c.Dirtied + c.Evicted + c.Removed
}

// addCounts adds one to another. What is cached is what was seen last.
func addCounts(to, c *abi.PagecacheCounts) {
	to.Lookups += c.Lookups
	to.First += c.First
	to.Added += c.Added
	to.Written += c.Written
	to.Dirtied += c.Dirtied
	to.Evicted += c.Evicted
	to.Removed += c.Removed
	if c.StampNs > to.StampNs {
		to.StampNs, to.Cached = c.StampNs, c.Cached
	}
}

// counter reads a variable of the programs; 0: it cannot be read.
func (w *Watch) counter(name string) uint64 {
	var n uint64
	if w.coll.Variables[name].Get(&n) != nil {
		return 0
	}
	return n
}

// missed is how often the kernel did not run a program as it was running on that CPU.
func (w *Watch) missed() uint64 {
	var n uint64
	for _, p := range w.coll.Programs {
		if stats, err := p.Stats(); err == nil {
			n += stats.RecursionMisses
		}
	}
	return n
}
