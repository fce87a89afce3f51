package helper

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tailcam/tailcam/internal/guard"
)

const (
	startTime      = 10 * time.Second // for a new helper to become ready
	noteTime       = 40 * time.Second // for one file, including background work
	remoteNoteTime = 5 * time.Second  // the same on network file systems
	maxNotes       = 256
	maxAsked       = 1024
)

// note is a file that a helper is reading.
type note struct {
	pid   int
	file  fileKey
	since time.Time
}

// worker is a running helper: one process, or a parser with its opener.
type worker struct {
	conn     *net.UnixConn
	children []*child
	hello    string        // missing confinement; "": none
	broken   chan struct{} // closed when helper exited

	mu      sync.Mutex
	why     error
	waiting map[uint64]chan message
	notes   map[uint64]note
	asked   map[int]bool // processes it was asked about; notes about others are ignored
	stats   message      // last reply
}

var errGone = errors.New("helper exited")

// launch starts a helper and waits until it is ready.
func (s *starter) launch(o role) (w *worker, err error) {
	mine, its, err := pair()
	if err != nil {
		return nil, err
	}
	begun := &worker{broken: make(chan struct{}), waiting: map[uint64]chan message{}, notes: map[uint64]note{}, asked: map[int]bool{}}
	defer func() {
		if err != nil {
			begun.kill() // w may be nil here
		}
	}()
	w = begun
	files := []*os.File{its}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if w.conn, err = connection(mine); err != nil {
		return nil, err
	}
	if o.name == roleParse {
		parsers, openers, err := pair()
		if err != nil {
			return nil, err
		}
		files = append(files, parsers, openers)
		opener := role{name: roleOpen, remote: o.remote, memory: openerMemory}
		if err := w.add(s.start(opener, openers)); err != nil {
			return nil, err
		}
		if err := w.add(s.start(o, its, parsers)); err != nil {
			return nil, err
		}
	} else if err := w.add(s.start(o, its)); err != nil {
		return nil, err
	}
	buf := make([]byte, maxMessage)
	_ = w.conn.SetReadDeadline(time.Now().Add(startTime))
	m, err := w.next(buf)
	if err != nil || m.kind != msgHello {
		return nil, fmt.Errorf("start helper: %w: %s", errors.Join(err, errGone), w.failure())
	}
	w.hello = m.text
	_ = w.conn.SetReadDeadline(time.Time{})
	go w.listen(buf, s.guard)
	return w, nil
}

func (w *worker) add(c *child, err error) error {
	if err != nil {
		return err
	}
	w.children = append(w.children, c)
	return nil
}

// failure returns what its processes wrote to standard error.
func (w *worker) failure() string {
	for _, c := range w.children {
		if line := c.stderr.firstLine(); line != "" {
			return c.role + ": " + line
		}
	}
	return "no reason given"
}

func (w *worker) next(buf []byte) (message, error) {
	n, err := w.conn.Read(buf)
	if err != nil {
		return message{}, err
	}
	if n == 0 {
		return message{}, errGone
	}
	return decodeMessage(buf[:n])
}

// listen handles messages until the helper ends or sends a malformed one.
func (w *worker) listen(buf []byte, g *guard.Guard) {
	for {
		err := g.Do(guard.Helper, func() error {
			m, err := w.next(buf)
			if err == nil {
				w.take(m)
			}
			return err
		})
		if err != nil {
			w.mu.Lock()
			w.why = err
			w.mu.Unlock()
			close(w.broken)
			return
		}
	}
}

func (w *worker) take(m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m.kind {
	case msgNote:
		if m.begin == 1 && len(w.notes) < maxNotes && w.asked[m.pid] {
			w.notes[m.id] = note{m.pid, m.file, time.Now()}
		} else if m.begin == 0 {
			delete(w.notes, m.id)
		}
	case msgReply:
		w.stats = m
		if c := w.waiting[m.id]; c != nil {
			delete(w.waiting, m.id)
			c <- m
		}
	}
}

// active returns the files being read.
func (w *worker) active() []note {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.notes))
}

var errNoAnswer = errors.New("no answer in time")

// ask sends a request and waits for the reply.
func (w *worker) ask(q *request, limit time.Duration) (message, error) {
	c := make(chan message, 1)
	w.mu.Lock()
	w.waiting[q.id] = c
	if len(w.asked) > maxAsked {
		clear(w.asked)
	}
	w.asked[q.pid] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.waiting, q.id)
		w.mu.Unlock()
	}()
	_ = w.conn.SetWriteDeadline(time.Now().Add(limit))
	if _, err := w.conn.Write(q.encode()); err != nil {
		return message{}, fmt.Errorf("%w: %w", errGone, err)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case m := <-c:
		return m, nil
	case <-w.broken:
		return message{}, errGone
	case <-timer.C:
		return message{}, errNoAnswer
	}
}

// kill kills the processes without waiting for them.
func (w *worker) kill() {
	for _, c := range w.children {
		_ = c.proc.Kill()
	}
	if w.conn != nil {
		_ = w.conn.Close() // ends those that cannot be killed for lack of permission
	}
}

// cpu returns the CPU time of all its processes.
func (w *worker) cpu() (sum time.Duration) {
	for _, c := range w.children {
		sum += c.cpu()
	}
	return sum
}

// resident returns the memory of its largest process in bytes.
func (w *worker) resident() (most int64) {
	for _, c := range w.children {
		most = max(most, c.resident())
	}
	return most
}

// hasEnded reports whether the process is known to have ended.
func (c *child) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}
