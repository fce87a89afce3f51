package helper

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/tracker/usdt"
)

func sample() *message {
	return &message{
		kind: msgReply, id: 7, flags: flagLate | flagRemote, text: "text", addrs: []uint64{1, 1 << 63}, frames: []string{"f+0x1 (m)", "[unknown] 0x2"},
		sources: []symbols.Source{{File: "a.c", Line: 3, Inlined: []symbols.Inlined{{Function: "g", File: "b.c", Line: 4}}}, {}},
		stats:   symbols.Stats{Files: 1, Bytes: 2, Evicted: 3, Timeouts: 4, Stuck: 5, Lines: 6, LineBytes: 7, LineFailed: 8, LinesQueued: 9, Remote: 10},
	}
}

func TestMessagesComeBack(t *testing.T) {
	m := sample()
	got, err := decodeMessage(m.encode())
	diff := cmp.Diff(*m, got, cmp.AllowUnexported(message{}, fileKey{}))
	assert.Check(t, err == nil && diff == "", "%v %s", err, diff)
	m = &message{kind: msgReply, id: 8, places: []usdt.Place{{Offset: 1, Semaphore: 2, Args: "4@%eax"}}}
	got, err = decodeMessage(m.encode())
	diff = cmp.Diff(*m, got, cmp.AllowUnexported(message{}, fileKey{}))
	assert.Check(t, err == nil && diff == "", "%v %s", err, diff)
	m = &message{kind: msgReply, id: 9, flags: flagExact, data: []byte{0, 0xff}}
	got, err = decodeMessage(m.encode())
	diff = cmp.Diff(*m, got, cmp.AllowUnexported(message{}, fileKey{}))
	assert.Check(t, err == nil && diff == "", "%v %s", err, diff)
	q := request{kind: reqStack, id: 1, pid: 2, start: 3, addrs: []uint64{4}, data: []byte{9}, base: 1 << 60, narrow: 1, refused: []fileKey{{5, 6}}, path: "/p", provider: "a", name: "b"}
	back, err := decodeRequest(q.encode())
	diff = cmp.Diff(q, back, cmp.AllowUnexported(request{}, fileKey{}))
	assert.Check(t, err == nil && diff == "", "%v %s", err, diff)
	o := openRequest{kind: openMapped, pid: 1, path: "/x", list: []symbols.Mapping{{Start: 1, End: 2, Dev: 3, Inode: 4, Name: "/n"}}}
	again, err := decodeOpenRequest(o.encode())
	diff = cmp.Diff(o, again, cmp.AllowUnexported(openRequest{}))
	assert.Check(t, err == nil && diff == "", "%v %s", err, diff)
}

// Whatever a stack says, its message is bounded, and each frame is there.
func TestMessagesAreBounded(t *testing.T) {
	m := &message{kind: msgReply}
	for range maxAddrs {
		m.frames = append(m.frames, strings.Repeat("é\x1b", 4000))
		s := symbols.Source{File: strings.Repeat("/x", 4000), Line: 1 << 20}
		for range 100 {
			s.Inlined = append(s.Inlined, symbols.Inlined{Function: strings.Repeat("y", 5000), File: strings.Repeat("z\n", 5000), Line: -1})
		}
		m.sources = append(m.sources, s)
	}
	memory := *m
	memory.data = make([]byte, 1<<20)
	size := len(memory.encode())
	assert.Check(t, size <= maxMessage, "%d bytes", size)
	places := &message{kind: msgReply, text: strings.Repeat("x", 1<<20)}
	for range 2 * usdt.MaxPlaces {
		places.places = append(places.places, usdt.Place{Offset: math.MaxInt64, Semaphore: math.MaxInt64, Args: strings.Repeat("\x1b", 4000)})
	}
	b := places.encode()
	back, err := decodeMessage(b)
	assert.Check(t, err == nil && len(b) <= maxMessage && len(back.places) == usdt.MaxPlaces,
		"%d places in %d bytes, %v", len(back.places), len(b), err)
	b = m.encode()
	assert.Assert(t, len(b) <= maxMessage, "%d bytes", len(b))
	got, err := decodeMessage(b)
	assert.Check(t, err == nil && len(got.frames) == maxAddrs && len(got.sources) == maxAddrs,
		"%d frames, %d sources, %v", len(got.frames), len(got.sources), err)
}

func TestHostileMessages(t *testing.T) {
	good := sample().encode()
	for i := range good {
		_, err := decodeMessage(good[:i])
		assert.Check(t, err != nil, "the first %d bytes are taken for a message", i)
	}
	for name, b := range map[string][]byte{
		"more than there is": append(good, 0),
		"another kind":       {9, 0},
		"escape":             {msgHello, 0, 1, 0x1b},
		"many frames":        {msgReply, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f},
	} {
		_, err := decodeMessage(b)
		assert.Check(t, err != nil, "%s: is taken for a message", name)
	}
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add(sample().encode())
	f.Add((&message{kind: msgReply, places: []usdt.Place{{Offset: 1, Semaphore: 2, Args: "4@%eax"}}}).encode())
	f.Add((&message{kind: msgNote, begin: 1, pid: 1, file: fileKey{2, 3}}).encode())
	f.Add((&message{kind: msgHello, text: "x"}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		for _, s := range append(m.frames, m.text) {
			assert.Check(t, isPrintable(s), "%q went through", s)
		}
		for _, p := range m.places {
			assert.Check(t, isPrintable(p.Args) && len(p.Args) <= usdt.MaxArgsText &&
				len(m.places) <= usdt.MaxPlaces, "%+v went through", p)
		}
		_, err = decodeMessage(m.encode())
		assert.Check(t, err, "what was decoded cannot be said again")
	})
}
