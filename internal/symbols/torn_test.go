package symbols

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// mapBytes is mapFile for text that is no file.
func mapBytes(t testing.TB, text []byte) (*mapped, error) {
	t.Helper()
	if len(text) == 0 {
		return nil, errTooLarge
	}
	data, err := unix.Mmap(-1, 0, len(text), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	assert.NilError(t, err)
	copy(data, text)
	return newMapped(data)
}

// readAll looks all of a file's debug information up, within the time that a request has.
func readAll(t testing.TB, text []byte) (known int) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			// As lookIn would: what makes debug/dwarf panic is no crash.
			t.Logf("recovered: %v", p)
		}
	}()
	m, err := mapBytes(t, text)
	if err != nil {
		return 0
	}
	defer m.close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	check := func(s *Source) {
		if s == nil || !s.known() {
			return
		}
		known++
		assert.Check(t, len(s.Inlined) <= maxInlined+1 && len(s.File) <= maxPath+len(truncatedSuffix),
			"unbounded: %d inlined, file of %d bytes", len(s.Inlined), len(s.File))
		for _, f := range s.Inlined {
			wantPrintable(t, f.Function)
		}
	}
	if g, err := openGo(m); err == nil {
		for a := range uint64(64) {
			check(g.source(g.text + a*8))
		}
	}
	d, err := openDWARF(ctx, m, nil, 1<<20)
	if err != nil {
		return known
	}
	defer func() {
		n := d.bytes() + d.index.bytes()
		assert.Check(t, n <= 32<<20, "%d bytes are kept", n)
		inMemory(t)
	}()
	for i, r := range d.index.ranges {
		if i == 16 {
			break
		}
		for a := r.start; a < r.end && a-r.start < 256; a += 8 {
			s, err := d.source(ctx, a)
			if err != nil {
				return known
			}
			check(s)
		}
	}
	return known
}

// small is the bytes of a small library with debug information.
func small(t testing.TB, flags ...string) []byte {
	t.Helper()
	args := append([]string{"gcc", "-O2", "-g", "-shared", "-nostdlib", "-ffreestanding", "-fPIC", "testdata/kernel.c"}, flags...)
	text, err := os.ReadFile(build(t, "small", args...))
	assert.NilError(t, err)
	return text
}

// Each prefix of a file, and each file with some bytes overwritten, is read or refused.
func TestTornDebugInformation(t *testing.T) {
	text := small(t)
	assert.Assert(t, readAll(t, text) != 0, "nothing is known of the whole file")
	step := 97
	if testing.Short() {
		step = 997
	}
	for n := 0; n < len(text); n += step {
		readAll(t, text[:n])
		for _, b := range []byte{0xff, 0x00, 0x80} {
			broken := bytes.Clone(text)
			for i := n; i < min(n+8, len(broken)); i++ {
				broken[i] = b
			}
			readAll(t, broken)
		}
	}
}

// A file that shrinks while it is mapped faults; that is an error, and no crash.
func TestFileThatShrinks(t *testing.T) {
	path := build(t, "inlined", "gcc", "-O2", "-g", inlinedC)
	l := newLineCache(1<<20, 1)
	where := lineOrigin{file: contentID{"x", 1}, table: &table{hasLines: true}, open: func() (*mapped, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		m, err := mapFile(f)
		if err == nil {
			err = os.Truncate(path, 0)
		}
		return m, err
	}}
	got := l.get(t.Context(), where, []uint64{0x1139})
	assert.Check(t, got[0] == nil, "got %+v", got[0])
	assert.Check(t, l.failed.Load() == 1, "%d looks failed, want 1", l.failed.Load())
}

func TestDecompressionIsBounded(t *testing.T) {
	text := small(t, "-gz=zlib")
	for room, want := range map[int64]error{16: errNoRoom, 1 << 20: nil} {
		m, err := mapBytes(t, text)
		assert.NilError(t, err)
		d, err := openDWARF(t.Context(), m, nil, room)
		assert.Check(t, is.ErrorIs(err, want), "room of %d bytes", room)
		assert.Check(t, err != nil || m.extraN != 0 && m.extraN <= room && len(d.index.ranges) != 0,
			"%d bytes decompressed", m.extraN)
		m.close()
	}
}

