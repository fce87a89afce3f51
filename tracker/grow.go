package tracker

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// segments is how many arrays a pending table may consist of (bpf/abi/abi.h).
const segments = 4

// pendingTable is one of the tables that grow (bpf/grow.h).
type pendingTable struct {
	name        string // as in the configuration
	keys, slots string // maps of the first segment
	moreSlots   string // map of the values of the others
	mask        string // knob: buckets of the first segment less one
	trackers    []rules.Track

	places int // in all segments
	max    int
	maps   []*ebpf.Map // keys and values of further segments
	parts  []*ebpf.Map // keys of every segment
	err    error       // why it could not grow
}

// pendingTables are in the order of the kernel side's (enum table_kind).
func pendingTables() [tables]pendingTable {
	return [tables]pendingTable{
		{name: "tasks", keys: "task_keys", slots: "task_slots", moreSlots: "more_task_slots", mask: "task_mask", trackers: []rules.Track{rules.Wakeup, rules.OffCPU}},
		{name: "syscalls", keys: "call_keys", slots: "call_slots", moreSlots: "more_call_slots", mask: "call_mask", trackers: []rules.Track{rules.Syscall}},
		{name: "block", keys: "request_keys", slots: "request_slots", moreSlots: "more_request_slots", mask: "request_mask", trackers: []rules.Track{rules.Block}},
		{name: "pairs", keys: "pair_keys", slots: "pair_slots", mask: "pair_mask", trackers: []rules.Track{rules.Pair}}, // does not grow
		{name: "spans", keys: "span_keys", slots: "span_slots", mask: "span_mask", trackers: []rules.Track{rules.Span}}, // the same
	}
}

// growth guards the tables: they grow while they are read.
type growth struct {
	mu     sync.Mutex
	tables [tables]pendingTable
}

// sizeTables sets the first segment of every table, and how far it may grow.
func (t *Tracker) sizeTables(spec *ebpf.CollectionSpec, knobs map[string]any) {
	t.growth.tables = pendingTables()
	initial := [tables]int{t.opts.Tasks, t.opts.Syscalls, t.opts.Requests, t.opts.Pairs, t.opts.Spans}
	most := [tables]int{t.opts.MaxTasks, t.opts.MaxSyscalls, t.opts.MaxRequests}
	for n := range t.growth.tables {
		p := &t.growth.tables[n]
		p.places = 16 // a window of two buckets
		for _, track := range p.trackers {
			if t.plan.tracks[track] {
				p.places = powerOfTwo(max(initial[n], 16))
				p.max = most[n]
			}
		}
		spec.Maps[p.keys].MaxEntries = uint32(p.places / 8)
		spec.Maps[p.slots].MaxEntries = uint32(p.places)
		knobs[p.mask] = uint32(p.places/8 - 1)
	}
	spec.Maps["growths"].MaxEntries = tables
}

// beginTables tells the tick how large the tables are.
func (t *Tracker) beginTables() error {
	for n := range t.growth.tables {
		p := &t.growth.tables[n]
		p.parts = []*ebpf.Map{t.objects.Maps[p.keys]}
		var g bpf.TailcamGrowth
		g.Chunks[0] = chunksOf(p.places)
		if err := t.objects.Maps["growths"].Put(uint32(n), g); err != nil {
			return fmt.Errorf("set up the pending table of %s: %w", p.name, err)
		}
	}
	return nil
}

func chunksOf(places int) uint32 { return uint32(min((places+chunkPlaces-1)/chunkPlaces, maxChunks)) }

// grow doubles a table that is crowded, unless it may not, or there is no
// memory for it: then what finds it full is lost, and counted.
func (t *Tracker) grow(n int) {
	t.growth.mu.Lock()
	defer t.growth.mu.Unlock()
	if n >= tables {
		return
	}
	p := &t.growth.tables[n]
	more := p.places
	if len(p.parts) == segments-1 { // the last one there may be
		more = max(more, powerOfTwo(p.max-p.places+1)/2)
	}
	if p.places == 0 || len(p.parts) == segments || p.places+more > p.max {
		return // nobody uses it, or the kernel side does not ask again
	}
	p.err = t.addSegment(n, p, more)
}

