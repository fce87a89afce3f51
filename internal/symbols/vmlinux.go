package symbols

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	textSymbol   = "_stext"        // start of the kernel's code, wherever it is loaded
	vmlinuxRetry = 5 * time.Minute // a debug package may be installed later
)

// vmlinux is the debug file of the running kernel, if installed.
type vmlinux struct {
	proc, root string
	open       func(path string) (*os.File, error)

	once    sync.Once // protects id and release
	id      string
	release string

	mu     sync.Mutex
	tried  time.Time
	begun  bool
	path   string // "": not found
	text   uint64 // address of textSymbol in the file
	lookup chan struct{}
}

// NoOffset is the offset of addresses outside the kernel's own code.
const NoOffset = math.MaxUint64

// offsets returns distances from textSymbol, which do not reveal the load address.
func (t *kernelSymbols) offsets(at []uint64) []uint64 {
	out := make([]uint64, len(at))
	for i, a := range at {
		out[i] = NoOffset
		if s, ok := t.find(a); ok && s.module == 0 && t.text != 0 && a >= t.text {
			out[i] = a - t.text
		}
	}
	return out
}

// KernelOffsets is KernelNames, with offsets for KernelLines.
func (r *Resolver) KernelOffsets(addrs []uint64) (frames []string, offsets []uint64, err error) {
	frames, table, err := r.kernel.frames(addrs)
	if err != nil {
		return frames, nil, err
	}
	return frames, table.offsets(lookups(addrs)), nil
}

// KernelLines returns the sources of offsets from KernelOffsets, also of another
// Resolver. known reports whether the kernel's debug file exists.
func (r *Resolver) KernelLines(offsets []uint64) (sources []Source, known bool) {
	if r.lines == nil {
		return nil, false
	}
	out := newResult(make([]uint64, len(offsets)))
	r.kernelLines(offsets, out)
	r.vmlinux.mu.Lock()
	defer r.vmlinux.mu.Unlock()
	return out.stack().Sources, r.vmlinux.path != "" || r.vmlinux.begun
}

// kernelLines returns the sources of kernel code.
func (r *Resolver) kernelLines(offsets []uint64, out *result) {
	ctx, cancel := context.WithTimeout(context.Background(), r.opts.Timeout*3/4)
	defer cancel()
	path, text := r.vmlinux.find(ctx, r.opts.MaxSymbols)
	if path == "" {
		return
	}
	var addrs []uint64
	var index []int
	for i, offset := range offsets {
		if offset != NoOffset {
			addrs, index = append(addrs, offset+text), append(index, i)
		}
	}
	where := lineOrigin{
		file: contentID{buildID: "kernel " + path}, table: &table{hasLines: true}, path: path,
		debug: &target{resolver: r, ended: true},
		open: func() (*mapped, error) {
			f, err := r.opener.Host(path)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return mapFile(f)
		},
	}
	for i, s := range r.lines.get(ctx, where, addrs) {
		out.setSource(index[i], s)
	}
}

// find returns the debug file of the running kernel and the address of textSymbol in
// it. It searches in the background.
func (v *vmlinux) find(ctx context.Context, maxSymbols int) (path string, text uint64) {
	v.mu.Lock()
	if v.path == "" && !v.begun && (v.tried.IsZero() || time.Since(v.tried) > vmlinuxRetry) {
		v.begun, v.lookup = true, make(chan struct{})
		go v.search(maxSymbols)
	}
	lookup := v.lookup
	v.mu.Unlock()
	select {
	case <-lookup:
	case <-ctx.Done():
		return "", 0
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.path, v.text
}

func (v *vmlinux) search(maxSymbols int) {
	var found string
	var text uint64
	v.once.Do(v.readFacts)
	for _, p := range v.candidates(v.id) {
		if t, ok := v.textOf(p, v.id, maxSymbols); ok {
			found, text = p, t
			break
		}
	}
	v.mu.Lock()
	v.path, v.text, v.tried, v.begun = found, text, time.Now(), false
	close(v.lookup)
	v.mu.Unlock()
}

func (v *vmlinux) readFacts() {
	if notes, err := os.ReadFile(filepath.Join(v.root, "sys/kernel/notes")); err == nil && len(notes) <= maxNotes {
		v.id = noteBuildID(notes, binary.NativeEndian)
	}
	if text, err := os.ReadFile(filepath.Join(v.proc, "sys/kernel/osrelease")); err == nil {
		v.release = strings.TrimSpace(string(text))
	}
}

// candidates returns the paths used by distributions.
func (v *vmlinux) candidates(id string) []string {
	var out []string
	for _, p := range (debugRef{buildID: id}).candidates("") {
		out = append(out, filepath.Join(v.root, p))
	}
	release := v.release
	if release == "" || strings.Contains(release, "/") {
		return out
	}
	for _, p := range []string{
		"usr/lib/debug/boot/vmlinux-" + release, "usr/lib/debug/lib/modules/" + release + "/vmlinux",
		"usr/lib/debug/lib/modules/" + release + "/vmlinux.debug", "usr/lib/debug/boot/vmlinux-" + release + ".debug",
		"lib/modules/" + release + "/build/vmlinux", "boot/vmlinux-" + release,
	} {
		out = append(out, filepath.Join(v.root, p))
	}
	return out
}

// textOf finds textSymbol in a file with the kernel's build-id.
func (v *vmlinux) textOf(path, id string, maxSymbols int) (uint64, bool) {
	if id == "" {
		return 0, false
	}
	f, err := v.open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	if (debugRef{buildID: id}).matches(f) != nil {
		return 0, false
	}
	t, err := readTable(f, maxSymbols)
	if err != nil || !t.hasLines {
		return 0, false
	}
	for _, s := range t.symbols {
		if t.name(s.name, f) == textSymbol {
			return s.start, true
		}
	}
	return 0, false
}
