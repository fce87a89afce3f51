package symbols

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// target is the process whose addresses are looked up, for one call.
type target struct {
	dir      string // /proc/PID
	pid      int
	resolver *Resolver
}

// resolve writes the frames that lie in one mapping.
func (p *target) resolve(ctx context.Context, h hit, addrs []uint64, out []string) {
	for _, f := range h.frames {
		// Until something better is known: the offset in the file, or in the mapping.
		out[f.index] = fmt.Sprintf("[unknown] (%s+0x%x)", h.module(), addrs[f.index]-h.start+h.offset)
	}
	switch {
	case h.name == "[vdso]":
		p.resolver.vdso.resolve(h, addrs, out)
	case strings.HasPrefix(h.name, "[") || h.inode == 0 && !strings.HasPrefix(h.name, "/"):
		if h.executable {
			p.resolvePerfMap(ctx, h, addrs, out)
		}
	default:
		p.resolveFile(ctx, h, addrs, out)
	}
}

func (p *target) resolveFile(ctx context.Context, h hit, addrs []uint64, out []string) {
	f, id, err := p.openMapped(h.mapping)
	if err != nil {
		return
	}
	defer f.Close()
	r := contextReader{ctx, f}
	t, err := p.resolver.cache.get(ctx, id, func() (*table, error) {
		return readTable(f, p.resolver.opts.MaxSymbols)
	})
	if err != nil {
		return
	}
	for _, fr := range h.frames {
		if ctx.Err() != nil {
			return
		}
		t.describe(r, fr, h.mapping, addrs, out)
	}
}

// describe writes one frame that lies in mapping m of the table's file.
func (t *table) describe(file readerAt, f frame, m mapping, addrs []uint64, out []string) {
	at, ok := t.address(f.at - m.start + m.offset)
	if !ok {
		return
	}
	printed := at + (addrs[f.index] - f.at) // the return address itself
	if name, start, ok := t.find(at, file); ok {
		out[f.index] = fmt.Sprintf("%s+0x%x (%s)", readable(name), printed-start, m.module())
		return
	}
	out[f.index] = fmt.Sprintf("[unknown] (%s+0x%x)", m.module(), printed)
}

var errNotRegular = errors.New("not a regular file")

// openMapped opens the file behind a mapping: the very inode where that is
// permitted (CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN), which also serves
// deleted and replaced files, else by its path as the process sees it.
func (p *target) openMapped(m mapping) (*os.File, fileID, error) {
	link := filepath.Join(p.dir, "map_files", fmt.Sprintf("%x-%x", m.start, m.end))
	fd, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		if strings.HasSuffix(m.name, deletedSuffix) {
			return nil, fileID{}, err // what lies there now is another file
		}
		fd, err = p.openInRoot(m.name)
	}
	if err != nil {
		return nil, fileID{}, err
	}
	return reopen(fd)
}

// openInRoot returns an O_PATH descriptor of a path in the process's own root:
// links in it, which may be hostile, do not lead out.
func (p *target) openInRoot(path string) (int, error) {
	root, err := unix.Open(filepath.Join(p.dir, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	return unix.Openat2(root, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// reopen makes an O_PATH descriptor readable, and closes it. Only regular
// files: opening a device or a pipe has effects.
func reopen(fd int) (*os.File, fileID, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fileID{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fileID{}, errNotRegular
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fileID{}, err
	}
	return f, fileID{st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, nil
}

type readerAt interface {
	ReadAt(p []byte, off int64) (int, error)
}

// contextReader stops reading when nobody waits any more.
type contextReader struct {
	ctx context.Context
	r   readerAt
}

func (c contextReader) ReadAt(p []byte, off int64) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.ReadAt(p, off)
}
