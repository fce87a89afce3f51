package helper

import (
	"fmt"
	"math"

	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/tracker/usdt"
)

// Requests of the daemon.
const (
	reqStack   = 1 // symbolize addresses of a process; parser
	reqKernel  = 2 // source lines of kernel code offsets; parser
	reqMemory  = 3 // unwind the stack of a blocked thread; reader
	reqCmdline = 4 // command line of a process; reader

	reqFunction = 5 // offset and size of a function; parser
	reqStatic   = 6 // location of a USDT probe; parser
	reqProgram  = 7 // check that a program can be read; parser

	reqCmdlines = 8 // command lines of processes, as pairs of pid and start in addrs; reader
)

// request is a message from the daemon to a helper.
type request struct {
	kind    byte
	id      uint64
	pid     int
	start   uint64   // of the process, in clock ticks since boot; 0: any
	addrs   []uint64 // addresses, offsets, or ip, sp, fp
	refused []fileKey
	// For programs named in rules.
	path, provider, name string
}

// fileKey identifies a file.
type fileKey struct{ dev, ino uint64 }

func (q *request) encode() []byte {
	w := writer{q.kind}
	w.number(q.id)
	w.number(uint64(q.pid))
	w.number(q.start)
	w.number(uint64(len(q.addrs)))
	for _, a := range q.addrs {
		w.number(a)
	}
	w.number(uint64(len(q.refused)))
	for _, f := range q.refused {
		w.number(f.dev)
		w.number(f.ino)
	}
	w.text(q.path)
	w.text(q.provider)
	w.text(q.name)
	return w
}

func decodeRequest(b []byte) (q request, err error) {
	if len(b) == 0 {
		return q, errMessage
	}
	q.kind = b[0]
	r := &reader{left: b[1:]}
	q.id, q.pid, q.start = r.number(math.MaxUint64), int(r.number(math.MaxInt32)), r.number(math.MaxUint64)
	q.addrs = make([]uint64, r.count(maxAddrs))
	for i := range q.addrs {
		q.addrs[i] = r.number(math.MaxUint64)
	}
	q.refused = make([]fileKey, r.count(maxRefused))
	for i := range q.refused {
		q.refused[i] = fileKey{r.number(math.MaxUint64), r.number(math.MaxUint64)}
	}
	q.path, q.provider, q.name = r.text(maxPath), r.text(maxFrame), r.text(maxFrame)
	return q, r.done()
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
	allFlags   = 1<<iota - 1
)

// message is a message from a helper to the daemon.
type message struct {
	kind byte
	id   uint64 // of the request or note
	// Notes:
	begin bool
	pid   int
	file  fileKey
	// Replies, and text for hello:
	flags   uint64
	text    string
	addrs   []uint64
	places  []usdt.Place
	frames  []string
	sources []symbols.Source
	stats   symbols.Stats
}

func (m *message) encode() []byte {
	w := writer{m.kind}
	w.number(m.id)
	switch m.kind {
	case msgHello:
		w.text(scrub(m.text, maxText))
	case msgNote:
		begin := uint64(0)
		if m.begin {
			begin = 1
		}
		for _, n := range []uint64{begin, uint64(m.pid), m.file.dev, m.file.ino} {
			w.number(n)
		}
	case msgReply:
		w.number(m.flags)
		w.text(scrub(m.text, maxText))
		w.number(uint64(len(m.addrs)))
		for _, a := range m.addrs {
			w.number(a)
		}
		if len(m.frames) > 0 {
			m.places = nil // there is no room for both
		}
		w.places(m.places)
		room := maxNames - w.frames(m.frames)
		w.sources(m.sources, room)
		w.stats(&m.stats)
	}
	return w
}

// frames writes frames, or [unknown] when the space is used up, and returns the size.
func (w *writer) frames(frames []string) int {
	begin := len(*w)
	w.number(uint64(len(frames)))
	for _, f := range frames {
		f = scrub(f, maxFrame)
		if len(*w)-begin+len(f) > maxNames/4*3 {
			f = "[unknown]"
		}
		w.text(f)
	}
	return len(*w) - begin
}

