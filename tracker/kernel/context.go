package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
)

// ErrNoContexts means that Plan.Contexts is not set.
var ErrNoContexts = errors.New("contexts of threads are not read: set activities.enabled")

// SetContext tells where process pid has the contexts of its threads. It is forgotten when
// the process ends, and not believed after an exec. Its children have the same place until
// they exec, or have their own.
func (o *Objects) SetContext(pid int, place *abi.ContextPlace) error {
	if !o.Plan().Contexts {
		return ErrNoContexts
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if err := o.Maps().ContextPlaces.Update(uint32(fd), place, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("tell where process %d has its contexts: %w", pid, err)
	}
	return nil
}

// maxContextThreads bounds ContextThreads: those of the lowest numbers.
const maxContextThreads = 1024

// contextReader is the program that finds threads with contexts, from when somebody asks on.
type contextReader struct {
	mu     sync.Mutex
	closed bool
	places *ebpf.Map // that it has
	loaded *ebpf.Program
}

// close frees the program.
func (r *contextReader) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.unload()
}

// unload requires r.mu.
func (r *contextReader) unload() error {
	if r.loaded == nil {
		return nil
	}
	p := r.loaded
	r.loaded = nil
	return p.Close()
}

// program returns it, loaded with the maps of now. Requires r.mu.
func (r *contextReader) program(o *Objects) (*ebpf.Program, error) {
	switch {
	case r.closed:
		return nil, os.ErrClosed
	case r.loaded != nil && r.places == o.Maps().ContextPlaces:
		return r.loaded, nil
	}
	if err := r.unload(); err != nil {
		return nil, err
	}
	spec, err := bpf.LoadContexts()
	if err != nil {
		return nil, fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if err := ShareVariables(spec); err != nil {
		return nil, err
	}
	places := o.Maps().ContextPlaces
	c, err := o.LoadShared(spec, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("load what finds threads with contexts: %w", err)
	}
	defer c.Close() // it has more maps than the program
	r.loaded, r.places = c.DetachProgram("context_threads"), places
	return r.loaded, nil
}

// ContextThreads returns the threads of programs whose place SetContext has told. It reads
// nothing of their memory. Its program is loaded by the first call.
func (o *Objects) ContextThreads() ([]abi.ContextThread, error) {
	if !o.Plan().Contexts {
		return nil, ErrNoContexts
	}
	o.reader.mu.Lock()
	defer o.reader.mu.Unlock()
	program, err := o.reader.program(o)
	if err != nil {
		return nil, err
	}
	iter, err := link.AttachIter(link.IterOptions{Program: program})
	if err != nil {
		return nil, fmt.Errorf("attach to all tasks: %w", err)
	}
	defer func() { _ = iter.Close() }()
	r, err := iter.Open()
	if err != nil {
		return nil, fmt.Errorf("iterate over all tasks: %w", err)
	}
	defer r.Close()
	var list []abi.ContextThread
	for len(list) < maxContextThreads {
		var t abi.ContextThread
		err := binary.Read(r, binary.NativeEndian, &t)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the threads with contexts: %w", err)
		}
		list = append(list, t)
	}
	return list, nil
}

// ContextThread returns one of ContextThreads, by its id; ok is false if it is none of them.
func (o *Objects) ContextThread(tid int) (t abi.ContextThread, ok bool, err error) {
	if !o.Plan().Contexts {
		return t, false, ErrNoContexts
	}
	o.reader.mu.Lock()
	defer o.reader.mu.Unlock()
	program, err := o.reader.program(o)
	if err != nil {
		return t, false, err
	}
	f, err := taskIterator(program, tid)
	if err != nil {
		return t, false, err
	}
	defer f.Close()
	if err = binary.Read(f, binary.NativeEndian, &t); errors.Is(err, io.EOF) {
		return t, false, nil
	}
	if err != nil {
		return t, false, fmt.Errorf("read the context of thread %d: %w", tid, err)
	}
	return t, true, nil
}

// KeptContext is what the program of a thread had published for it at one moment, in which it was
// the current task.
type KeptContext struct {
	// Of is the thread that it woke then, after a sleep past the floor of the rules; or, if Ran, itself:
	// it left its CPU, after a millisecond or more.
	Of      int
	Ran     bool
	MonoNS  uint64 // CLOCK_MONOTONIC
	TraceID [16]byte
	SpanID  [8]byte
}

// maxKeptContexts bounds what KeptContexts returns: the newest.
const maxKeptContexts = 1024

// keptAtOnce is how many are read by one system call: more than one bucket of the map has.
const keptAtOnce = 1024

// KeptContexts returns those that are kept of between two times, in order of time: of each thread,
// the last moment of each kind. There are none without rules on wake-ups or sleeps.
func (o *Objects) KeptContexts(from, to uint64) (list []KeptContext, err error) {
	if !o.Plan().Contexts {
		return nil, ErrNoContexts
	}
	keys, values := make([]abi.ContextKey, keptAtOnce), make([]abi.KeptContext, keptAtOnce)
	var cursor ebpf.MapBatchCursor
	for err == nil {
		var n int
		n, err = o.Maps().KeptContexts.BatchLookup(&cursor, keys, values, nil)
		for i := range keys[:n] {
			k, v := &keys[i], &values[i]
			if v.TimeNs < from || v.TimeNs > to || k.Kind == abi.ContextRequest {
				continue
			}
			x := KeptContext{Of: int(k.Of), Ran: k.Kind == abi.ContextRun, MonoNS: v.TimeNs}
			binary.NativeEndian.PutUint64(x.TraceID[:8], v.Id[0])
			binary.NativeEndian.PutUint64(x.TraceID[8:], v.Id[1])
			binary.NativeEndian.PutUint64(x.SpanID[:], v.Id[2])
			list = append(list, x)
		}
	}
	if !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read the contexts that are kept: %w", err)
	}
	slices.SortFunc(list, func(a, b KeptContext) int { return cmp.Or(cmp.Compare(a.MonoNS, b.MonoNS), cmp.Compare(a.Of, b.Of)) })
	return list[max(0, len(list)-maxKeptContexts):], nil
}
