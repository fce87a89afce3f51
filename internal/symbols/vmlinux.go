package symbols

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	textSymbol   = "_stext"        // begins the kernel's code, wherever it was loaded
	vmlinuxRetry = 5 * time.Minute // a debug package may be installed meanwhile
)

// vmlinux is the kernel's debug file, if one is installed.
type vmlinux struct {
	proc, root string

	mu     sync.Mutex
	tried  time.Time
	begun  bool
	path   string // empty: none was found
	text   uint64 // where the file has textSymbol
	lookup chan struct{}
}

// kernelLines finds sources of kernel addresses.
func (r *Resolver) kernelLines(t *kernelSymbols, at []uint64, out *result) {
	ctx, cancel := context.WithTimeout(context.Background(), r.opts.Timeout*3/4)
	defer cancel()
	path, text := r.vmlinux.find(ctx, r.opts.MaxSymbols)
	if path == "" || t.text == 0 {
		return
	}
	var addrs []uint64
	var index []int
	for i, a := range at {
		if s, ok := t.find(a); ok && s.module == 0 && a >= t.text {
			addrs, index = append(addrs, a-t.text+text), append(index, i)
		}
	}
	where := lineWhere{
		file: contentID{buildID: "kernel " + path}, table: &table{hasLines: true}, path: path,
		open: func() (*mapped, error) {
			f, _, err := openHost(path)
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

// find returns the debug file of the kernel that runs, and where it has
// textSymbol. It is looked for in the background.
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
	id := v.buildID()
	for _, p := range v.candidates(id) {
		if t, ok := vmlinuxText(p, id, maxSymbols); ok {
			found, text = p, t
			break
		}
	}
	v.mu.Lock()
	v.path, v.text, v.tried, v.begun = found, text, time.Now(), false
	close(v.lookup)
	v.mu.Unlock()
}

// buildID is that of the kernel that runs.
func (v *vmlinux) buildID() string {
	notes, err := os.ReadFile(filepath.Join(v.root, "sys/kernel/notes"))
	if err != nil || len(notes) > maxNotes {
		return ""
	}
	return noteBuildID(notes, binary.NativeEndian)
}

// candidates are the places where distributions put the file.
func (v *vmlinux) candidates(id string) []string {
	var out []string
	for _, p := range (debugRef{buildID: id}).candidates("") {
		out = append(out, filepath.Join(v.root, p))
	}
	text, err := os.ReadFile(filepath.Join(v.proc, "sys/kernel/osrelease"))
	release := strings.TrimSpace(string(text))
	if err != nil || release == "" || strings.Contains(release, "/") {
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

// vmlinuxText finds textSymbol in a file that is the kernel's, by its build-id.
func vmlinuxText(path, id string, maxSymbols int) (uint64, bool) {
	f, _, err := openHost(path)
	if err != nil || id == "" {
		f.Close()
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