// addSegment adds so many places to a table.
func (t *Tracker) addSegment(n int, p *pendingTable, places int) error {
	m := t.objects.Maps
	like := func(first string, entries int) (*ebpf.Map, error) {
		return ebpf.NewMap(&ebpf.MapSpec{
			Name: first, Type: ebpf.Array, KeySize: 4, ValueSize: m[first].ValueSize(), MaxEntries: uint32(entries), Flags: innerMap,
		})
	}
	keys, err := like(p.keys, places/8)
	if err != nil {
		return fmt.Errorf("grow the pending table of %s: %w", p.name, err)
	}
	slots, err := like(p.slots, places)
	if err != nil {
		return errors.Join(fmt.Errorf("grow the pending table of %s: %w", p.name, err), keys.Close())
	}
	segment := uint32(len(p.parts))
	p.maps = append(p.maps, keys, slots)
	var g bpf.TailcamGrowth
	// For each the kernel waits until no program is at work with what was there
	// before (maybe_wait_bpf_programs), some 30 ms: at the same time, then.
	put := make(chan error, 2)
	go func() { put <- m[p.moreSlots].Put(segment, slots) }()
	go func() { put <- m["more_keys"].Put(uint32(n)*segments+segment, keys) }()
	err = errors.Join(<-put, <-put, m["growths"].Lookup(uint32(n), &g))
	if err == nil { // from here on it is used
		g.Segments, g.Wanted = segment, 0
		g.Mask[segment], g.Chunks[segment] = uint32(places/8-1), chunksOf(places)
		err = m["growths"].Put(uint32(n), g)
	}
	if err != nil {
		return fmt.Errorf("grow the pending table of %s: %w", p.name, err)
	}
	p.parts = append(p.parts, keys)
	p.places += places
	return nil
}

// innerMap is BPF_F_INNER_MAP: arrays of different sizes in one map (5.10+).
const innerMap = 1 << 12

func (t *Tracker) closeTables() error {
	t.growth.mu.Lock()
	defer t.growth.mu.Unlock()
	var errs []error
	for n := range t.growth.tables {
		for _, m := range t.growth.tables[n].maps {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// TableInfo is the state of one pending table.
type TableInfo struct {
	Name     string        // as in the configuration: tasks, syscalls, block
	Trackers []rules.Track // that keep their pending work there
	Places   int           // it has now
	Max      int           // it may have
	Used     int
	Grown    int   // times
	Err      error // why it could not grow
}

// Tables tells how full the pending tables of the running trackers are, and
// how they have grown. It reads the whole tables.
func (t *Tracker) Tables() ([]TableInfo, error) {
	var list []TableInfo
	for n := range tables {
		t.growth.mu.Lock()
		p := t.growth.tables[n]
		t.growth.mu.Unlock()
		if !slices.ContainsFunc(p.trackers, func(track rules.Track) bool { return t.plan.tracks[track] }) {
			continue
		}
		keys, err := keysOf(p.parts)
		if err != nil {
			return nil, fmt.Errorf("read the pending table of %s: %w", p.name, err)
		}
		list = append(list, TableInfo{
			Name: p.name, Trackers: p.trackers, Places: p.places, Max: max(p.max, p.places), Used: len(keys), Grown: len(p.parts) - 1, Err: p.err,
		})
	}
	return list, nil
}

// keysOf lists the keys in the segments of a table.
func keysOf(parts []*ebpf.Map) ([]uint64, error) {
	var keys []uint64
	for _, m := range parts {
		buckets := make([]bpf.TailcamBucket, m.MaxEntries())
		at := make([]uint32, len(buckets))
		var cursor ebpf.MapBatchCursor
		n, err := m.BatchLookup(&cursor, at, buckets, nil)
		if err != nil && n < len(buckets) {
			return nil, err
		}
		for i := range buckets[:n] {
			for _, k := range buckets[i].Key {
				if k != 0 {
					keys = append(keys, k)
				}
			}
		}
	}
	return keys, nil
}
