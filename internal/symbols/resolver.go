// Package symbols turns addresses into frames that people can read.
//
// Kernel addresses are looked up in /proc/kallsyms, user addresses in the ELF
// files that a process has mapped. Both the processes and their files are
// hostile input here: everything read from them is bounded in size and time.
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

// Options tune a Resolver. The zero value of a field is its default.
type Options struct {
	MaxFiles       int           // symbol tables kept; default 512
	NoLines        bool          // look for no debug files, source lines and inlined functions
	MaxLineBytes   int64         // of decompressed debug information and of indexes; default 64 MiB
	MaxBytes       int64         // bytes of symbol tables kept; default 48 MiB
	MaxSymbols     int           // symbols taken of one file; default 1,048,576
	Timeout        time.Duration // of one call of User; default 5s
	Concurrent     int           // calls of User that read at once; default 4
	ReloadInterval time.Duration // /proc/kallsyms is read again at most this often; default 30s
	Proc           string        // where procfs is mounted; default /proc
	Root           string        // where the kernel's debug file is looked for; default /

	Opener Opener // of all files of processes, and of debug files; default NewOpener
	// Refuse tells that a file is not to be read, by its device and inode; nil: none.
	Refuse func(dev, ino uint64) bool
	// Working is told which file is being read for which process; what it
	// returns is called when that is done, and late or never if it goes on in
	// the background. Nil: nobody is told.
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

// Stats counts what a Resolver holds and what it had to give up.
type Stats struct {
	Files    int    // files with a table in the cache
	Bytes    int64  // size of these tables
	Evicted  uint64 // files dropped to stay within the limits
	Timeouts uint64 // calls of User that did not end in time or were not begun
	Stuck    int    // calls of User that were left behind and still run

	Lines        int    // addresses whose source is known, or known not to be
	LineBytes    int64  // memory of open debug information, the files themselves left out
	LineFailed   uint64 // looks into debug information that failed
	LinesRefused uint64 // of these: the file asked for more memory or work than one may
	LinesQueued  int    // looks under way or waiting
	Remote       uint64 // files left alone because their file system may not answer
}

// Resolver turns addresses into frames. It is safe for concurrent use.
type Resolver struct {
	opts     Options
	opener   Opener
	remote   atomic.Uint64
	kernel   *kernelTable
	cache    *cache
	lines    *lines // nil: switched off
	vmlinux  vmlinux
	kept     keep
	vdso     vdso
	perf     perfMaps
	gate     *within.Gate[int]
	timeouts atomic.Uint64
}

// New makes a resolver. It reads nothing yet. A nil opts means defaults.
func New(opts *Options) *Resolver {
	o := opts.withDefaults()
	r := &Resolver{
		opts:    o,
		kernel:  newKernelTable(filepath.Join(o.Proc, "kallsyms"), o.ReloadInterval),
		cache:   newCache(o.MaxFiles, o.MaxBytes),
		gate:    within.NewGate[int](o.Concurrent),
		kept:    newKeep(),
		opener:  o.Opener,
		vmlinux: vmlinux{proc: o.Proc, root: o.Root, open: o.Opener.Host},
	}
	if !o.NoLines {
		r.lines = newLines(o.MaxLineBytes, lineThreads)
	}
	return r
}

// Prepare reads what is the same for all processes. After it User and
// KernelLines open nothing but by way of Options.Opener.
func (r *Resolver) Prepare() {
	r.vdso.once.Do(r.vdso.load)
	r.vmlinux.facts.Do(r.vmlinux.readFacts)
}

// Kernel names kernel addresses, innermost frame first: "symbol+0xoff" or
// "symbol+0xoff [module]". It always returns one frame an address; those
// without a name read "[unknown] 0xaddr". The error, if any, says what to
// change so that names appear; see ErrHidden.
//
// All but the first address are taken as return addresses: the instruction
// before them is the one looked up.
//
// Sources are known where the kernel's own debug file is installed; modules have none.
func (r *Resolver) Kernel(addrs []uint64) (Stack, error) {
	frames, table, err := r.kernel.frames(addrs)
	out := &result{frames: frames}
	if err == nil && r.lines != nil {
		r.kernelLines(table.offsets(lookups(addrs)), out)
	}
	return out.stack(), err
}

// KernelNames is Kernel without the sources, which is quick.
func (r *Resolver) KernelNames(addrs []uint64) ([]string, error) {
	frames, _, err := r.kernel.frames(addrs)
	return frames, err
}

// ReloadKernel reads the kernel's symbols again, for modules or BPF programs
// that were loaded since. Kernel does so by itself for addresses that it does
// not know, but cannot notice that a name has changed.
func (r *Resolver) ReloadKernel() error {
	return r.kernel.reload()
}

// Stats tells what the resolver holds and has given up.
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
	own := slices.Clone(addrs) // a call left behind must not see the caller's changes
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
		hits, p.gone = r.kept.hits(pid, lookups(addrs), now)
	}
	p.resolve(ctx, hits, addrs, out)
}

// mappings finds the addresses in the process's maps, and remembers these. A
// process that has ended, or is about to, has none: an error.
func (p *target) mappings(at []uint64, now time.Time) ([]hit, error) {
	f, err := p.resolver.opener.Maps(p.pid)
	if err != nil {
		return nil, err // exited, or not permitted
	}
	defer f.Close()
	var also func(mapping) bool
	lines := 0
	sight := p.resolver.kept.sighting(p.pid, now)
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

// emptyFile tells whether a file has nothing at its beginning.
func emptyFile(f *os.File) bool {
	var b [1]byte
	n, err := f.ReadAt(b[:], 0)
	return n == 0 && (err == nil || errors.Is(err, io.EOF) || errors.Is(err, unix.ESRCH))
}

// lookups gives the address to look up for each frame: a return address may
// already belong to the next function, so the one before it is taken.
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
