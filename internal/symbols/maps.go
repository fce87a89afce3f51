package symbols

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxMaps bounds the size of /proc/PID/maps: 65,530 mappings take 8 MB, or 270 MB with
// paths of maximum length.
const maxMaps = 32 << 20

// mapping is one line of /proc/PID/maps.
type mapping struct {
	start, end uint64 // end is exclusive
	offset     uint64 // in the file
	dev        uint64 // of the file
	inode      uint64 // 0: no file
	executable bool
	name       string // path, pseudo path such as [heap], or empty
}

// hit is a mapping and the frames in it.
type hit struct {
	mapping
	frames []frame
}

type frame struct {
	index int    // in the caller's addresses
	at    uint64 // address to look up
}

// findMappings reads maps up to the last mapping that contains one of the addresses and
// returns those that do. also, if not nil, is called for each mapping until it returns
// false.
func findMappings(maps io.Reader, at []uint64, also func(mapping) bool) ([]hit, error) {
	wanted := make([]frame, len(at))
	for i, a := range at {
		wanted[i] = frame{i, a}
	}
	slices.SortFunc(wanted, func(a, b frame) int { return cmp.Compare(a.at, b.at) })

	var hits []hit
	err := scanMaps(maps, func(m mapping) bool {
		if also != nil && !also(m) {
			also = nil
		}
		for len(wanted) > 0 && wanted[0].at < m.start {
			wanted = wanted[1:] // in no mapping
		}
		n := 0
		for n < len(wanted) && wanted[n].at < m.end {
			n++
		}
		if n > 0 {
			hits = append(hits, hit{m, wanted[:n:n]})
			wanted = wanted[n:]
		}
		return len(wanted) > 0 || also != nil
	})
	return hits, err
}

// scanMaps calls yield for each mapping in ascending order until it returns false.
func scanMaps(r io.Reader, yield func(mapping) bool) error {
	scan := bufio.NewScanner(io.LimitReader(r, maxMaps))
	scan.Buffer(make([]byte, 0, 16<<10), 64<<10) // 4,096 bytes of path, escaped
	for scan.Scan() {
		m, err := parseMapping(scan.Text())
		if err != nil {
			return err
		}
		if !yield(m) {
			return nil
		}
	}
	return scan.Err()
}

// MappingsNamed returns where the first mappings start whose names are wanted, most of them
// at most.
func MappingsNamed(maps io.Reader, most int, wanted func(name string) bool) (starts []uint64, err error) {
	err = scanMaps(maps, func(m mapping) bool {
		if wanted(m.name) {
			starts = append(starts, m.start)
		}
		return len(starts) < most
	})
	return starts, err
}

// parseMapping parses "start-end perms offset dev inode name".
func parseMapping(line string) (mapping, error) {
	bad := func(what string) (mapping, error) {
		return mapping{}, fmt.Errorf("parse %s of mapping %.80q", what, line)
	}
	rest := line
	field := func() string {
		var f string
		f, rest, _ = strings.Cut(rest, " ")
		return f
	}
	var m mapping
	var err error
	from, to, _ := strings.Cut(field(), "-")
	if m.start, err = strconv.ParseUint(from, 16, 64); err != nil {
		return bad("start")
	}
	if m.end, err = strconv.ParseUint(to, 16, 64); err != nil || m.end <= m.start {
		return bad("end")
	}
	perms := field()
	if len(perms) != 4 {
		return bad("permissions")
	}
	m.executable = perms[2] == 'x'
	if m.offset, err = strconv.ParseUint(field(), 16, 64); err != nil {
		return bad("offset")
	}
	if m.dev, err = parseDevice(field(), 16); err != nil {
		return bad("device")
	}
	if m.inode, err = strconv.ParseUint(field(), 10, 64); err != nil {
		return bad("inode")
	}
	m.name = strings.ReplaceAll(strings.TrimLeft(rest, " "), `\012`, "\n")
	return m, nil
}

// parseDevice parses "major:minor".
func parseDevice(text string, base int) (uint64, error) {
	major, minor, _ := strings.Cut(text, ":")
	maj, err := strconv.ParseUint(major, base, 32)
	min, err2 := strconv.ParseUint(minor, base, 32)
	return unix.Mkdev(uint32(maj), uint32(min)), cmp.Or(err, err2)
}

const deletedSuffix = " (deleted)"

// module returns the mapping's name for frames.
func (m mapping) module() string {
	switch {
	case m.name == "":
		return "[anon]"
	case strings.HasPrefix(m.name, "/"):
		return clean(path.Base(strings.TrimSuffix(m.name, deletedSuffix)))
	}
	return clean(m.name)
}
