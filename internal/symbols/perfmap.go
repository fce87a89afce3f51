package symbols

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxPerfMap is how much of a just-in-time compiler's map is read for a stack.
const maxPerfMap = 256 << 20

// resolvePerfMap names code of just-in-time compilers (Java, Node, Python …)
// that write /tmp/perf-PID.map. The map grows and changes, so it is read from
// the start for each stack, and not kept.
func (p *target) resolvePerfMap(ctx context.Context, hits []hit, addrs []uint64, out *result) {
	f, err := p.resolver.opener.PerfMap(p.pid)
	if err != nil {
		return
	}
	defer f.Close()
	file := io.NewSectionReader(contextReader{ctx, f}, 0, maxPerfMap)
	_ = scanPerfMap(file, func(start, size uint64, name []byte) {
		for _, h := range hits {
			for _, fr := range h.frames {
				if fr.at >= start && fr.at-start < size { // the last line wins: it is the newest
					out.set(fr.index, fmt.Sprintf("%s+0x%x (%s)", readable(string(name)), addrs[fr.index]-start, h.module()))
				}
			}
		}
	})
}

// scanPerfMap reads lines of "start size name", all but the name hexadecimal.
// Lines that have another form are left out.
func scanPerfMap(r io.Reader, yield func(start, size uint64, name []byte)) error {
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for scan.Scan() {
		first, rest, _ := bytes.Cut(scan.Bytes(), []byte{' '})
		second, name, ok := bytes.Cut(rest, []byte{' '})
		if !ok || len(name) == 0 {
			continue
		}
		start, err := strconv.ParseUint(strings.TrimPrefix(string(first), "0x"), 16, 64)
		if err != nil {
			continue
		}
		size, err := strconv.ParseUint(strings.TrimPrefix(string(second), "0x"), 16, 64)
		if err != nil {
			continue
		}
		yield(start, size, name)
	}
	return scan.Err()
}
