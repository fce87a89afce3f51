// Package reader reads the outliers' ring buffer: messages in, outliers out.
package reader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/kernel"
)

// ErrSample is what Read returns of a sample that it does not understand. The
// next call goes on with the next one.
var ErrSample = errors.New("unusable sample from the kernel side")

// Decider knows the rules that run.
type Decider interface {
	// Decide returns the outlier of a message; nil: it is not wanted, or wait: it must be
	// decided again soon. last: it is not.
	Decide(raw *abi.Outlier, last bool) (o *events.Outlier, wait bool)
	// Answer tells the kernel side what it asked.
	Answer(q *abi.Question)
}

// Reading is how far reading has come.
type Reading struct {
	Samples uint64 // read so far
	Unread  int    // bytes in the ring buffer
	Waiting bool   // Read waits for a sample; false: it handles one, or was not called again
}

// Reader reads outliers. Read is for one goroutine, Close and Reading for any.
type Reader struct {
	ring    *ringbuf.Reader
	kernel  *kernel.Objects
	rules   Decider
	release func()
	read    [abi.RingOwners]uint64 // bytes of the ring buffer that were given back
	samples atomic.Uint64
	waiting atomic.Bool

	closing sync.RWMutex
	closed  bool

	memories later[events.StackCopy]
	contexts later[events.Trace]
	progress progress
	held     held
}

// New reads what the kernel side sends about rules. release, if not nil, is
// called in Read for an outlier that was decided against, or whose rule is
// gone, although the kernel side may have frozen the recorder for it.
func New(objects *kernel.Objects, rules Decider, release func()) (*Reader, error) {
	ring, err := ringbuf.NewReader(objects.Maps().Outliers)
	if err != nil {
		return nil, fmt.Errorf("open the outliers' ring buffer: %w", err)
	}
	r := &Reader{ring: ring, kernel: objects, rules: rules, release: release}
	for owner := range r.read { // not 0 if the kernel side was taken over
		if r.read[owner], err = kernel.ReadWord(objects.Memory().RingUses, owner*ringUse+ringRead); err != nil {
			return nil, errors.Join(fmt.Errorf("read the use of the outliers' ring buffer: %w", err), ring.Close())
		}
	}
	return r, nil
}

// Close ends Read.
func (r *Reader) Close() error {
	r.closing.Lock()
	defer r.closing.Unlock()
	r.closed = true
	return r.ring.Close()
}

// Reading tells how far Read has come; after Close, that it waits. It does not block.
func (r *Reader) Reading() Reading {
	s := Reading{Samples: r.samples.Load(), Waiting: true}
	if !r.closing.TryRLock() {
		return s
	}
	defer r.closing.RUnlock()
	if !r.closed { // its memory is mapped
		s.Unread, s.Waiting = r.ring.AvailableBytes(), r.waiting.Load()
	}
	return s
}

// Read returns the next outlier. It blocks until there is one, and returns
// os.ErrClosed after Close. Outliers come in the order of their exits per CPU.
func (r *Reader) Read() (*events.Outlier, error) {
	for {
		if o := r.decideHeld(time.Now()); o != nil {
			return o, nil
		}
		promised := earlier(r.memories.deadline(), r.contexts.deadline())
		r.ring.SetDeadline(earlier(promised, r.held.deadline()))
		r.waiting.Store(true)
		rec, err := r.ring.Read()
		r.waiting.Store(false)
		r.samples.Add(1)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !promised.IsZero() && !time.Now().Before(promised) {
				r.memories.giveUp()
				r.contexts.giveUp()
			}
			continue
		case errors.Is(err, ringbuf.ErrClosed):
			return nil, os.ErrClosed
		case err != nil:
			return nil, fmt.Errorf("read outliers: %w", err)
		}
		if len(rec.RawSample) >= 2 {
			if err := r.acknowledge(rec.RawSample); err != nil {
				return nil, fmt.Errorf("read outliers: %w", err)
			}
		}
		o, err := r.receive(rec.RawSample)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSample, err)
		}
		if o != nil {
			return o, nil
		}
	}
}

