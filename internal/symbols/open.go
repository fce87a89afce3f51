package symbols

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Opener opens files for a Resolver. In a helper, which may not open files, it asks
// another process.
type Opener interface {
	// Maps opens /proc/PID/maps.
	Maps(pid int) (*os.File, error)
	// Mapped opens the files of mappings, one result each.
	Mapped(pid int, list []Mapping) []Opened
	// InRoot opens a program, library or debug file in the root directory of a process.
	InRoot(pid int, path string) (*os.File, error)
	// Host is InRoot for tailcam's own root directory.
	Host(path string) (*os.File, error)
	// PerfMap opens the perf map written by a just-in-time compiler.
	PerfMap(pid int) (*os.File, error)
}

// Mapping is a mapped file of a process.
type Mapping struct {
	Start, End uint64
	Dev, Inode uint64
	Name       string // as in /proc/PID/maps
}

// Opened is a file or an error.
type Opened struct {
	File *os.File
	Err  error
}

// ErrRemote means that a file was not opened because its file system, such as NFS or
// FUSE, may hang.
var ErrRemote = errors.New("on a file system that may hang")

// ErrNotProgram means that a file is not an ELF program or library.
var ErrNotProgram = errors.New("neither a program nor a library nor a debug file")

var errNotRegular = fmt.Errorf("not a regular file: %w", ErrNotProgram)

// OpenerOptions configures Files. Zero values mean defaults.
type OpenerOptions struct {
	Proc  string // mount point of procfs; default /proc
	Local bool   // return ErrRemote for file systems that may hang
}

// Files opens files in the calling process. It is safe for concurrent use.
type Files struct {
	opts OpenerOptions
	own  ownMounts
}

// NewOpener returns an opener. opts may be nil.
func NewOpener(opts *OpenerOptions) *Files {
	var o OpenerOptions
	if opts != nil {
		o = *opts
	}
	o.Proc = cmp.Or(o.Proc, "/proc")
	return &Files{opts: o}
}

func (f *Files) dir(pid int) string { return filepath.Join(f.opts.Proc, strconv.Itoa(pid)) }

// Maps implements Opener.
func (f *Files) Maps(pid int) (*os.File, error) {
	return os.Open(filepath.Join(f.dir(pid), "maps"))
}

// Mapped implements Opener. With CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN it opens the
// mapped inode, even if deleted or replaced, otherwise the path in the root directory
// of the process.
func (f *Files) Mapped(pid int, list []Mapping) []Opened {
	out := make([]Opened, len(list))
	v := f.view(pid)
	for i, m := range list {
		out[i].File, out[i].Err = f.mapped(v, m)
	}
	return out
}

func (f *Files) mapped(v *view, m Mapping) (*os.File, error) {
	if f.opts.Local && !v.localDevice(m.Dev) {
		return nil, ErrRemote
	}
	link := filepath.Join(v.dir, "map_files", fmt.Sprintf("%x-%x", m.Start, m.End))
	fd, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		if strings.HasSuffix(m.Name, deletedSuffix) {
			return nil, err // replaced by another file
		}
		fd, err = v.open(m.Name, 0)
	}
	if err != nil {
		return nil, err
	}
	file, err := programFile(fd)
	if err != nil {
		return nil, err
	}
	id, err := identify(file)
	if err == nil {
		err = sameFile(file, id, m.Dev, m.Inode)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// InRoot implements Opener.
func (f *Files) InRoot(pid int, path string) (*os.File, error) {
	fd, err := f.view(pid).open(path, 0)
	if err != nil {
		return nil, err
	}
	return programFile(fd)
}

// Host implements Opener.
func (f *Files) Host(path string) (*os.File, error) { return f.InRoot(0, path) }

// PerfMap implements Opener. The file is named after the pid in the process's own
// namespace. Like perf, it accepts only files owned by the process's user or by root.
func (f *Files) PerfMap(pid int) (*os.File, error) {
	uid, inner, err := f.status(pid)
	if err != nil {
		return nil, err
	}
	// Not through symlinks, which could lead to any file of root's.
	fd, err := f.view(pid).open(fmt.Sprintf("/tmp/perf-%d.map", inner), unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = trustedPerfMap(uid, &st)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return reopen(fd)
}

// trustedPerfMap checks the owner of a perf map.
func trustedPerfMap(uid uint32, st *unix.Stat_t) error {
	switch {
	case st.Uid != uid && st.Uid != 0:
		return fmt.Errorf("perf map belongs to user %d, not to %d", st.Uid, uid)
	case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&unix.S_IWOTH != 0:
		return fmt.Errorf("perf map of user %d is world-writable", st.Uid)
	}
	return nil
}

// status reads the effective uid, and the pid in the process's own namespace.
func (f *Files) status(pid int) (uid uint32, inner int, err error) {
	text, err := os.ReadFile(filepath.Join(f.dir(pid), "status"))
	if err != nil {
		return 0, 0, err
	}
	inner = pid
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

// reopen makes an O_PATH descriptor readable and closes it. It accepts regular files
// only, as opening devices or pipes has side effects.
func reopen(fd int) (*os.File, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errNotRegular
	}
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

// programFile is reopen for ELF programs and libraries. Other files are not handed to a
// parser, which may be compromised.
func programFile(fd int) (*os.File, error) {
	f, err := reopen(fd)
	if err != nil {
		return nil, err
	}
	var head [20]byte // magic, byte order, type and machine
	if _, err := f.ReadAt(head[:], 0); err != nil {
		f.Close()
		if errors.Is(err, io.EOF) {
			err = ErrNotProgram
		}
		return nil, err
	}
	const relocatable, shared = 1, 3 // ET_REL (of dwz), ET_EXEC, ET_DYN; not ET_CORE, which contains memory
	kind := uint16(head[16]) | uint16(head[17])<<8
	if head[5] == 2 { // ELFDATA2MSB
		kind = uint16(head[17]) | uint16(head[16])<<8
	}
	if !bytes.HasPrefix(head[:], []byte("\x7fELF")) || (kind < relocatable || kind > shared) {
		f.Close()
		return nil, ErrNotProgram
	}
	return f, nil
}

// identify returns the identity and state of a file.
func identify(f *os.File) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fileID{}, err
	}
	return fileID{st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, nil
}
