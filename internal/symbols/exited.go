package symbols

import (
	"sync"
	"time"
	"unique"

	"github.com/puzpuzpuz/xsync/v3"
)

const (
	keptProcesses = 512
	keptMappings  = 512              // of one process, only of code
	keptNames     = 64 << 10         // bytes of their names
	keptBytes     = 16 << 20         // of all processes
	keptLines     = 1 << 14          // of its maps that are read for that
	keptFresh     = 10 * time.Second // not read again before
	keptFor       = 10 * time.Minute // process ids come back
)

// kept is what is remembered of a process for the time after its end: where
// which file was mapped.
type kept struct {
	mu    sync.Mutex
	code  []mapping // by start
	files map[uint64]fileID
	seen  time.Time
	names int // bytes of the names in code
}

// bytes is the memory that it takes at most, about. The names of libraries are shared.
func (p *kept) bytes() int { return p.names + len(p.code)*(96+80) + 512 }

// keep holds the processes seen last.
type keep struct{ processes *xsync.MapOf[int, *kept] }

func newKeep() keep { return keep{xsync.NewMapOf[int, *kept]()} }

// sighting collects the mappings of a process while its maps are read; nil if
// they were read a moment ago.
func (k keep) sighting(pid int, now time.Time) *kept {
	if old, ok := k.processes.Load(pid); ok {
		old.mu.Lock()
		fresh := now.Sub(old.seen) < keptFresh
		old.mu.Unlock()
		if fresh {
			return nil
		}
	}
	return &kept{files: map[uint64]fileID{}, seen: now}
}

// add is for findMappings.
func (p *kept) add(m mapping, lines int) bool {
	if m.executable {
		m.name = unique.Make(m.name).Value() // processes share libraries
		p.code = append(p.code, m)
		p.names += len(m.name)
	}
	return len(p.code) < keptMappings && p.names < keptNames && lines < keptLines
}

// store remembers a process, and forgets others once there are too many.
func (k keep) store(pid int, p *kept, now time.Time) {
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
		k.processes.Range(func(pid int, p *kept) bool {
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

// opened notes which file a mapping was of.
func (k keep) opened(pid int, m mapping, id fileID) {
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

// hits finds addresses in what is kept of a process that has ended.
func (k keep) hits(pid int, at []uint64, now time.Time) (hits []hit, files map[uint64]fileID) {
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
