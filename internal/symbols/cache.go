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
	badFileRetry = time.Minute     // a file that could not be read is left alone
	slowLoad     = 2 * time.Second // a file that takes longer is not waited for
	maxLoading   = 64              // files being read or waiting for it
	loadAtOnce   = 2               // files being read, but for those that are stuck
)

var errBusy = errors.New("still being read")

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
	loading  atomic.Int64
	slots    chan struct{}

	mu      sync.Mutex
	tables  map[contentID]*shared
	bytes   int64
	evicted uint64
}

type cached struct {
	used  atomic.Int64
	ready chan struct{} // closed once the rest is set
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

// get returns the table of a file, reading it if it is not known. That goes on
// when the context ends: who asks again finds the table. read is called in a
// goroutine of its own, with a descriptor of its own, or not at all.
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

// turn waits for one of the slots, but no longer than patience: what has taken a
// slot may be stuck for good, on a file system that does not answer. It returns
// what gives the slot back.
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

// duplicate returns another descriptor of an open file. Closing none is fine.
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

// wait returns once the table is there. What takes longer than most do is not
// waited for by everybody.
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

// peek returns the table of a file if it is known.
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
	c.trimLocked() // others: who waits for this one finds the cache within its bounds
	close(e.ready)
	c.trimLocked() // this one, too
}

// trimLocked keeps the cache within its bounds as far as files are not being read.
func (c *cache) trimLocked() {
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
