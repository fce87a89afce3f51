package linux

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is a line of /proc/PID/mountinfo (proc(5)). Whoever may mount chooses most of it,
// in a user namespace of its own anybody.
type Mount struct {
	ID      uint64
	Dev     uint64 // as in unix.Mkdev
	Root    string // of what is mounted, in its file system
	Point   string // relative to the root of the process
	Type    string // of the file system
	Options string // of the file system, separated by commas; escaped as they are in the file
}

// Bounds of a table: a hundred thousand mounts.
const (
	maxMounts    = 16 << 20 // bytes
	maxMountLine = 1 << 20
)

// Mounts calls visit for each mount of a table, in its order: later ones cover earlier
// ones. Lines that make no sense are left out; an error is one of reading, or a line of
// more than 1 MiB. What follows the first 16 MiB is not read. visit must not keep the Mount.
func Mounts(r io.Reader, visit func(m *Mount)) error {
	scan := bufio.NewScanner(io.LimitReader(r, maxMounts))
	scan.Buffer(make([]byte, 0, 16<<10), maxMountLine)
	for scan.Scan() {
		if m, ok := parseMount(scan.Text()); ok {
			visit(&m)
		}
	}
	return scan.Err()
}

// MountsOf is Mounts for a file, such as /proc/self/mountinfo.
func MountsOf(path string, visit func(m *Mount)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return Mounts(f, visit)
}

// parseMount reads: id parent major:minor root point options tags… - type source options.
func parseMount(line string) (m Mount, ok bool) {
	before, after, ok := strings.Cut(line, " - ")
	fields, super := strings.SplitN(before, " ", 6), strings.SplitN(after, " ", 3)
	if !ok || len(fields) < 5 {
		return m, false
	}
	major, minor, _ := strings.Cut(fields[2], ":")
	id, bad := strconv.ParseUint(fields[0], 10, 64)
	high, worse := strconv.ParseUint(major, 10, 32)
	low, worst := strconv.ParseUint(minor, 10, 32)
	if bad != nil || worse != nil || worst != nil {
		return m, false
	}
	m = Mount{ID: id, Dev: unix.Mkdev(uint32(high), uint32(low)), Root: unescapeMount(fields[3]), Point: unescapeMount(fields[4]), Type: super[0]}
	if len(super) == 3 {
		m.Options = super[2]
	}
	return m, true
}

// unescapeMount decodes what the kernel escapes (show_mountinfo in fs/proc_namespace.c).
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(s)
}
