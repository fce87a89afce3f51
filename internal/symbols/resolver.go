// Package symbols symbolizes addresses.
//
// Kernel symbols come from /proc/kallsyms, user symbols from the ELF files mapped by a
// process. Processes and their files are untrusted: everything read from them is
// bounded in size and time.
package symbols

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/process/within"
)

// Options configures a Resolver. Zero values mean defaults.
type Options struct {
	MaxFiles       int           // cached symbol tables; default 512
	NoLines        bool          // no debug files, source lines and inlined functions
	MaxLineBytes   int64         // bytes of decompressed debug information and indexes; default 64 MiB
	MaxBytes       int64         // bytes of cached symbol tables; default 48 MiB
	MaxSymbols     int           // symbols per file; default 1,048,576
	Timeout        time.Duration // of one call of User; default 5s
	Concurrent     int           // concurrent calls of User; default 4
	ReloadInterval time.Duration // minimum interval between reads of /proc/kallsyms; default 30s
	Proc           string        // mount point of procfs; default /proc
	Root           string        // where to look for the kernel's debug file; default /

	Opener Opener // for files of processes and debug files; default NewOpener
	// Refuse reports whether not to read a file; nil: read all.
	Refuse func(dev, ino uint64) bool
	// Working is called when a file is read for a process; the function it returns is
	// called at the end, which may be late or never for background work. May be nil.
	Working func(pid int, dev, ino uint64) (done func())
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.MaxFiles = cmp.Or(out.MaxFiles, 512)
	out.MaxBytes = cmp.Or(out.MaxBytes, 48<<20)
	out.MaxLineBytes = cmp.Or(out.MaxLineBytes, 64<<20)
	out.MaxSymbols = cmp.Or(out.MaxSymbols, 1<<20)
	out.Timeout = cmp.Or(out.Timeout, 5*time.Second)
	out.Concurrent = cmp.Or(out.Concurrent, 4)
	out.ReloadInterval = cmp.Or(out.ReloadInterval, 30*time.Second)
	out.Root = cmp.Or(out.Root, "/")
	out.Proc = cmp.Or(out.Proc, "/proc")
	if out.Opener == nil {
		out.Opener = NewOpener(&OpenerOptions{Proc: out.Proc})
	}
	if out.Refuse == nil {
		out.Refuse = func(_, _ uint64) bool { return false }
	}
	if out.Working == nil {
		out.Working = func(int, uint64, uint64) func() { return func() {} }
	}
	return out
}

// Stats are counters and the state of a Resolver.
type Stats struct {
	Files    int    // cached files
	Bytes    int64  // size of their tables
	Evicted  uint64 // files evicted to meet the limits
	Timeouts uint64 // calls of User that timed out or were not started
	Stuck    int    // abandoned calls of User still running

	Lines        int    // cached addresses, with or without source line
	LineBytes    int64  // open debug information, excluding mapped files
	LineFailed   uint64 // failed requests for source lines
	LinesRefused uint64 // of these: memory or work limit exceeded
	LinesQueued  int    // requests in progress or waiting
	Remote       uint64 // files skipped because their file system may hang
}

// Resolver symbolizes addresses. It is safe for concurrent use.
type Resolver struct {
	opts       Options
	opener     Opener
	remote     atomic.Uint64
	kernel     *kernelTable
	cache      *cache
	lines      *lineCache // nil: disabled
	vmlinux    vmlinux
	kept       mapsCache
	vdso       vdso
	perf       perfMaps
	unwinding  unwindCache
	threadless threadless
	gate       *within.Gate[int]
	timeouts   atomic.Uint64
}

// New returns a resolver. It reads nothing yet. opts may be nil.
func New(opts *Options) *Resolver {
	o := opts.withDefaults()
	r := &Resolver{
		opts:    o,
		kernel:  newKernelTable(filepath.Join(o.Proc, "kallsyms"), o.ReloadInterval),
		cache:   newCache(o.MaxFiles, o.MaxBytes),
		gate:    within.NewGate[int](o.Concurrent),
		kept:    newMapsCache(),
		opener:  o.Opener,
		vmlinux: vmlinux{proc: o.Proc, root: o.Root, open: o.Opener.Host},
	}
	if !o.NoLines {
		r.lines = newLineCache(o.MaxLineBytes, lineThreads)
	}
	return r
}

// Prepare reads what is common to all processes. Afterwards User and KernelLines open
// files only through Options.Opener.
func (r *Resolver) Prepare() {
	r.vdso.once.Do(r.vdso.load)
	r.vmlinux.once.Do(r.vmlinux.readFacts)
}

