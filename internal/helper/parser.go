package helper

import (
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/internal/unwind"
)

const (
	parseTime  = 800 * time.Millisecond // per stack; the rest continues in the background
	openerTime = 3 * time.Second        // after which the opener counts as hung
)

// Exit statuses of a parser.
const (
	exitBroken = 1
	exitOpener = 3 // opener hung
)

// parser serves requests of the daemon.
type parser struct {
	conn     *net.UnixConn
	resolver *symbols.Resolver
	refused  atomic.Pointer[[]fileKey]
	notes    atomic.Uint64

	mu     sync.Mutex
	active map[uint64]bool // notes of work that continues in the background
}

// newParser opens what must be opened before entering the sandbox.
func newParser(conn, opener *net.UnixConn, o role) *parser {
	p := &parser{conn: conn, active: map[uint64]bool{}}
	p.resolver = symbols.New(&symbols.Options{
		NoLines: !o.lines, MaxBytes: o.memory / 4, MaxLineBytes: o.memory / 4, Timeout: parseTime, Concurrent: 2,
		MaxFiles: 512, MaxSymbols: int(min(o.memory/64, 2<<20)),
		Opener: newOpenerClient(opener, func() { os.Exit(exitOpener) }), Refuse: p.refuses, Working: p.beginNote,
	})
	p.resolver.Prepare()
	return p
}

func (p *parser) refuses(dev, ino uint64) bool {
	list := p.refused.Load()
	return list != nil && slices.Contains(*list, (fileKey{dev, ino}))
}

// beginNote tells the daemon which file is being read, in case this process dies from
// it. Notes are dropped while the daemon is busy.
func (p *parser) beginNote(pid int, dev, ino uint64) func() {
	id := p.notes.Add(1)
	p.mu.Lock()
	p.active[id] = true
	p.mu.Unlock()
	p.note(message{kind: msgNote, id: id, begin: 1, pid: pid, file: fileKey{dev, ino}})
	return func() { p.endNote(id) }
}

func (p *parser) endNote(id uint64) {
	p.mu.Lock()
	was := p.active[id]
	delete(p.active, id)
	p.mu.Unlock()
	if was {
		p.note(message{kind: msgNote, id: id})
	}
}

func (p *parser) note(m message) {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return // it is closed
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.Sendmsg(int(fd), m.encode(), nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	})
}

// finishNotes ends the notes of background work once there is none.
func (p *parser) finishNotes() {
	if p.resolver.Stats().LinesQueued > 0 {
		return
	}
	p.mu.Lock()
	over := slices.Collect(maps.Keys(p.active))
	p.mu.Unlock()
	for _, id := range over {
		p.endNote(id)
	}
}

// serve answers requests in order until the daemon closes the socket.
func (p *parser) serve(hello string) error {
	if _, err := p.conn.Write((&message{kind: msgHello, text: hello}).encode()); err != nil {
		return err
	}
	requests := make(chan request)
	var answering atomic.Bool
	idle := newRest(restAfter, func() bool { return answering.Load() || p.resolver.Stats().LinesQueued > 0 })
	go func() {
		buf := make([]byte, maxMessage)
		for {
			n, err := p.conn.Read(buf)
			if err != nil {
				os.Exit(0) // the daemon has exited
			}
			idle.work()
			q, err := decodeRequest(buf[:n])
			if err != nil {
				os.Exit(exitBroken)
			}
			answering.Store(true)
			requests <- q
		}
	}()
	for q := range requests {
		m := p.answer(q)
		answering.Store(false)
		if _, err := p.conn.Write(m.encode()); err != nil {
			return err
		}
		if p.resolver.Stats().LinesQueued > 0 {
			go p.finishNotesLater()
		}
	}
	return nil
}

func (p *parser) finishNotesLater() {
	for p.resolver.Stats().LinesQueued > 0 {
		time.Sleep(50 * time.Millisecond)
	}
	p.finishNotes()
}

func (p *parser) answer(q request) *message {
	m := &message{kind: msgReply, id: q.id}
	before := p.resolver.Stats()
	p.refused.Store(&q.refused)
	switch q.kind {
	case reqStack:
		s := p.resolver.User(q.pid, q.addrs)
		m.frames, m.sources = s.Frames, s.Sources
	case reqUnwind:
		p.unwind(&q, m)
	case reqThreadLocal:
		p.threadLocal(&q, m)
	case reqKernel:
		var known bool
		if m.sources, known = p.resolver.KernelLines(q.addrs); known {
			m.flags |= flagKnown
		}
	case reqFunction, reqStatic, reqProgram:
		p.program(&q, m)
	default:
		m.flags |= flagFailed
	}
	m.stats = p.resolver.Stats()
	if m.stats.Timeouts > before.Timeouts {
		m.flags |= flagLate
	}
	if m.stats.Remote > before.Remote {
		m.flags |= flagRemote
	}
	if m.stats.Stuck > 0 {
		m.flags |= flagStuck
	}
	return m
}

// unwind walks a stack.
func (p *parser) unwind(q *request, m *message) {
	t := unwind.NewThread(unwind.Native, q.addrs, q.narrow == 1, unwind.Memory{Base: q.base, Data: q.data})
	out, err := p.resolver.Unwind(q.pid, t)
	m.addrs = out.Frames
	if out.Beyond {
		m.flags |= flagBeyond
	}
	if errors.Is(err, symbols.ErrRemote) {
		m.flags |= flagRemote
	}
	if err != nil && !out.Whole {
		m.text = err.Error()
	}
}

// program answers questions about a program named in a rule.
func (p *parser) program(q *request, m *message) {
	var err error
	switch q.kind {
	case reqFunction:
		m.addrs = make([]uint64, 2)
		m.addrs[0], m.addrs[1], err = p.resolver.Function(q.path, q.name)
	case reqStatic:
		m.places, err = p.resolver.Static(q.path, q.provider, q.name)
	default:
		err = p.resolver.Answers(q.path)
	}
	switch {
	case errors.Is(err, symbols.ErrRemote):
		m.flags |= flagRemote | flagFailed
	case err != nil:
		m.flags |= flagFailed
	}
	if err != nil {
		m.text, m.addrs, m.places = err.Error(), nil, nil
	}
}
