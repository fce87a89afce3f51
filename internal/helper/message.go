package helper

import (
	"math"

	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/tracker/usdt"
)

// Requests of the daemon.
const (
	reqStack   = 1 // symbolize addresses of a process; parser
	reqKernel  = 2 // source lines of kernel code offsets; parser
	reqMemory  = 3 // copy the stack of a thread; reader
	reqCmdline = 4 // command line of a process; reader

	reqFunction = 5 // offset and size of a function; parser
	reqStatic   = 6 // location of a USDT probe; parser
	reqProgram  = 7 // check that a program can be read; parser

	reqCmdlines = 8 // command lines of processes, as pairs of pid and start in addrs; reader
	reqUnwind   = 9 // unwind a stack; parser

	reqThreadLocal = 10 // a thread-local variable of a process; parser
	reqWords       = 11 // words of memory of a process, at addrs; reader
	reqContextKeys = 12 // which attributes of contexts a process has of those in path, with NULs between; reader
)

// request is a message from the daemon to a helper.
type request struct {
	kind    byte
	id      uint64
	pid     int
	start   uint64   // of the process or thread, in clock ticks since boot; 0: any
	addrs   []uint64 // addresses, offsets, or registers
	data    []byte   // of a stack
	base    uint64   // its address
	narrow  int      // 1: of a 32-bit program
	refused []fileKey
	// For programs named in rules.
	path, provider, name string
}

// fileKey identifies a file.
type fileKey struct{ dev, ino uint64 }

func (q *request) fields(c *codec) {
	number(c, &q.id, math.MaxUint64)
	number(c, &q.pid, math.MaxInt32)
	number(c, &q.start, math.MaxUint64)
	list(c, &q.addrs, maxAddrs, func(a *uint64) { number(c, a, math.MaxUint64) })
	list(c, &q.refused, maxRefused, func(f *fileKey) { f.fields(c) })
	c.bytes(&q.data, maxData)
	number(c, &q.base, math.MaxUint64)
	number(c, &q.narrow, 1)
	c.text(&q.path, maxPath)
	c.text(&q.provider, maxFrame)
	c.text(&q.name, maxFrame)
}

func (f *fileKey) fields(c *codec) {
	number(c, &f.dev, math.MaxUint64)
	number(c, &f.ino, math.MaxUint64)
}

func (q *request) encode() []byte { return encode(q.kind, q.fields) }

func decodeRequest(b []byte) (q request, err error) {
	err = decode(b, &q.kind, q.fields)
	return q, err
}

// Messages of a helper.
const (
	msgHello = 1 // ready
	msgNote  = 2 // starts or finishes work on a file
	msgReply = 3
)

// Flags of a reply.
const (
	flagLate   = 1 << iota // incomplete, out of time
	flagStuck              // something hangs: replace this helper
	flagRemote             // a file is on a network file system
	flagKnown              // the kernel's debug file exists
	flagFailed             // text has the error
	flagExact              // the thread has not run on
	flagBeyond             // more memory may give more frames
	allFlags   = 1<<iota - 1
)

// message is a message from a helper to the daemon.
type message struct {
	kind byte
	id   uint64 // of the request or note
	// Notes:
	begin int // 1: begins, 0: ends
	pid   int
	file  fileKey
	// Replies, and text for hello:
	flags   uint64
	text    string
	addrs   []uint64
	data    []byte
	places  []usdt.Place
	frames  []string
	sources []symbols.Source
	stats   symbols.Stats
}

func (m *message) encode() []byte { return encode(m.kind, m.fields) }

// decodeMessage decodes a message from a helper, which may be compromised.
func decodeMessage(b []byte) (m message, err error) {
	err = decode(b, &m.kind, m.fields)
	return m, err
}

func (m *message) fields(c *codec) {
	number(c, &m.id, math.MaxUint64)
	switch m.kind {
	case msgHello:
		c.printable(&m.text, maxText)
	case msgNote:
		number(c, &m.begin, 1)
		number(c, &m.pid, math.MaxInt32)
		m.file.fields(c)
	case msgReply:
		number(c, &m.flags, allFlags)
		c.printable(&m.text, maxText)
		list(c, &m.addrs, maxAddrs, func(a *uint64) { number(c, a, math.MaxUint64) })
		c.bytes(&m.data, maxData)
		if len(m.data) > 0 {
			m.frames, m.sources, m.places = nil, nil, nil // there is no room for both
		}
		if len(m.frames) > 0 {
			m.places = nil // there is no room for both
		}
		list(c, &m.places, usdt.MaxPlaces, func(p *usdt.Place) {
			number(c, &p.Offset, math.MaxInt64)
			number(c, &p.Semaphore, math.MaxInt64)
			c.printable(&p.Args, usdt.MaxArgsText)
		})
		begin := len(c.b)
		c.frames(&m.frames)
		c.sources(&m.sources, maxNames-(len(c.b)-begin))
		c.stats(&m.stats)
	default:
		c.fail()
	}
}

// frames writes [unknown] for frames when the space is used up.
func (c *codec) frames(frames *[]string) {
	begin := len(c.b)
	list(c, frames, maxAddrs, func(f *string) {
		if !c.reads && len(c.b)-begin+len(scrub(*f, maxFrame)) > maxNames/4*3 {
			c.text(new(frameTooLong), maxFrame)
			return
		}
		c.printable(f, maxFrame)
	})
}

// sources writes as many sources as there is room for, innermost first.
func (c *codec) sources(all *[]symbols.Source, room int) {
	least := 3 * len(*all)
	list(c, all, maxAddrs, func(s *symbols.Source) {
		if c.reads {
			c.source(s)
			return
		}
		var one codec
		if room >= least {
			one.source(s)
			room -= len(one.b)
		}
		if room < least {
			one.b, room = []byte{0, 0, 0}, 0
		}
		c.b = append(c.b, one.b...)
	})
}

func (c *codec) source(s *symbols.Source) {
	c.printable(&s.File, maxPath)
	number(c, &s.Line, math.MaxInt32)
	list(c, &s.Inlined, maxInlined, func(f *symbols.Inlined) {
		c.printable(&f.Function, maxFrame)
		c.printable(&f.File, maxPath)
		number(c, &f.Line, math.MaxInt32)
	})
}

func (c *codec) stats(s *symbols.Stats) {
	for _, n := range []*int{&s.Files, &s.Stuck, &s.Lines, &s.LinesQueued} {
		number(c, n, math.MaxInt64)
	}
	for _, n := range []*int64{&s.Bytes, &s.LineBytes} {
		number(c, n, math.MaxInt64)
	}
	for _, n := range []*uint64{&s.Evicted, &s.Timeouts, &s.LineFailed, &s.LinesRefused, &s.Remote} {
		number(c, n, math.MaxInt64)
	}
}
