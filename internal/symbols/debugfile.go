package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path"
	"strings"
)

const (
	debugDir     = "/usr/lib/debug"
	maxDebugLink = 4096
	maxCRC       = 256 << 20 // size limit of files with checksums
)

// debugRef is a file's reference to its separate debug file.
type debugRef struct {
	buildID string // in hex
	link    string // name in .gnu_debuglink
	crc     uint32
}

// debugPath is a file with debug information.
type debugPath struct {
	path   string
	inRoot bool // in the process's root directory
}

// opener opens files in the root directory of the process and in tailcam's.
type opener interface {
	inRoot(path string) (*os.File, error)
	host(path string) (*os.File, error)
}

func (p debugPath) open(o opener) (*os.File, error) {
	if p.inRoot {
		return o.inRoot(p.path)
	}
	return o.host(p.path)
}

// debugLink reads .gnu_debuglink: file name and checksum.
func debugLink(f *elf.File, r io.ReaderAt) (name string, crc uint32) {
	b, err := sectionData(f, r, ".gnu_debuglink", elf.SHT_PROGBITS, maxDebugLink)
	if err != nil {
		return "", 0
	}
	end := bytes.IndexByte(b, 0)
	at := (end + 4) &^ 3
	if end <= 0 || at+4 > len(b) || bytes.IndexByte(b[:end], '/') >= 0 {
		return "", 0
	}
	return string(b[:end]), f.ByteOrder.Uint32(b[at:])
}

// candidates returns the paths of the debug file in gdb's order: by build-id, then by
// name next to the file, in .debug, and in /usr/lib/debug.
func (d debugRef) candidates(file string) []string {
	var out []string
	if len(d.buildID) > 2 {
		out = append(out, debugDir+"/.build-id/"+d.buildID[:2]+"/"+d.buildID[2:]+".debug")
	}
	if d.link != "" && strings.HasPrefix(file, "/") {
		dir := path.Dir(file)
		out = append(out, path.Join(dir, d.link), path.Join(dir, ".debug", d.link), path.Join(debugDir, dir, d.link))
		if usr, ok := strings.CutPrefix(dir, "/usr/"); ok { // /lib may be a symlink to /usr/lib
			out = append(out, path.Join(debugDir, usr, d.link))
		}
	}
	return out
}

var errOtherFile = errors.New("belongs to another file")

// locate finds the debug file in the process's root directory, or else in tailcam's, as
// debug packages of the host also serve containers. Files with another build-id or
// checksum are skipped.
func (d debugRef) locate(o opener, file string) (debugPath, bool) {
	for _, inRoot := range []bool{true, false} {
		for _, p := range d.candidates(file) {
			if p == file {
				continue
			}
			at := debugPath{p, inRoot}
			f, err := at.open(o)
			if err != nil {
				continue
			}
			err = d.matches(f)
			f.Close()
			if err == nil {
				return at, true
			}
		}
	}
	return debugPath{}, false
}

// matches checks the build-id or checksum of a debug file.
func (d debugRef) matches(f *os.File) error {
	e, err := newELF(f)
	if err != nil {
		return err
	}
	if d.buildID != "" {
		if buildID(e, f) != d.buildID && sectionBuildID(e, f) != d.buildID {
			return errOtherFile
		}
		return nil
	}
	// Checksum of the whole file.
	if st, err := f.Stat(); err != nil || st.Size() > maxCRC {
		return errTooLarge
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, maxCRC)); err != nil {
		return err
	}
	if sum.Sum32() != d.crc {
		return errOtherFile
	}
	return nil
}

// sectionBuildID returns the build-id of a debug file, whose segments are empty.
func sectionBuildID(f *elf.File, r io.ReaderAt) string {
	notes, err := sectionData(f, r, ".note.gnu.build-id", elf.SHT_NOTE, maxNotes)
	if err != nil {
		return ""
	}
	return noteBuildID(notes, f.ByteOrder)
}

// altLink reads .gnu_debugaltlink: name and build-id of the file shared by dwz(1).
func altLink(m *mapped) (name string, id string) {
	b, err := m.section(".gnu_debugaltlink", 0)
	if err != nil || len(b) > maxDebugLink {
		return "", ""
	}
	end := bytes.IndexByte(b, 0)
	if end <= 0 || len(b)-end-1 < 2 || len(b)-end-1 > 64 {
		return "", ""
	}
	return string(b[:end]), hex.EncodeToString(b[end+1:])
}
