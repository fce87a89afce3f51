package symbols

import (
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/puzpuzpuz/xsync/v3"
)

const (
	keptProcesses = 512
	keptMappings  = 512              // per process, code only
	keptNames     = 64 << 10         // bytes of their names
	keptBytes     = 16 << 20         // total bytes
	keptLines     = 1 << 14          // lines of maps read to collect them
	keptFresh     = 10 * time.Second // not read again before
	keptFor       = 10 * time.Minute // pids are reused
)

// processMaps is the file mappings of a process, kept for after its exit.
type processMaps struct {
	mu    sync.Mutex
	code  []mapping // by start
	files map[uint64]fileID
	seen  time.Time
	names int // bytes of names in code
}

// bytes returns an upper bound of the memory used. Library names are shared.
func (p *processMaps) bytes() int { return p.names + len(p.code)*(96+80) + 512 }

// mapsCache holds the most recently seen processes.
type mapsCache struct {
	processes *xsync.MapOf[int, *processMaps]
}

func newMapsCache() mapsCache { return mapsCache{xsync.NewMapOf[int, *processMaps]()} }

// record returns where to collect the mappings of a process while its maps are read;
// nil if that was done recently.
func (k mapsCache) record(pid int, now time.Time) *processMaps {
	if old, ok := k.processes.Load(pid); ok {
		old.mu.Lock()
		fresh := now.Sub(old.seen) < keptFresh
		old.mu.Unlock()
		if fresh {
			return nil
		}
	}
	return &processMaps{files: map[uint64]fileID{}, seen: now}
}

// add is called by findMappings.
func (p *processMaps) add(m mapping, lines int) bool {
	if m.executable {
		m.name = unique.Make(m.name).Value() // shared between processes
		p.code = append(p.code, m)
		p.names += len(m.name)
	}
	return len(p.code) < keptMappings && p.names < keptNames && lines < keptLines
}

// store adds a process and evicts others if needed.
func (k mapsCache) store(pid int, p *processMaps, now time.Time) {
	if old, ok := k.processes.Load(pid); ok {
		old.mu.Lock()
		for _, m := range p.code {
			if id, ok := old.files[m.start]; ok && id.ino == m.inode {
				p.files[m.start] = id
			}
		}
		old.mu.Unlock()
	}
	k.processes.Store(pid, p)
	for {
		oldest, victim, total := now, 0, 0
		k.processes.Range(func(pid int, p *processMaps) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			total += p.bytes()
			if p.seen.Before(oldest) {
				oldest, victim = p.seen, pid
			}
			return true
		})
		if victim == 0 || k.processes.Size() <= keptProcesses && total <= keptBytes {
			return
		}
		k.processes.Delete(victim)
	}
}

// opened records the file of a mapping.
func (k mapsCache) opened(pid int, m mapping, id fileID) {
	p, ok := k.processes.Load(pid)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.files) < keptMappings {
		p.files[m.start] = id
	}
}

// all returns the code of a process that has exited.
func (k mapsCache) all(pid int, now time.Time) (code []mapping, files map[uint64]fileID) {
	p, ok := k.processes.Load(pid)
	if !ok {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.seen) > keptFor {
		return nil, nil
	}
	return slices.Clone(p.code), maps.Clone(p.files)
}

// find looks up addresses in a process that has exited.
func (k mapsCache) find(pid int, at []uint64, now time.Time) (hits []hit, files map[uint64]fileID) {
	p, ok := k.processes.Load(pid)
	if !ok {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.seen) > keptFor {
		return nil, nil
	}
	files = map[uint64]fileID{}
	for _, m := range p.code {
		h := hit{mapping: m}
		for i, a := range at {
			if a >= m.start && a < m.end {
				h.frames = append(h.frames, frame{i, a})
			}
		}
		if len(h.frames) == 0 {
			continue
		}
		hits = append(hits, h)
		if id, ok := p.files[m.start]; ok && id.ino == m.inode {
			files[m.start] = id
		}
	}
	return hits, files
}
