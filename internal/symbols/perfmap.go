package symbols

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Limits of the maps of just-in-time compilers. A Java program of 20,000
// methods writes 2 MB, a large one of Node.js 30 MB in a day.
const (
	maxPerfMap      = 32 << 20         // bytes of a map that are read: the newest
	maxPerfMapLines = 1 << 17          // kept of one map: the newest half, at least
	maxPerfMapLine  = 4 << 10          // bytes of a line; longer ones are left out
	maxPerfMapBytes = 8 << 20          // of the lines of all maps that are kept
	maxPerfMaps     = 256              // kept
	perfMapAgain    = 10 * time.Second // a map that was rewritten is not read from its beginning again before
	perfMapTail     = 64               // bytes before the end that tell whether it is still the same map
)

// perfMaps keeps what was read of the maps of just-in-time compilers (Java,
// Node, Python …), which write /tmp/perf-PID.map, so that only what has been
// added is read for the next stack. It is safe for concurrent use.
type perfMaps struct {
	mu    sync.Mutex
	maps  map[fileKey]*perfMap
	bytes int64 // of their lines
	clock uint64
}

// fileKey is the same for all states of a file.
type fileKey struct{ dev, ino uint64 }

// perfMap is what is known of one map. Names stay in the file.
type perfMap struct {
	mu    sync.Mutex // held while it is read
	lines []perfLine // oldest first
	end   int64      // up to where it was read
	tail  []byte     // what comes before end
	torn  bool       // end is within a line
	begun time.Time  // when it was last read from its beginning
	used  uint64     // of perfMaps.clock, guarded by its lock, as is size
	size  int64
}

// perfLine takes 24 bytes.
type perfLine struct {
	start, size uint64
	at          uint64 // of the line, in the file
}

// resolvePerfMap names code of just-in-time compilers.
func (p *target) resolvePerfMap(ctx context.Context, hits []hit, addrs []uint64, out *result) {
	f, id, err := p.openPerfMap()
	if err != nil {
		return
	}
	defer f.Close()
	at := make(map[uint64]perfLine)
	for _, h := range hits {
		for _, fr := range h.frames {
			at[fr.at] = perfLine{}
		}
	}
	r := contextReader{ctx, f}
	p.resolver.perf.find(r, id, at, time.Now())
	for _, h := range hits {
		for _, fr := range h.frames {
			l := at[fr.at]
			if l.size == 0 {
				continue
			}
			if start, size, name := perfLineAt(r, l.at); start == l.start && size == l.size && name != "" {
				out.set(fr.index, fmt.Sprintf("%s+0x%x (%s)", readable(name), addrs[fr.index]-start, h.module()))
			}
		}
	}
}

// find looks addresses up in a map; what has been added to it is read before.
func (k *perfMaps) find(r io.ReaderAt, id fileID, at map[uint64]perfLine, now time.Time) {
	key := fileKey{id.dev, id.ino}
	m := k.get(key)
	m.mu.Lock()
	m.update(r, id.size, now)
	m.find(at)
	size := int64(cap(m.lines)) * 24
	m.mu.Unlock()
	k.trim(key, m, size)
}

func (k *perfMaps) get(key fileKey) *perfMap {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.maps[key]
	if m == nil {
		if k.maps == nil {
			k.maps = make(map[fileKey]*perfMap)
		}
		m = &perfMap{}
		k.maps[key] = m
	}
	k.clock++
	m.used = k.clock
	return m
}

// trim notes the size of a map, and forgets those used least recently until the
// rest is small enough.
func (k *perfMaps) trim(key fileKey, own *perfMap, size int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.maps[key] != own {
		return // forgotten meanwhile
	}
	k.bytes += size - own.size
	own.size = size
	for len(k.maps) > maxPerfMaps || k.bytes > maxPerfMapBytes {
		var oldest fileKey
		used := k.clock + 1
		for key, m := range k.maps {
			if m.used < used {
				oldest, used = key, m.used
			}
		}
		k.bytes -= k.maps[oldest].size
		delete(k.maps, oldest) // who reads it now has it that long
	}
}

