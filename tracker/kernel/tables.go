package kernel

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// pendingTable is one of the tables that grow.
type pendingTable struct {
	*kinds.Table
	used    bool // by a tracker that runs
	slots   int  // in all segments
	max     int
	maps    []*ebpf.Map // keys and slots of further segments
	parts   []*ebpf.Map // keys of every segment
	limited []limited   // work in a slot
	err     error       // why it could not grow
}

// pendingTables guards the tables: they grow while they are read.
type pendingTables struct {
	mu   sync.Mutex
	list [abi.Tables]pendingTable

	interrupts []limited // work of one CPU; does not change
}

// sizeTables sets the first segment of every table, and how far it may grow. A table
// that is in use keeps its size.
func (o *Objects) sizeTables(b *build, s *specs) []knob {
	var knobs []knob
	o.tables.mu.Lock()
	before, list := o.loaded.Load(), o.tables.list
	o.tables.mu.Unlock()
	for n := range list {
		p := &b.tables[n]
		keys, slots := kinds.Tables[n].Specs(&s.TailcamMapSpecs)
		first := 2 * abi.BucketKeys // a window of two buckets
		*p = pendingTable{Table: &kinds.Tables[n], limited: limitedIn(slots.Value, 0)}
		p.used = slices.ContainsFunc(kinds.Trackers(n), func(track rules.Track) bool { return b.plan.Tracks[track] })
		switch {
		case before != nil && (list[n].used || n == abi.TablePairs):
			first = int(list[n].parts[0].MaxEntries()) * abi.BucketKeys
		case p.used:
			first = kinds.PowerOfTwo(max(b.opts.Slots[n], first))
		case n == abi.TablePairs:
			first = min(kinds.PowerOfTwo(max(b.opts.Slots[n], first)), sparePairs)
		}
		if p.slots = first; p.used {
			p.max = b.opts.MaxSlots[n]
		}
		keys.MaxEntries, slots.MaxEntries = uint32(first/abi.BucketKeys), uint32(first)
		knobs = append(knobs, knob{p.Mask(&s.TailcamVariableSpecs), uint32(first/abi.BucketKeys - 1)})
	}
	s.Growths.MaxEntries = abi.Tables
	return append(knobs, sizeSpans(s, b.tables[abi.TableSpans].slots, before)...)
}

// sparePairs are the slots for pairs that come with a reload, if there was none at the
// start.
const sparePairs = 1024

// openTables tells the tick how large the tables are that were not in use before.
func (b *build) openTables(before *loaded) error {
	for n := range b.tables {
		p := &b.tables[n]
		keys, _, _ := p.Maps(&b.maps)
		if before != nil {
			if same, _, _ := p.Maps(&before.maps); same == keys {
				continue // it may have grown
			}
		}
		p.parts = []*ebpf.Map{keys}
		var g abi.Growth
		g.Chunks[0] = chunksOf(p.slots)
		if err := b.maps.Growths.Put(uint32(n), g); err != nil {
			return fmt.Errorf("set up the pending table of %s: %w", p.Name, err)
		}
	}
	return nil
}

// use takes over the tables of a load.
func (t *pendingTables) use(b *build) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := range t.list {
		p, q := &t.list[n], &b.tables[n]
		if q.parts != nil {
			*p = *q
			continue
		}
		p.used, p.max = p.used || q.used, q.max
	}
}

// chunksOf is how many parts of a table the tick scans, one at a time.
func chunksOf(slots int) uint32 {
	const chunk = abi.ChunkBuckets * abi.BucketKeys
	return uint32(min((slots+chunk-1)/chunk, abi.MaxChunks))
}

// Grow doubles a table that is crowded, unless it may not, or there is no
// memory for it: then what finds it full is lost, and counted.
func (o *Objects) Grow(n int) {
	o.tables.mu.Lock()
	defer o.tables.mu.Unlock()
	if n >= len(o.tables.list) {
		return
	}
	p := &o.tables.list[n]
	more := p.slots
	if len(p.parts) == abi.Segments-1 { // the last one there may be
		more = max(more, kinds.PowerOfTwo(p.max-p.slots+1)/2)
	}
	if p.slots == 0 || len(p.parts) == abi.Segments || p.slots+more > p.max {
		return // nobody uses it, or the kernel side does not ask again
	}
	p.err = o.addSegment(n, p, more)
}

