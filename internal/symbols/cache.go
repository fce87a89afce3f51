package symbols

import (
	"context"
	"errors"
	"hash/maphash"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"golang.org/x/sys/unix"
)

const (
	badFileRetry = time.Minute     // until an unreadable file is tried again
	slowLoad     = 2 * time.Second // beyond which callers do not wait
	maxLoading   = 64              // files being read or waiting
	loadAtOnce   = 2               // files read concurrently, except stuck ones
)

var errBusy = errors.New("still being read")

// fileID identifies a file's content by inode and times.
type fileID struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // nanoseconds
}

// contentID is equal for copies of a file, as in containers of one image.
type contentID struct {
	buildID string
	hash    uint64
}

// cache is an LRU cache of symbol tables, limited in number and bytes. Copies share a
// table. No lock is held while reading a file; concurrent readers of a file wait for
// the first one.
type cache struct {
	maxFiles int
	maxBytes int64
	seed     maphash.Seed
	files    *xsync.MapOf[fileID, *cached]
	clock    atomic.Int64 // counter for LRU
	loading  atomic.Int64
	slots    chan struct{}

	mu      sync.Mutex
	tables  map[contentID]*shared
	bytes   int64
	evicted uint64
}

type cached struct {
	used  atomic.Int64
	ready chan struct{} // closed when the rest is set
	begun time.Time
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
		slots:    make(chan struct{}, loadAtOnce),
		files:    xsync.NewMapOf[fileID, *cached](),
		tables:   make(map[contentID]*shared),
	}
}

// get returns the table of a file, reading it if needed. Reading continues after ctx is
// done, so that a later call finds the result. read is called at most once, in its own
// goroutine with its own descriptor.
func (c *cache) get(ctx context.Context, id fileID, f *os.File, read func(*os.File) (*table, error)) (*table, error) {
	e, known := c.files.Load(id)
	if !known {
		if c.loading.Load() >= maxLoading {
			return nil, errBusy
		}
		mine := &cached{ready: make(chan struct{}), begun: time.Now()}
		mine.used.Store(c.clock.Add(1))
		if e, known = c.files.LoadOrStore(id, mine); !known {
			c.loading.Add(1)
			own, err := duplicate(f)
			go func() {
				defer own.Close()
				defer c.loading.Add(-1)
				defer turn(c.slots, slowLoad)()
				c.fill(id, mine, func() (*table, error) {
					if err != nil {
						return nil, err
					}
					return read(own)
				})
			}()
		}
	}
	e.used.Store(c.clock.Add(1))
	if err := e.wait(ctx); err != nil {
		return nil, err
	}
	if e.err != nil && time.Now().After(e.retry) {
		c.remove(id, e)
	}
	return e.table, e.err
}

// turn waits for a slot, but not longer than patience, as a slot may be stuck on a hung
// file system. It returns a function that frees the slot.
func turn(slots chan struct{}, patience time.Duration) (back func()) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }
	case <-timer.C:
		return func() {}
	}
}

// duplicate duplicates the descriptor of an open file; nil stays nil.
func duplicate(f *os.File) (*os.File, error) {
	if f == nil {
		return nil, nil
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// wait waits for the table. Only the first callers wait for a slow file.
func (e *cached) wait(ctx context.Context) error {
	select {
	case <-e.ready:
		return nil
	default:
	}
	if time.Since(e.begun) > slowLoad {
		return errBusy
	}
	select {
	case <-e.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// peek returns the table of a file if it is cached.
func (c *cache) peek(id fileID) *table {
	e, known := c.files.Load(id)
	if !known {
		return nil
	}
	select {
	case <-e.ready:
		e.used.Store(c.clock.Add(1))
		return e.table
	default:
		return nil
	}
}

func (c *cache) fill(id fileID, e *cached, read func() (*table, error)) {
	e.table, e.err = read()
	e.retry = time.Now().Add(badFileRetry)
	if e.err == nil {
		e.id = contentID{e.table.buildID, e.table.identity(c.seed)}
		e.table.id = e.id
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
	c.trimLocked() // others first: waiters find the cache within its limits
	close(e.ready)
	c.trimLocked() // and this one if necessary
}

// trimLocked evicts files that are not being read until the limits are met.
func (c *cache) trimLocked() {
	for (c.files.Size() > c.maxFiles || c.bytes > c.maxBytes) && c.evictLocked() {
	}
}

// evictLocked evicts the least recently used file that is not being read.
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
		return // evicted concurrently
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