// Kernel symbolizes kernel addresses, innermost frame first, as "symbol+0xoff" or
// "symbol+0xoff [module]". It returns one frame per address; unknown ones are
// "[unknown] 0xaddr". The error says how to make symbols available, see ErrHidden.
//
// All addresses but the first are return addresses: the preceding instruction is looked
// up.
//
// Source lines need the kernel's debug file; modules have none.
func (r *Resolver) Kernel(addrs []uint64) (Stack, error) {
	frames, table, err := r.kernel.frames(addrs)
	out := &result{frames: frames}
	if err == nil && r.lines != nil {
		r.kernelLines(table.offsets(lookups(addrs)), out)
	}
	return out.stack(), err
}

// KernelNames is Kernel without source lines, which is fast.
func (r *Resolver) KernelNames(addrs []uint64) ([]string, error) {
	frames, _, err := r.kernel.frames(addrs)
	return frames, err
}

// ReloadKernel reads kernel symbols again, for modules and BPF programs loaded since.
// Kernel does so for unknown addresses, but does not notice changed names.
func (r *Resolver) ReloadKernel() error {
	return r.kernel.reload()
}

// Stats returns the counters and the state.
func (r *Resolver) Stats() Stats {
	s := r.cache.stats()
	s.Timeouts = r.timeouts.Load()
	s.Stuck = r.gate.Stuck()
	s.Remote = r.remote.Load()
	if l := r.lines; l != nil {
		s.Lines, s.LinesQueued, s.LineFailed = l.known.Size(), int(l.waiting.Load()), l.failed.Load()
		s.LineBytes, s.LinesRefused = l.bytes(), l.refused.Load()
	}
	return s
}

// User names the addresses of process pid, innermost frame first:
//
//	symbol+0xoff (module)       module is the base name of the mapped file
//	[unknown] (module+0xoff)    no symbol; the offset is what addr2line takes
//	[unknown] 0xaddr            no such mapping, or the process has exited
//
// All but the first address are taken as return addresses. It returns within
// Options.Timeout whatever the process and its files do, with what is known by
// then: names without sources, or less. What takes longer goes on in the
// background, and is there the next time.
//
// The frames of a process that has ended are named if an earlier call saw it.
func (r *Resolver) User(pid int, addrs []uint64) Stack {
	if len(addrs) == 0 {
		return Stack{}
	}
	own := slices.Clone(addrs) // an abandoned call must not see changes by the caller
	out := newResult(own)
	_, err := within.Do(r.gate, pid, r.opts.Timeout, func() struct{} {
		ctx, cancel := context.WithTimeout(context.Background(), r.opts.Timeout*3/4)
		defer cancel()
		r.user(ctx, pid, own, out)
		if ctx.Err() != nil {
			r.timeouts.Add(1)
		}
		return struct{}{}
	})
	if err != nil {
		r.timeouts.Add(1)
	}
	return out.stack()
}

func (r *Resolver) user(ctx context.Context, pid int, addrs []uint64, out *result) {
	if pid <= 0 {
		return
	}
	p := &target{pid: pid, resolver: r}
	now := time.Now()
	hits, err := p.mappings(lookups(addrs), now)
	if err != nil {
		p.ended = true
		hits, p.gone = r.kept.find(pid, lookups(addrs), now)
	}
	p.resolve(ctx, hits, addrs, out)
}

// mappings finds the mappings of addresses and caches them. It fails if the process has
// exited or is exiting.
func (p *target) mappings(at []uint64, now time.Time) ([]hit, error) {
	f, err := p.resolver.opener.Maps(p.pid)
	if err != nil {
		return nil, err // exited, or not permitted
	}
	defer f.Close()
	var also func(mapping) bool
	lines := 0
	sight := p.resolver.kept.record(p.pid, now)
	if sight != nil {
		also = func(m mapping) bool {
			lines++
			return sight.add(m, lines)
		}
	}
	hits, err := findMappings(f, at, also)
	if err != nil {
		return nil, err
	}
	if lines > 0 {
		p.resolver.kept.store(p.pid, sight, now)
	}
	if len(hits) == 0 && lines == 0 && emptyFile(f) {
		return nil, os.ErrProcessDone
	}
	return hits, nil
}

// emptyFile reports whether a file has no content at its beginning.
func emptyFile(f *os.File) bool {
	var b [1]byte
	n, err := f.ReadAt(b[:], 0)
	return n == 0 && (err == nil || errors.Is(err, io.EOF) || errors.Is(err, unix.ESRCH))
}

// lookups returns the address to look up for each frame: for return addresses the byte
// before, as the next instruction may belong to another function.
func lookups(addrs []uint64) []uint64 {
	out := slices.Clone(addrs)
	for i := range out {
		if i > 0 && out[i] > 0 {
			out[i]--
		}
	}
	return out
}

func unknowns(addrs []uint64) []string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = unknown(a)
	}
	return out
}

func unknown(addr uint64) string { return fmt.Sprintf("[unknown] 0x%x", addr) }
