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
	gone     map[uint64]fileID // files by start of their mapping, of a process that has ended
	ended    bool
	wanted   map[*table]*lineWant
}

// lineWant are addresses of one file whose source is wanted.
type lineWant struct {
	m     mapping
	addrs []uint64
	at    []int // index of each in the stack
}

// resolve names all that lies in the mappings. All files are opened first: the
// process may end any time.
func (p *target) resolve(ctx context.Context, hits []hit, addrs []uint64, out *result) {
	files := make([]mappedFile, len(hits))
	for i, h := range hits {
		for _, f := range h.frames {
			// Until something better is known: the offset in the file, or in the mapping.
			out.set(f.index, fmt.Sprintf("[unknown] (%s+0x%x)", h.module(), addrs[f.index]-h.start+h.offset))
		}
		if h.isFile() {
			files[i] = p.open(h.mapping)
		}
	}
	defer func() {
		for _, f := range files {
			f.file.Close() // nil is fine
		}
	}()
	var compiled []hit // code that a compiler wrote at run time
	for i, h := range hits {
		if ctx.Err() != nil {
			return
		}
		switch {
		case h.name == "[vdso]":
			p.resolver.vdso.resolve(h, addrs, out)
		case h.isFile():
			p.resolveFile(ctx, files[i], h, addrs, out)
		case h.executable && !p.ended:
			compiled = append(compiled, h)
		}
	}
	if len(compiled) > 0 {
		p.resolvePerfMap(ctx, compiled, addrs, out)
	}
	for t, w := range p.wanted {
		for i, s := range p.resolver.lines.get(ctx, p.where(t, w.m), w.addrs) {
			out.setSource(w.at[i], s)
		}
	}
}

func (m mapping) isFile() bool {
	return !strings.HasPrefix(m.name, "[") && (m.inode != 0 || strings.HasPrefix(m.name, "/"))
}

// mappedFile is the file behind a mapping; id may be known although it could not be opened.
type mappedFile struct {
	file *os.File
	id   fileID
	err  error
}

func (p *target) open(m mapping) (f mappedFile) {
	if !p.ended {
		if f.file, f.id, f.err = p.openMapped(m); f.err == nil {
			p.resolver.kept.opened(p.pid, m, f.id)
			return f
		}
	}
	// It has ended: tailcam itself may see the same file.
	if id, ok := p.gone[m.start]; ok {
		f.id = id
	}
	if !strings.HasPrefix(m.name, "/") {
		return mappedFile{nil, f.id, errNotOpened}
	}
	file, id, err := openHost(m.name)
	if err == nil {
		if err = sameFile(file, id, m.dev, m.inode); err != nil {
			file.Close()
		}
	}
	if err == nil {
		return mappedFile{file, id, nil}
	}
	return mappedFile{nil, f.id, err}
}

func (p *target) resolveFile(ctx context.Context, f mappedFile, h hit, addrs []uint64, out *result) {
	t := p.resolver.cache.peek(f.id)
	if t == nil && f.err != nil {
		return
	}
	if t == nil {
		var err error
		t, err = p.resolver.cache.get(ctx, f.id, f.file, func(own *os.File) (*table, error) {
			return p.readBinary(own, h.name)
		})
		if err != nil {
			return
		}
	}
	var r readerAt // of names, where they are many
	if f.file != nil {
		r = contextReader{ctx, f.file}
	}
	for _, fr := range h.frames {
		if ctx.Err() != nil {
			return
		}
		at, ok := t.describe(r, fr, h.mapping, addrs, out)
		if ok && (t.hasGo || t.hasLines || t.debugAt != nil) {
			p.want(t, h.mapping, at, fr.index)
		}
	}
}

// readBinary reads a file's functions, also from its separate debug file.
func (p *target) readBinary(f *os.File, path string) (*table, error) {
	limit := p.resolver.opts.MaxSymbols
	t, err := readTable(f, limit)
	if err != nil || t.hasLines || t.hasGo && t.full || p.resolver.lines == nil {
		return t, err
	}
	at, ok := t.debug.locate(p.opener(), path)
	if !ok {
		return t, nil
	}
	t.debugAt = &at
	if !t.full {
		if debug, _, err := at.open(p.opener()); err == nil {
			defer debug.Close()
			t.addDebug(debug, limit)
		}
	}
	return t, nil
}

func (p *target) want(t *table, m mapping, addr uint64, index int) {
	if p.resolver.lines == nil {
		return
	}
	if p.wanted == nil {
		p.wanted = map[*table]*lineWant{}
	}
	w := p.wanted[t]
	if w == nil {
		w = &lineWant{m: m}
		p.wanted[t] = w
	}
	w.addrs, w.at = append(w.addrs, addr), append(w.at, index)
}

// where tells how to open a file again, after this call has returned.
func (p *target) where(t *table, m mapping) lineWhere {
	again := &target{dir: p.dir, pid: p.pid, resolver: p.resolver, gone: p.gone, ended: p.ended}
	return lineWhere{file: t.id, table: t, path: m.name, debug: again.opener(), open: func() (*mapped, error) {
		f := again.open(m)
		if f.err != nil {
			return nil, fmt.Errorf("%w: %w", errNotOpened, f.err)
		}
		defer f.file.Close()
		return mapFile(f.file)
	}}
}

// opener opens debug files; nil once the process has ended.
func (p *target) opener() opener {
	if p.ended {
		return nil
	}
	return p
}

// describe writes one frame that lies in mapping m of the table's file, and
// returns the address in the file that was looked up.
func (t *table) describe(file readerAt, f frame, m mapping, addrs []uint64, out *result) (uint64, bool) {
	at, ok := t.address(f.at - m.start + m.offset)
	if !ok {
		return 0, false
	}
	printed := at + (addrs[f.index] - f.at) // the return address itself
	if name, start, ok := t.find(at, file); ok {
		out.set(f.index, fmt.Sprintf("%s+0x%x (%s)", readable(name), printed-start, m.module()))
	} else {
		out.set(f.index, fmt.Sprintf("[unknown] (%s+0x%x)", m.module(), printed))
	}
	return at, true
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
	f, id, err := reopen(fd)
	if err != nil {
		return nil, fileID{}, err
	}
	if err := sameFile(f, id, m.dev, m.inode); err != nil {
		f.Close()
		return nil, fileID{}, err
	}
	return f, id, nil
}

// inRoot opens a debug file as the process sees it. A file system whose server
// the process itself may be is left alone: it could keep tailcam waiting.
func (p *target) inRoot(path string) (*os.File, fileID, error) {
	fd, err := p.openInRoot(path)
	if err != nil {
		return nil, fileID{}, err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || st.Type == unix.FUSE_SUPER_MAGIC {
		unix.Close(fd)
		return nil, fileID{}, errors.New("not on a file system of the kernel")
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
