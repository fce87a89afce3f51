package symbols

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"golang.org/x/sys/unix"
)

const (
	lineTime     = 20 * time.Second // for one request, in the background
	lineTurn     = 30 * time.Second // to wait for other requests, which may be stuck
	lineIdle     = 10 * time.Second // after which files are closed
	lineRetry    = time.Minute      // until a file without usable debug information is tried again
	lineFiles    = 64               // files whose unit index is cached
	lineWaiting  = 64               // requests in progress or waiting
	lineThreads  = 2                // concurrent requests
	lineNice     = 10               // niceness of the threads
	maxLinesKept = 1 << 15          // cached addresses
	maxLineBytes = 8 << 20          // their total size: at most 250 bytes each, usually 150
)

// errNotOpened means that a file could not be opened through one process. Another one
// may work.
var errNotOpened = errors.New("open debug information")

// lineCache finds source lines. Reading debug information is slow, so threads of low
// priority do it in the background. They continue when nobody waits, so that a later
// call finds the result.
type lineCache struct {
	room    int64 // bytes of decompressed sections and indexes
	extra   quota // of decompressed sections: three quarters of room
	known   *xsync.MapOf[lineKey, *Source]
	knownN  atomic.Int64  // size of known in bytes
	slots   chan struct{} // requests in progress
	waiting atomic.Int64
	failed  atomic.Uint64
	refused atomic.Uint64 // of failed: limit exceeded

	mu    sync.Mutex
	files map[contentID]*lineFile
	clock uint64
}

type lineKey struct {
	file contentID
	addr uint64
}

// lineFile is the debug information of one file.
type lineFile struct {
	busy  chan struct{} // semaphore; its holder owns the other fields
	data  *lineData     // nil: closed
	index *dwarfIndex   // kept after closing
	err   error
	retry time.Time
	last  time.Time
	size  atomic.Int64
	used  uint64 // value of lineCache.clock; guarded by lineCache.mu
}

// lineOrigin describes how to open a file and its debug information.
type lineOrigin struct {
	file  contentID
	table *table
	open  func() (*mapped, error) // the file itself
	debug opener                  // for its debug files
	path  string                  // of the file
	// inRoot: path is in the root directory of a running process.
	inRoot bool
}

func newLineCache(room int64, threads int) *lineCache {
	l := &lineCache{
		room:  room,
		known: xsync.NewMapOf[lineKey, *Source](),
		slots: make(chan struct{}, threads),
		files: make(map[contentID]*lineFile),
	}
	l.extra.limit = room / 4 * 3
	l.extra.free = func() bool { // the caller holds its own file
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.dropLocked(nil, false)
	}
	return l
}

// get returns the sources of addresses known when ctx is done.
func (l *lineCache) get(ctx context.Context, w lineOrigin, addrs []uint64) []*Source {
	out, missing := l.peek(w.file, addrs)
	if len(missing) == 0 || l.waiting.Load() >= lineWaiting {
		return out
	}
	l.waiting.Add(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer l.waiting.Add(-1)
		l.readSources(w, missing)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	out, _ = l.peek(w.file, addrs)
	return out
}

func (l *lineCache) peek(file contentID, addrs []uint64) (out []*Source, missing []uint64) {
	out = make([]*Source, len(addrs))
	for i, a := range addrs {
		if s, ok := l.known.Load(lineKey{file, a}); ok {
			out[i] = s
		} else {
			missing = append(missing, a)
		}
	}
	return out, missing
}

// Runs in its own goroutine, whose thread ends with it and so may have low priority.
func (l *lineCache) readSources(w lineOrigin, addrs []uint64) {
	f := l.file(w.file)
	f.busy <- struct{}{}
	defer func() { <-f.busy }()
	defer turn(l.slots, lineTurn)()
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, lineNice) // of this thread
	debug.SetPanicOnFault(true)                          // a mapped file may be truncated

	ctx, cancel := context.WithTimeout(context.Background(), lineTime)
	defer cancel()
	if f.err != nil && time.Now().Before(f.retry) {
		return
	}
	if err := l.readSourcesIn(ctx, f, w, addrs); err != nil {
		l.failed.Add(1)
		if errors.Is(err, errNoRoom) || errors.Is(err, errTooLarge) || errors.Is(err, errTooMuchWork) {
			l.refused.Add(1)
		}
		if f.close(); !errors.Is(err, errNotOpened) {
			f.err, f.retry = err, time.Now().Add(lineRetry)
		}
	}
	f.last = time.Now()
	l.shrink(f)
	time.AfterFunc(lineIdle, func() { l.closeIdle(f) })
}

