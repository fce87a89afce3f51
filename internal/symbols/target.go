package symbols

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// target is the process whose addresses are looked up in one call.
type target struct {
	pid          int
	resolver     *Resolver
	gone         map[uint64]fileID // of a process that has exited: files by start of their mapping
	ended        bool
	lineRequests map[*table]*lineRequest
}

// lineRequest is addresses of a file whose source is wanted.
type lineRequest struct {
	m     mapping
	id    fileID
	addrs []uint64
	at    []int // index in the stack
}

// resolve symbolizes addresses in mappings. It opens all files first, as the process
// may exit.
func (p *target) resolve(ctx context.Context, hits []hit, addrs []uint64, out *result) {
	for _, h := range hits {
		for _, f := range h.frames {
			// Default: offset in the file or mapping.
			out.set(f.index, fmt.Sprintf("[unknown] (%s+0x%x)", h.module(), addrs[f.index]-h.start+h.offset))
		}
	}
	files := p.openAll(hits)
	defer func() {
		for _, f := range files {
			f.file.Close() // may be nil
		}
	}()
	var compiled []hit // code generated at run time
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
	for t, w := range p.lineRequests {
		done := p.resolver.opts.Working(p.pid, w.id.dev, w.id.ino)
		for i, s := range p.resolver.lines.get(ctx, p.lineOrigin(t, w.m), w.addrs) {
			out.setSource(w.at[i], s)
		}
		if ctx.Err() == nil { // otherwise it continues in the background
			done()
		}
	}
}

func (m mapping) isFile() bool {
	return !strings.HasPrefix(m.name, "[") && (m.inode != 0 || strings.HasPrefix(m.name, "/"))
}

// mappedFile is the file of a mapping. id may be known even if it could not be opened.
type mappedFile struct {
	file *os.File
	id   fileID
	err  error
}

// openAll opens the files of mappings, one result each.
func (p *target) openAll(hits []hit) []mappedFile {
	files := make([]mappedFile, len(hits))
	var list []Mapping
	var at []int
	for i, h := range hits {
		if h.isFile() {
			list, at = append(list, h.wanted()), append(at, i)
		}
	}
	var opened []Opened
	if !p.ended && len(list) > 0 {
		opened = p.resolver.opener.Mapped(p.pid, list)
	}
	for n, i := range at {
		o := Opened{Err: errNotOpened}
		if n < len(opened) {
			o = opened[n]
		}
		files[i] = p.opened(hits[i].mapping, o)
	}
	return files
}

func (m mapping) wanted() Mapping {
	return Mapping{Start: m.start, End: m.end, Dev: m.dev, Inode: m.inode, Name: m.name}
}

func (p *target) open(m mapping) mappedFile {
	return p.openAll([]hit{{mapping: m}})[0]
}

// opened checks the result of opening a file and tries alternatives.
func (p *target) opened(m mapping, o Opened) (f mappedFile) {
	f.file, f.err = o.File, o.Err
	if f.err == nil {
		if f.id, f.err = identify(f.file); f.err == nil {
			p.resolver.kept.opened(p.pid, m, f.id)
			return f
		}
		f.file.Close()
		f.file = nil
	}
	if errors.Is(f.err, ErrRemote) {
		p.resolver.remote.Add(1)
		return f
	}
	// The process has exited: try tailcam's own root.
	if id, ok := p.gone[m.start]; ok {
		f.id = id
	}
	if !strings.HasPrefix(m.name, "/") {
		return mappedFile{nil, f.id, errNotOpened}
	}
	file, id, err := p.resolver.host(m.name)
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
	if t == nil && f.err != nil || p.resolver.opts.Refuse(f.id.dev, f.id.ino) {
		return
	}
	if t == nil {
		var err error
		t, err = p.resolver.cache.get(ctx, f.id, f.file, func(own *os.File) (*table, error) {
			defer p.resolver.opts.Working(p.pid, f.id.dev, f.id.ino)()
			return p.readBinary(own, h.name)
		})
		if err != nil {
			return
		}
	}
	var r readerAt // for names of large string tables
	if f.file != nil {
		r = contextReader{ctx, f.file}
	}
	for _, fr := range h.frames {
		if ctx.Err() != nil {
			return
		}
		at, ok := t.describe(r, fr, h.mapping, addrs, out)
		if ok && (t.hasGo || t.hasLines || t.debugAt != nil) {
			p.requestLine(t, f.id, h.mapping, at, fr.index)
		}
	}
}

// readBinary reads a file's functions, including those of its debug file.
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
		if debug, err := at.open(p.opener()); err == nil {
			defer debug.Close()
			t.addDebug(debug, limit)
		}
	}
	return t, nil
}

func (p *target) requestLine(t *table, id fileID, m mapping, addr uint64, index int) {
	if p.resolver.lines == nil {
		return
	}
	if p.lineRequests == nil {
		p.lineRequests = map[*table]*lineRequest{}
	}
	w := p.lineRequests[t]
	if w == nil {
		w = &lineRequest{m: m, id: id}
		p.lineRequests[t] = w
	}
	w.addrs, w.at = append(w.addrs, addr), append(w.at, index)
}

// lineOrigin returns how to open a file after this call.
func (p *target) lineOrigin(t *table, m mapping) lineOrigin {
	again := &target{pid: p.pid, resolver: p.resolver, gone: p.gone, ended: p.ended}
	return lineOrigin{file: t.id, table: t, path: m.name, inRoot: !p.ended, debug: again.opener(), open: func() (*mapped, error) {
		f := again.open(m)
		if f.err != nil {
			return nil, fmt.Errorf("%w: %w", errNotOpened, f.err)
		}
		defer f.file.Close()
		return mapFile(f.file)
	}}
}

// opener opens debug files.
func (p *target) opener() opener { return p }

// inRoot opens a file in the process's root directory.
func (p *target) inRoot(path string) (*os.File, error) {
	if p.ended {
		return nil, errNotOpened
	}
	return p.resolver.opener.InRoot(p.pid, path)
}

// host opens a file in tailcam's root directory.
func (p *target) host(path string) (*os.File, error) { return p.resolver.opener.Host(path) }

// host opens and identifies a file in tailcam's root directory.
func (r *Resolver) host(path string) (*os.File, fileID, error) {
	f, err := r.opener.Host(path)
	if err != nil {
		return nil, fileID{}, err
	}
	id, err := identify(f)
	if err != nil {
		f.Close()
		return nil, fileID{}, err
	}
	return f, id, nil
}

// describe formats one frame in mapping m and returns the address looked up.
func (t *table) describe(file readerAt, f frame, m mapping, addrs []uint64, out *result) (uint64, bool) {
	at, ok := t.address(f.at - m.start + m.offset)
	if !ok {
		return 0, false
	}
	printed := at + (addrs[f.index] - f.at) // the return address itself
	if name, start, ok := t.find(at, file); ok {
		out.set(f.index, fmt.Sprintf("%s+0x%x (%s)", printableName(name), printed-start, m.module()))
	} else {
		out.set(f.index, fmt.Sprintf("[unknown] (%s+0x%x)", m.module(), printed))
	}
	return at, true
}

type readerAt interface {
	ReadAt(p []byte, off int64) (int, error)
}

// contextReader fails when the context is done.
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