// receive handles one sample; nil: nothing to hand out yet.
func (r *Reader) receive(sample []byte) (*events.Outlier, error) {
	if len(sample) < 2 {
		return nil, fmt.Errorf("outlier of %d bytes", len(sample))
	}
	switch kind := binary.LittleEndian.Uint16(sample); kind {
	case abi.UserMemoryType:
		return nil, r.keepMemory(sample)
	case abi.ThreadContextType:
		c, err := decode[abi.ThreadContext](sample, "the context of a thread")
		if err == nil {
			r.contexts.promise(c.Tid, c.TimeNs).Fill(events.Trace{ID: c.TraceId, Span: c.SpanId})
		}
		return nil, err
	case abi.ThreadAttributesType:
		return nil, r.keepAttributes(sample)
	case abi.QuestionType:
		q, err := decode[abi.Question](sample, "question")
		if err == nil {
			r.rules.Answer(q)
		}
		return nil, err
	case abi.GrowType:
		g, err := decode[abi.GrowMessage](sample, "the wish to grow")
		if err == nil {
			r.kernel.Grow(int(g.Table))
		}
		return nil, err
	case abi.ProgressType:
		p, err := decode[abi.Progress](sample, "progress")
		if err == nil {
			r.progress.keep(p)
		}
		return nil, err
	case abi.OutlierType:
		raw, err := decode[abi.Outlier](sample, "outlier")
		if err != nil {
			return nil, err
		}
		return r.outlier(raw), nil
	default:
		return nil, fmt.Errorf("sample of unknown type %#x from the kernel side", kind)
	}
}

func decode[T any](sample []byte, what string) (*T, error) {
	v := new(T)
	if _, err := binary.Decode(sample, binary.LittleEndian, v); err != nil {
		return nil, fmt.Errorf("decode %s: %w", what, err)
	}
	return v, nil
}

// outlier handles an outlier; nil: nothing to hand out.
func (r *Reader) outlier(raw *abi.Outlier) *events.Outlier {
	o, wait := r.rules.Decide(raw, r.held.full())
	if wait {
		r.held.add(raw, time.Now())
		return nil
	}
	return r.decided(o, raw)
}

// decided handles an outlier that its rule wants, or not.
func (r *Reader) decided(o *events.Outlier, raw *abi.Outlier) *events.Outlier {
	if o == nil {
		if raw.Flags&abi.OutlierSnapshot != 0 && r.release != nil {
			r.release()
		}
		return nil
	}
	r.progress.add(o)
	if o.Unstacked {
		// A task that has gone on by now stays without.
		if stack, err := r.kernel.TaskStack(o.Task.TID); err == nil {
			o.Raw.Kernel = stack
		}
	}
	r.attachLater(o, raw)
	return o
}

const (
	ringUse  = int(unsafe.Sizeof(abi.RingUse{}))
	ringRead = int(unsafe.Offsetof(abi.RingUse{}.Read))
)

// acknowledge gives back the bytes of a sample that has been read.
func (r *Reader) acknowledge(sample []byte) error {
	owner := abi.RingMessages
	switch binary.LittleEndian.Uint16(sample) {
	case abi.OutlierType:
		const at = unsafe.Offsetof(abi.Outlier{}.Owner)
		if len(sample) >= int(at)+4 {
			owner = int(binary.LittleEndian.Uint32(sample[at:])) % abi.MaxRules
		}
	case abi.UserMemoryType, abi.ThreadContextType, abi.ThreadAttributesType:
		owner = abi.RingStacks
	case abi.ProgressType:
		owner = abi.RingProgress
	}
	r.read[owner] += uint64(len(sample)) + abi.RingHeader
	return kernel.WriteWord(r.kernel.Memory().RingUses, owner*ringUse+ringRead, r.read[owner])
}