// addSegment adds so many slots to a table.
func (o *Objects) addSegment(n int, p *pendingTable, more int) error {
	firstKeys, firstSlots, moreSlots := p.Maps(o.Maps())
	like := func(first *ebpf.Map, entries int) (*ebpf.Map, error) {
		return ebpf.NewMap(&ebpf.MapSpec{
			Name: p.Name, Type: ebpf.Array, KeySize: 4, ValueSize: first.ValueSize(), MaxEntries: uint32(entries), Flags: innerMap,
		})
	}
	keys, err := like(firstKeys, more/abi.BucketKeys)
	if err != nil {
		return fmt.Errorf("grow the pending table of %s: %w", p.Name, err)
	}
	slots, err := like(firstSlots, more)
	if err != nil {
		return errors.Join(fmt.Errorf("grow the pending table of %s: %w", p.Name, err), keys.Close())
	}
	segment := uint32(len(p.parts))
	p.maps = append(p.maps, keys, slots)
	if err := o.pinSegment(n, segment, keys, slots); err != nil {
		return fmt.Errorf("grow the pending table of %s: %w", p.Name, err)
	}
	var g abi.Growth
	// For each the kernel waits until no program is at work with what was there
	// before (maybe_wait_bpf_programs), some 30 ms: at the same time, then.
	put := make(chan error, 2)
	go func() { put <- moreSlots.Put(segment, slots) }()
	go func() { put <- o.Maps().MoreKeys.Put(uint32(n)*abi.Segments+segment, keys) }()
	err = errors.Join(<-put, <-put, o.Maps().Growths.Lookup(uint32(n), &g))
	if err == nil { // from here on it is used
		g.Segments, g.Wanted = segment, 0
		g.Mask[segment], g.Chunks[segment] = uint32(more/abi.BucketKeys-1), chunksOf(more)
		err = o.Maps().Growths.Put(uint32(n), g)
	}
	if err != nil {
		return fmt.Errorf("grow the pending table of %s: %w", p.Name, err)
	}
	p.parts = append(p.parts, keys)
	p.slots += more
	return nil
}

// LimitTables changes how far the tables that are in use may grow.
func (o *Objects) LimitTables(most [abi.Tables]int) {
	o.tables.mu.Lock()
	defer o.tables.mu.Unlock()
	for n := range o.tables.list {
		if p := &o.tables.list[n]; p.used {
			p.max = most[n]
		}
	}
}

// innerMap is BPF_F_INNER_MAP: arrays of different sizes in one map (5.10+).
const innerMap = 1 << 12

func (o *Objects) closeTables() error {
	o.tables.mu.Lock()
	defer o.tables.mu.Unlock()
	var errs []error
	for n := range o.tables.list {
		for _, m := range o.tables.list[n].maps {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// TableInfo is the state of one pending table.
type TableInfo struct {
	Name     string        // as in the configuration: tasks, syscalls, block
	Trackers []rules.Track // that keep their pending work there
	Slots    int           // it has now
	Max      int           // it may have
	Used     int
	Grown    int   // times
	Err      error // why it could not grow
}

// Tables tells how full the pending tables of the running trackers are, and
// how they have grown. It reads the whole tables.
func (o *Objects) Tables() ([]TableInfo, error) {
	var list []TableInfo
	for n := range o.tables.list {
		o.tables.mu.Lock()
		p := o.tables.list[n]
		o.tables.mu.Unlock()
		if !p.used {
			continue
		}
		keys, err := keysOf(p.parts)
		if err != nil {
			return nil, fmt.Errorf("read the pending table of %s: %w", p.Name, err)
		}
		list = append(list, TableInfo{
			Name: p.Name, Trackers: kinds.Trackers(n), Slots: p.slots, Max: max(p.max, p.slots), Used: len(keys), Grown: len(p.parts) - 1, Err: p.err,
		})
	}
	return list, nil
}

// keysOf lists the keys in the segments of a table.
func keysOf(parts []*ebpf.Map) ([]uint64, error) {
	var keys []uint64
	for _, m := range parts {
		err := eachKey(m, func(_ uint32, key uint64) error {
			keys = append(keys, key)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// Pending counts the occupied slots of each running tracker's pending table:
// work whose entry was seen and whose exit was not. Wakeup and offcpu share one
// table, so both have the count of both: every task that is off its CPU. The
// tables change while they are read.
func (o *Objects) Pending() (map[rules.Track]int, error) {
	counts := map[rules.Track]int{}
	for _, track := range o.Trackers() {
		keys, err := o.PendingKeys(track)
		if err != nil {
			return nil, err
		}
		counts[track] = len(keys)
	}
	return counts, nil
}

// PendingKeys returns the keys in a tracker's pending table, in no order:
// thread ids, or for block the addresses of requests.
func (o *Objects) PendingKeys(track rules.Track) ([]uint64, error) {
	var parts []*ebpf.Map
	o.tables.mu.Lock()
	for i := range o.tables.list {
		if p := &o.tables.list[i]; slices.Contains(kinds.Trackers(i), track) {
			parts = p.parts
		}
	}
	o.tables.mu.Unlock()
	if track == rules.Chain {
		parts = []*ebpf.Map{o.Maps().ChainKeys}
	}
	if parts == nil {
		return nil, fmt.Errorf("read the pending table of %q: no such tracker", track)
	}
	keys, err := keysOf(parts)
	if err != nil {
		return nil, fmt.Errorf("read the pending table of %s: %w", track, err)
	}
	return keys, nil
}
