package symbols

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
)

// badFileRetry is how long a file that could not be read is left alone.
const badFileRetry = time.Minute

// fileID tells apart the states of files: another time, another table.
type fileID struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // nanoseconds
}

// contentID is shared by copies of one file, as in containers of one image.
type contentID struct {
	buildID string
	hash    uint64
}

// cache holds tables by file, bounded in number and bytes; the least recently
// used go first. Copies share one table. No lock is held while a file is read:
// those who want the same file wait for the one who reads it.
type cache struct {
	maxFiles int
	maxBytes int64
	seed     maphash.Seed
	files    *xsync.MapOf[fileID, *cached]
	clock    atomic.Int64 // counts uses

	mu      sync.Mutex
	tables  map[contentID]*shared
	bytes   int64
	evicted uint64
}

type cached struct {
	used  atomic.Int64
	ready chan struct{} // closed once the rest is set
	table *table
	err   error
	retry time.Time
	id    contentID
}

type shared struct {
	table *table
	users int
}

func newCache(maxFiles int, maxBytes int64) *cache {
	return &cache{
		maxFiles: maxFiles,
		maxBytes: maxBytes,
		seed:     maphash.MakeSeed(),
		files:    xsync.NewMapOf[fileID, *cached](),
		tables:   make(map[contentID]*shared),
	}
}

// get returns the table of a file, reading it if it is not known.
func (c *cache) get(ctx context.Context, id fileID, read func() (*table, error)) (*table, error) {
	mine := &cached{ready: make(chan struct{})}
	mine.used.Store(c.clock.Add(1))
	e, known := c.files.LoadOrStore(id, mine)
	if !known {
		c.fill(id, mine, read)
		return mine.table, mine.err
	}
	e.used.Store(c.clock.Add(1))
	select {
	case <-e.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if e.err != nil && time.Now().After(e.retry) {
		c.remove(id, e)
	}
	return e.table, e.err
}

func (c *cache) fill(id fileID, e *cached, read func() (*table, error)) {
	e.table, e.err = read()
	e.retry = time.Now().Add(badFileRetry)
	if e.err == nil {
		e.id = contentID{e.table.buildID, e.table.identity(c.seed)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.err == nil {
		s := c.tables[e.id]
		if s == nil {
			s = &shared{table: e.table}
			c.tables[e.id] = s
			c.bytes += e.table.bytes()
		}
		s.users++
		e.table = s.table
	}
	close(e.ready)
	for (c.files.Size() > c.maxFiles || c.bytes > c.maxBytes) && c.evictLocked() {
	}
}

// evictLocked drops the least recently used file that is not being read.
func (c *cache) evictLocked() bool {
	var (
		oldest fileID
		victim *cached
		age    int64
	)
	c.files.Range(func(id fileID, e *cached) bool {
		select {
		case <-e.ready:
			if used := e.used.Load(); victim == nil || used < age {
				oldest, victim, age = id, e, used
			}
		default:
		}
		return true
	})
	if victim == nil {
		return false
	}
	c.evicted++
	c.removeLocked(oldest, victim)
	return true
}

func (c *cache) remove(id fileID, e *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(id, e)
}

func (c *cache) removeLocked(id fileID, e *cached) {
	if now, ok := c.files.Load(id); !ok || now != e {
		return // somebody else was faster
	}
	c.files.Delete(id)
	if e.err != nil {
		return
	}
	s := c.tables[e.id]
	if s.users--; s.users == 0 {
		delete(c.tables, e.id)
		c.bytes -= s.table.bytes()
	}
}

func (c *cache) stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Files: c.files.Size(), Bytes: c.bytes, Evicted: c.evicted}
}