func (l *lineCache) readSourcesIn(ctx context.Context, f *lineFile, w lineOrigin, addrs []uint64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("read debug information: damaged")
		}
	}()
	if f.data == nil {
		f.data = &lineData{where: w, index: f.index, room: l.extra.limit, shared: &l.extra}
	}
	f.data.where = w // a process through which files can be opened
	defer func() {
		if f.index == nil && f.data.index != nil && f.data.index.refused {
			l.refused.Add(1)
		}
		f.index = f.data.index
		f.size.Store(f.data.bytes())
	}()
	for _, a := range addrs {
		if _, ok := l.known.Load(lineKey{w.file, a}); ok {
			continue // requested concurrently
		}
		s, err := f.data.source(ctx, a)
		if err != nil {
			return err
		}
		l.keep(lineKey{w.file, a}, s)
	}
	return nil
}

// keep caches a result and evicts others if needed.
func (l *lineCache) keep(k lineKey, s *Source) {
	if l.known.Size() >= maxLinesKept || l.knownN.Load() >= maxLineBytes {
		n, bytes := 0, int64(0)
		l.known.Range(func(k lineKey, _ *Source) bool {
			if old, ok := l.known.LoadAndDelete(k); ok {
				n, bytes = n+1, bytes+old.bytes()
			}
			return n < maxLinesKept/4 && bytes < maxLineBytes/4
		})
		l.knownN.Add(-bytes)
	}
	if _, there := l.known.LoadOrStore(k, s); !there {
		l.knownN.Add(s.bytes())
	}
}

// file returns the entry of a file, creating it and evicting another one if needed.
func (l *lineCache) file(id contentID) *lineFile {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	f := l.files[id]
	if f == nil {
		f = &lineFile{busy: make(chan struct{}, 1)}
		for len(l.files) >= lineFiles && l.dropLocked(nil, true) {
		}
		l.files[id] = f
	}
	f.used = l.clock
	return f
}

// shrink closes the least recently used files until the limits are met.
func (l *lineCache) shrink(own *lineFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytesLocked() > l.room && l.dropLocked(own, false) {
	}
}

func (l *lineCache) bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytesLocked()
}

func (l *lineCache) bytesLocked() int64 {
	var n int64
	for _, f := range l.files {
		n += f.size.Load()
	}
	return n
}

// dropLocked removes the least recently used file that is not in use and not own.
func (l *lineCache) dropLocked(own *lineFile, empty bool) bool {
	var ids []contentID
	for id, f := range l.files {
		if f != own && (empty || f.size.Load() > 0) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b contentID) int { return int(int64(l.files[a].used) - int64(l.files[b].used)) })
	for _, id := range ids {
		f := l.files[id]
		select {
		case f.busy <- struct{}{}:
			f.index = nil
			f.close()
			delete(l.files, id)
			<-f.busy
			return true
		default:
		}
	}
	return false
}

// closeIdle closes an idle file: an open file prevents unmounting a container's file
// system. Its index stays cached.
func (l *lineCache) closeIdle(f *lineFile) {
	select {
	case f.busy <- struct{}{}:
	default:
		return // in use: called again later
	}
	defer func() { <-f.busy }()
	if time.Since(f.last) >= lineIdle {
		f.close()
	}
}

// close keeps the index.
func (f *lineFile) close() {
	if f.data != nil {
		f.data.close()
		f.data = nil
	}
	f.size.Store(f.index.bytes())
}
