package symbols

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPerfMap is how much of a just-in-time compiler's map is read for a stack.
const maxPerfMap = 256 << 20

// resolvePerfMap names code of just-in-time compilers (Java, Node, Python …)
// that write /tmp/perf-PID.map. The map grows and changes, so it is read from
// the start for each stack, and not kept.
func (p *target) resolvePerfMap(ctx context.Context, hits []hit, addrs []uint64, out *result) {
	f, err := p.openPerfMap()
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

// openPerfMap opens the map under the name that the process knows itself by.
// Like perf it trusts only maps that belong to the process's user or to root.
func (p *target) openPerfMap() (*os.File, error) {
	uid, inner, err := p.status()
	if err != nil {
		return nil, err
	}
	fd, err := p.openInRoot(fmt.Sprintf("/tmp/perf-%d.map", inner))
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Uid != uid && st.Uid != 0 {
		unix.Close(fd)
		return nil, fmt.Errorf("perf map belongs to user %d, not to %d", st.Uid, uid)
	}
	f, _, err := reopen(fd)
	return f, err
}

// status reads the effective user, and the process id in its own namespace.
func (p *target) status() (uid uint32, inner int, err error) {
	text, err := os.ReadFile(filepath.Join(p.dir, "status"))
	if err != nil {
		return 0, 0, err
	}
	inner = p.pid
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case name == "Uid" && len(fields) == 4:
			n, err := strconv.ParseUint(fields[1], 10, 32)
			if err != nil {
				return 0, 0, err
			}
			uid = uint32(n)
		case name == "NStgid" && len(fields) > 0:
			if inner, err = strconv.Atoi(fields[len(fields)-1]); err != nil {
				return 0, 0, err
			}
		}
	}
	return uid, inner, nil
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