// sources writes as many sources as fit, innermost first.
func (w *writer) sources(list []symbols.Source, room int) {
	w.number(uint64(len(list)))
	for i := range list {
		if room < 3*len(list) {
			*w = append(*w, 0, 0, 0)
			continue
		}
		var one writer
		s := &list[i]
		n := min(len(s.Inlined), maxInlined)
		one.text(scrub(s.File, maxPath))
		one.number(uint64(max(s.Line, 0)))
		one.number(uint64(n))
		for _, f := range s.Inlined[:n] {
			one.text(scrub(f.Function, maxFrame))
			one.text(scrub(f.File, maxPath))
			one.number(uint64(max(f.Line, 0)))
		}
		if room -= len(one); room < 3*len(list) {
			one, room = writer{0, 0, 0}, 0
		}
		*w = append(*w, one...)
	}
}

func (w *writer) stats(s *symbols.Stats) {
	for _, n := range []uint64{
		uint64(s.Files), uint64(s.Bytes), s.Evicted, s.Timeouts, uint64(s.Stuck),
		uint64(s.Lines), uint64(s.LineBytes), s.LineFailed, s.LinesRefused, uint64(s.LinesQueued), s.Remote,
	} {
		w.number(n)
	}
}

// decodeMessage decodes a message from a helper, which may be compromised.
func decodeMessage(b []byte) (m message, err error) {
	if len(b) == 0 {
		return m, errMessage
	}
	m.kind = b[0]
	r := &reader{left: b[1:]}
	m.id = r.number(math.MaxUint64)
	switch m.kind {
	case msgHello:
		m.text = r.printable(maxText)
	case msgNote:
		m.begin = r.number(1) == 1
		m.pid = int(r.number(math.MaxInt32))
		m.file = fileKey{r.number(math.MaxUint64), r.number(math.MaxUint64)}
	case msgReply:
		m.flags = r.number(allFlags)
		m.text = r.printable(maxText)
		m.addrs = make([]uint64, r.count(maxAddrs))
		for i := range m.addrs {
			m.addrs[i] = r.number(math.MaxUint64)
		}
		m.places = r.places()
		m.frames = make([]string, r.count(maxAddrs))
		for i := range m.frames {
			m.frames[i] = r.printable(maxFrame)
		}
		m.sources = r.sources()
		m.stats = r.stats()
	default:
		return m, fmt.Errorf("%w of kind %d", errMessage, m.kind)
	}
	return m, r.done()
}

func (w *writer) places(list []usdt.Place) {
	list = list[:min(len(list), usdt.MaxPlaces)]
	w.number(uint64(len(list)))
	for _, p := range list {
		w.number(p.Offset)
		w.number(p.Semaphore)
		w.text(scrub(p.Args, usdt.MaxArgsText))
	}
}

func (r *reader) places() (list []usdt.Place) {
	for range r.count(usdt.MaxPlaces) {
		list = append(list, usdt.Place{
			Offset: r.number(math.MaxInt64), Semaphore: r.number(math.MaxInt64), Args: r.printable(usdt.MaxArgsText),
		})
	}
	return list
}

func (r *reader) sources() []symbols.Source {
	n := r.count(maxAddrs)
	if n == 0 {
		return nil
	}
	out := make([]symbols.Source, n)
	for i := range out {
		s := &out[i]
		s.File, s.Line = r.printable(maxPath), int(r.number(math.MaxInt32))
		for range r.count(maxInlined) {
			s.Inlined = append(s.Inlined, symbols.Inlined{
				Function: r.printable(maxFrame), File: r.printable(maxPath), Line: int(r.number(math.MaxInt32)),
			})
		}
	}
	return out
}

func (r *reader) stats() (s symbols.Stats) {
	n := func() uint64 { return r.number(math.MaxInt64) }
	s.Files, s.Bytes, s.Evicted, s.Timeouts, s.Stuck = int(n()), int64(n()), n(), n(), int(n())
	s.Lines, s.LineBytes, s.LineFailed, s.LinesRefused, s.LinesQueued, s.Remote = int(n()), int64(n()), n(), n(), int(n()), n()
	return s
}