func TestLinesAreBounded(t *testing.T) {
	l := newLineCache(1000, 1)
	for i := range uint64(2 * maxLinesKept) {
		l.keep(lineKey{addr: i}, &Source{})
	}
	n := l.known.Size()
	assert.Check(t, n <= maxLinesKept && n >= maxLinesKept/2, "%d addresses are kept", n)
	for i := range uint64(2 * lineFiles) {
		f := l.file(contentID{"x", i})
		f.size.Store(100)
		l.shrink(f)
		n := l.bytes()
		assert.Assert(t, n <= 1000, "%d bytes are open", n)
	}
	assert.Check(t, len(l.files) <= lineFiles, "%d files are kept", len(l.files))
	// One that is in use is left alone.
	l = newLineCache(1000, 1)
	used := l.file(contentID{"used", 0})
	used.size.Store(2000)
	used.busy <- struct{}{}
	other := l.file(contentID{"other", 0})
	l.shrink(other)
	assert.Check(t, l.files[contentID{"used", 0}] == used, "a file in use was dropped")
}

// When reading lines takes too long, names come without them, and have them the next time.
func TestLinesComeLater(t *testing.T) {
	path := build(t, "inlined", "gcc", "-O2", "-g", inlinedC)
	p, r := start(t, exec.Command(path), "inlined"), New(&Options{Timeout: 2 * time.Second})
	for range cap(r.lines.slots) {
		r.lines.slots <- struct{}{}
	}
	for got := ""; got != "outer"; { // the name may come late as well, where all is slow
		got = p.story(r, "inlined")
		assert.Assert(t, !strings.Contains(got, "inlined.c"), "while nobody may look: got %s", got)
	}
	s := r.Stats()
	assert.Check(t, s.LinesQueued != 0 && s.Timeouts != 0, "got %+v", s)
	for range cap(r.lines.slots) {
		<-r.lines.slots
	}
	for r.Stats().LinesQueued > 0 {
		time.Sleep(time.Millisecond)
	}
	got := p.story(r, "inlined")
	assert.Check(t, got == inlinedStory(t), "later: got %s", got)
	none := New(&Options{NoLines: true})
	got = p.story(none, "inlined")
	assert.Check(t, got == "outer", "switched off: got %s", got)
}

// After a while nothing is held open, and what was asked is still known.
func TestFilesAreLetGo(t *testing.T) {
	path := build(t, "inlined", "gcc", "-O2", "-g", "-gz=zlib", inlinedC)
	p, r := start(t, exec.Command(path), "inlined"), patient()
	want := p.story(r, "inlined")
	assert.Assert(t, r.Stats().LineBytes != 0, "nothing was decompressed")
	for _, f := range r.lines.files {
		f.last = time.Now().Add(-lineIdle)
		r.lines.closeIdle(f)
		assert.Check(t, f.data == nil && f.index != nil && f.size.Load() == f.index.bytes(), "got %+v", f)
	}
	assert.Check(t, is.Equal(p.story(r, "inlined"), want))
	// Opened again, with the index that is kept: for another address.
	s := r.User(p.pid, []uint64{p.addrs["inlined"] + 1})
	assert.Check(t, len(s.Sources) == 1 && s.Sources[0].known(), "got %+v", s)
}

func FuzzDebugInformation(f *testing.F) {
	debug.SetMemoryLimit(memoryLimit)
	limitFuzz(f)
	f.Add(tinyGo())
	for _, flags := range [][]string{{"-gdwarf-5"}, {"-gdwarf-4"}, {"-gdwarf-5", "-gz=zlib"}} {
		f.Add(small(f, flags...))
	}
	f.Fuzz(func(t *testing.T, text []byte) { readAll(t, text) })
}

func FuzzUnxz(f *testing.F) {
	limitFuzz(f)
	out := make([]byte, 1<<20)
	f.Add([]byte("\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4F\x02\x00!\x01\x16\x00\x00\x00t/\xe5\xa3\x01\x00\x01hi\x00\x00"))
	f.Fuzz(func(t *testing.T, packed []byte) {
		allocates(t, 4*maxMiniDict, func() { _, _ = unxz(packed, out) })
	})
}
