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
	lineTime     = 20 * time.Second // of one look into debug information, in the background
	lineTurn     = 30 * time.Second // of waiting for others to end theirs, who may be stuck
	lineIdle     = 10 * time.Second // after it files are no longer held open
	lineRetry    = time.Minute      // a file without usable debug information is left alone
	lineFiles    = 64               // files whose index of compile units is kept
	lineWaiting  = 64               // looks that may be under way or wait
	lineThreads  = 2                // looks at once
	lineNice     = 10               // of the threads that look
	maxLinesKept = 1 << 15          // addresses with their source
	maxLineBytes = 8 << 20          // that these take: 250 bytes each; most take 150
)

// errNotOpened says that a file could not be opened by way of one process. By
// way of another one it may be.
var errNotOpened = errors.New("open debug information")

// lines finds sources of addresses. Reading debug information takes long, so
// that is done in the background, by threads of low priority, and goes on when
// nobody waits any more: who asks again finds the answer.
type lines struct {
	room    int64 // bytes of decompressed sections and of indexes
	extra   quota // of decompressed sections alone, three quarters of it
	known   *xsync.MapOf[lineKey, *Source]
	knownN  atomic.Int64  // bytes of known
	slots   chan struct{} // looks under way
	waiting atomic.Int64
	failed  atomic.Uint64
	refused atomic.Uint64 // of failed: beyond a limit

	mu    sync.Mutex
	files map[contentID]*lineFile
	clock uint64
}

type lineKey struct {
	file contentID
	addr uint64
}

// lineFile is what is known of one file's debug information.
type lineFile struct {
	busy  chan struct{} // of one: who holds it may use the rest
	data  *lineData     // nil: not open
	index *dwarfIndex   // kept while it is not open
	err   error
	retry time.Time
	last  time.Time
	size  atomic.Int64
	used  uint64 // of lines.clock, guarded by lines.mu
}

// lineWhere says how to open a file and its debug information.
type lineWhere struct {
	file  contentID
	table *table
	open  func() (*mapped, error) // the file itself
	debug opener                  // of its debug files
	path  string                  // of the file
	// inRoot: path is as the process sees it, which has not ended.
	inRoot bool
}

func newLines(room int64, threads int) *lines {
	l := &lines{
		room:  room,
		known: xsync.NewMapOf[lineKey, *Source](),
		slots: make(chan struct{}, threads),
		files: make(map[contentID]*lineFile),
	}
	l.extra.limit = room / 4 * 3
	l.extra.free = func() bool { // whoever asks is busy with its own file
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.dropLocked(nil, false)
	}
	return l
}

// get returns the sources of addresses of one file, as far as they are known
// or become known before the context ends.
func (l *lines) get(ctx context.Context, w lineWhere, addrs []uint64) []*Source {
	out, missing := l.peek(w.file, addrs)
	if len(missing) == 0 || l.waiting.Load() >= lineWaiting {
		return out
	}
	l.waiting.Add(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer l.waiting.Add(-1)
		l.look(w, missing)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	out, _ = l.peek(w.file, addrs)
	return out
}

func (l *lines) peek(file contentID, addrs []uint64) (out []*Source, missing []uint64) {
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

// look runs in a goroutine of its own, whose thread ends with it: it stays unimportant.
func (l *lines) look(w lineWhere, addrs []uint64) {
	f := l.file(w.file)
	f.busy <- struct{}{}
	defer func() { <-f.busy }()
	defer turn(l.slots, lineTurn)()
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, lineNice) // of this thread
	debug.SetPanicOnFault(true)                          // a mapped file may shrink

	ctx, cancel := context.WithTimeout(context.Background(), lineTime)
	defer cancel()
	if f.err != nil && time.Now().Before(f.retry) {
		return
	}
	if err := l.lookIn(ctx, f, w, addrs); err != nil {
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
	time.AfterFunc(lineIdle, func() { l.rest(f) })
}

func (l *lines) lookIn(ctx context.Context, f *lineFile, w lineWhere, addrs []uint64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("read debug information: it is broken")
		}
	}()
	if f.data == nil {
		f.data = &lineData{where: w, index: f.index, room: l.extra.limit, shared: &l.extra}
	}
	f.data.where = w // by which files can still be opened
	defer func() {
		if f.index == nil && f.data.index != nil && f.data.index.refused {
			l.refused.Add(1)
		}
		f.index = f.data.index
		f.size.Store(f.data.bytes())
	}()
	for _, a := range addrs {
		if _, ok := l.known.Load(lineKey{w.file, a}); ok {
			continue // somebody else asked, too
		}
		s, err := f.data.source(ctx, a)
		if err != nil {
			return err
		}
		l.keep(lineKey{w.file, a}, s)
	}
	return nil
}

// keep remembers an answer, and forgets some others once there are too many.
func (l *lines) keep(k lineKey, s *Source) {
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

// file finds or makes the entry of a file, and drops the one used least recently.
func (l *lines) file(id contentID) *lineFile {
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

// shrink closes the files used least recently until the rest is small enough.
func (l *lines) shrink(own *lineFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytesLocked() > l.room && l.dropLocked(own, false) {
	}
}

func (l *lines) bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytesLocked()
}

func (l *lines) bytesLocked() int64 {
	var n int64
	for _, f := range l.files {
		n += f.size.Load()
	}
	return n
}

// dropLocked forgets the file used least recently that nobody uses now, and is not own.
func (l *lines) dropLocked(own *lineFile, empty bool) bool {
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

// rest closes a file that was not used for a while: an open one keeps the file
// system of a container from being unmounted. Its index stays.
func (l *lines) rest(f *lineFile) {
	select {
	case f.busy <- struct{}{}:
	default:
		return // in use: it comes here again
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
