// Package symbols turns addresses into frames that people can read.
//
// Kernel addresses are looked up in /proc/kallsyms, user addresses in the ELF
// files that a process has mapped. Both the processes and their files are
// hostile input here: everything read from them is bounded in size and time.
package symbols

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tailcam/tailcam/internal/process/within"
)

// Options tune a Resolver. The zero value of a field is its default.
type Options struct {
	MaxFiles       int           // symbol tables kept; default 512
	MaxBytes       int64         // bytes of symbol tables kept; default 128 MiB
	MaxSymbols     int           // symbols taken of one file; default 2,097,152
	Timeout        time.Duration // of one call of User; default 5s
	Concurrent     int           // calls of User that read at once; default 4
	ReloadInterval time.Duration // /proc/kallsyms is read again at most this often; default 30s
	Proc           string        // where procfs is mounted; default /proc
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.MaxFiles = cmp.Or(out.MaxFiles, 512)
	out.MaxBytes = cmp.Or(out.MaxBytes, 128<<20)
	out.MaxSymbols = cmp.Or(out.MaxSymbols, 2<<20)
	out.Timeout = cmp.Or(out.Timeout, 5*time.Second)
	out.Concurrent = cmp.Or(out.Concurrent, 4)
	out.ReloadInterval = cmp.Or(out.ReloadInterval, 30*time.Second)
	out.Proc = cmp.Or(out.Proc, "/proc")
	return out
}

// Stats counts what a Resolver holds and what it had to give up.
type Stats struct {
	Files    int    // files with a table in the cache
	Bytes    int64  // size of these tables
	Evicted  uint64 // files dropped to stay within the limits
	Timeouts uint64 // calls of User that did not end in time or were not begun
	Stuck    int    // calls of User that were left behind and still run
}

// Resolver turns addresses into frames. It is safe for concurrent use.
type Resolver struct {
	opts     Options
	kernel   *kernelTable
	cache    *cache
	vdso     vdso
	gate     *within.Gate[int]
	timeouts atomic.Uint64
}

// New makes a resolver. It reads nothing yet. A nil opts means defaults.
func New(opts *Options) *Resolver {
	o := opts.withDefaults()
	return &Resolver{
		opts:   o,
		kernel: newKernelTable(filepath.Join(o.Proc, "kallsyms"), o.ReloadInterval),
		cache:  newCache(o.MaxFiles, o.MaxBytes),
		gate:   within.NewGate[int](o.Concurrent),
	}
}

// Kernel names kernel addresses, innermost frame first: "symbol+0xoff" or
// "symbol+0xoff [module]". It always returns one frame an address; those
// without a name read "[unknown] 0xaddr". The error, if any, says what to
// change so that names appear; see ErrHidden.
//
// All but the first address are taken as return addresses: the instruction
// before them is the one looked up.
func (r *Resolver) Kernel(addrs []uint64) ([]string, error) {
	return r.kernel.frames(addrs)
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
	return s
}

// User names the addresses of process pid, innermost frame first:
//
//	symbol+0xoff (module)       module is the base name of the mapped file
//	[unknown] (module+0xoff)    no symbol; the offset is what addr2line takes
//	[unknown] 0xaddr            no such mapping, or the process has exited
//
// All but the first address are taken as return addresses. It returns within
// Options.Timeout whatever the process and its files do.
func (r *Resolver) User(pid int, addrs []uint64) []string {
	if len(addrs) == 0 {
		return nil
	}
	own := slices.Clone(addrs) // a call left behind must not see the caller's changes
	frames, err := within.Do(r.gate, pid, r.opts.Timeout, func() []string {
		ctx, cancel := context.WithTimeout(context.Background(), r.opts.Timeout)
		defer cancel()
		return r.user(ctx, pid, own)
	})
	if err != nil {
		r.timeouts.Add(1)
		return unknowns(addrs)
	}
	return frames
}

func (r *Resolver) user(ctx context.Context, pid int, addrs []uint64) []string {
	frames := unknowns(addrs)
	if pid <= 0 {
		return frames
	}
	dir := filepath.Join(r.opts.Proc, strconv.Itoa(pid))
	f, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return frames // exited, or not permitted
	}
	hits, err := findMappings(f, lookups(addrs))
	f.Close()
	if err != nil {
		return frames
	}
	p := &target{dir: dir, pid: pid, resolver: r}
	for _, h := range hits {
		if ctx.Err() != nil {
			return frames
		}
		p.resolve(ctx, h, addrs, frames)
	}
	return frames
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