// update reads what has been added. A map that was rewritten is read from its
// beginning, but not all the time: until then nothing is known of it.
func (m *perfMap) update(r io.ReaderAt, size int64, now time.Time) {
	if m.end > 0 && m.same(r, size) {
		m.from(max(m.end, size-maxPerfMap))
		m.read(r, size)
		return
	}
	m.lines, m.tail, m.end, m.torn = m.lines[:0], nil, 0, false
	if !m.begun.IsZero() && now.Sub(m.begun) < perfMapAgain {
		return
	}
	m.begun = now
	m.from(max(0, size-maxPerfMap))
	m.read(r, size)
}

// from leaves out what comes before an offset.
func (m *perfMap) from(at int64) {
	if at > m.end {
		m.end, m.torn, m.tail = at, true, nil
	}
}

// same tells whether the file still has what was read last.
func (m *perfMap) same(r io.ReaderAt, size int64) bool {
	if size < m.end {
		return false
	}
	was := make([]byte, len(m.tail))
	n, _ := r.ReadAt(was, m.end-int64(len(m.tail)))
	return bytes.Equal(was[:n], m.tail)
}

// read goes through whole lines up to the size that the file has.
func (m *perfMap) read(r io.ReaderAt, size int64) {
	const chunk = 256 << 10
	buf := make([]byte, chunk)
	for m.end < size {
		n, _ := r.ReadAt(buf[:min(chunk, size-m.end)], m.end)
		b := buf[:n]
		last := bytes.LastIndexByte(b, '\n')
		if last < 0 {
			if n < chunk {
				return // the rest of the line is not written yet
			}
			m.end, m.torn = m.end+int64(n), true // longer than any name
			m.tail = append(m.tail[:0], b[n-perfMapTail:]...)
			continue
		}
		at := 0
		if m.torn {
			at, m.torn = bytes.IndexByte(b, '\n')+1, false
		}
		for at <= last {
			line, _, _ := bytes.Cut(b[at:last+1], []byte{'\n'})
			if start, size, _, ok := parsePerfLine(line); ok && size > 0 && len(line) <= maxPerfMapLine {
				m.add(perfLine{start, size, uint64(m.end) + uint64(at)})
			}
			at += len(line) + 1
		}
		m.end += int64(last) + 1
		m.tail = append(m.tail[:0], b[max(0, last+1-perfMapTail):last+1]...)
	}
}

func (m *perfMap) add(l perfLine) {
	if len(m.lines) == maxPerfMapLines {
		m.lines = append(m.lines[:0], m.lines[maxPerfMapLines/2:]...)
	}
	m.lines = append(m.lines, l)
}

// find fills in the newest line of each address.
func (m *perfMap) find(at map[uint64]perfLine) {
	var wanted []uint64
	for a := range at {
		wanted = append(wanted, a)
	}
	slices.Sort(wanted)
	for _, l := range slices.Backward(m.lines) {
		if len(wanted) == 0 {
			return
		}
		for {
			i, _ := slices.BinarySearch(wanted, l.start)
			if i == len(wanted) || wanted[i]-l.start >= l.size {
				break
			}
			at[wanted[i]] = l
			wanted = slices.Delete(wanted, i, i+1)
		}
	}
}

// perfLineAt reads the line at an offset.
func perfLineAt(r io.ReaderAt, at uint64) (start, size uint64, name string) {
	b := make([]byte, maxPerfMapLine)
	n, _ := r.ReadAt(b, int64(at))
	line, _, _ := bytes.Cut(b[:n], []byte{'\n'})
	start, size, text, ok := parsePerfLine(line)
	if !ok {
		return 0, 0, ""
	}
	return start, size, string(text)
}

// parsePerfLine reads "start size name", all but the name hexadecimal.
func parsePerfLine(line []byte) (start, size uint64, name []byte, ok bool) {
	start, rest, ok := hexField(line)
	if !ok {
		return 0, 0, nil, false
	}
	size, name, ok = hexField(rest)
	return start, size, name, ok && len(name) > 0
}

// hexField reads a number and the space after it.
func hexField(b []byte) (n uint64, rest []byte, ok bool) {
	b = bytes.TrimPrefix(b, []byte("0x"))
	for i, c := range b {
		switch {
		case c == ' ':
			return n, b[i+1:], i > 0
		case i == 16:
			return 0, nil, false
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			n = n<<4 | uint64(c|0x20-'a'+10)
		default:
			return 0, nil, false
		}
	}
	return 0, nil, false
}
