// Package tailcam tells tailcam which request a thread works for, and reads what each request
// has cost and waited for: activities, in docs/activities.md. It needs a daemon with
// activities.enabled, Linux on x86-64 or arm64, and no cgo; it imports the standard library
// and the constants of package abi.
//
//	h, err := tailcam.Open("", nil) // on an error h is nil, which does nothing: go on without
//	th := h.Thread()                // locks this goroutine to its thread
//	defer th.Release()
//	t := h.Token("checkout")
//	th.Switch(t) // this thread works for t from here
//	...
//	th.Switch(0) // and for nobody from here
//	account, _ := h.End(t)
//
// The kernel knows threads and no goroutines. So a goroutine that switches is locked to its
// thread (Handle.Thread does that), and what other goroutines do for the request is accounted
// only if they switch, too: a Token is a plain value, which goes with a work item. Programs
// with many goroutines per request have a few locked workers that take the work.
package tailcam

import (
	"errors"
	"math"
	"math/bits"
	"net"
	"sync/atomic"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Token marks a request. It is a plain value, which may go to other goroutines; 0 is none,
// and accepted everywhere.
type Token uint64

func (t Token) index() uint32      { return uint32(t) }
func (t Token) generation() uint32 { return uint32(t >> 32) }

// Handle is the opened activities of this process. Its methods may be called from any
// goroutine. A nil *Handle does nothing: tokens are 0, accounts empty.
type Handle struct {
	path     string
	conn     *net.UnixConn
	shared   []byte // written by this process
	accounts []byte // written by the kernel side
	threads  uint32
	tokens   uint32
	first    uint32 // token's index
	pairs    uint32 // attributes that there can be
	shift    uint32 // of a thread's home
	tsc      bool   // whether CLOCK_MONOTONIC follows the time stamp counter

	taken  []uint64 // a bit for each token: 1 while it is live
	ended  atomic.Uint64
	full   atomic.Uint64 // ended+1 when none was free; 0: never
	stale  uint64
	untold uint64
	closed atomic.Bool
}

// Stats is what did not work since Open.
type Stats struct {
	TokensFull  uint64 `json:"tokens_full"`  // Token while all were live
	ThreadsFull uint64 `json:"threads_full"` // Thread while no slot was free
	Stale       uint64 `json:"stale"`        // Switch to a token that had ended
	Untold      uint64 `json:"untold"`       // slow requests that the daemon was not told of, as it did not read
	// AttributesFull is SetAttribute with too many different ones, or too many of one token.
	AttributesFull uint64 `json:"attributes_full"`
}

// ErrOpen is returned by Open while the process has a handle.
var ErrOpen = errors.New("activities are open in this process already")

func (h *Handle) client() *abi.ActivityClient {
	return (*abi.ActivityClient)(unsafe.Pointer(&h.shared[0]))
}

func (h *Handle) thread(index uint32) *abi.ActivityThread {
	return (*abi.ActivityThread)(unsafe.Pointer(&h.shared[index*abi.ActivitySharedBytes]))
}

func (h *Handle) element(index uint32) *abi.ActivityToken {
	return (*abi.ActivityToken)(unsafe.Pointer(&h.shared[index*abi.ActivitySharedBytes]))
}

func (h *Handle) state(index uint32) *abi.ActivityThreadState {
	return (*abi.ActivityThreadState)(unsafe.Pointer(&h.accounts[index*abi.ActivityAccountBytes]))
}

func (h *Handle) values(index uint32) *abi.ActivityAccount {
	return (*abi.ActivityAccount)(unsafe.Pointer(&h.accounts[index*abi.ActivityAccountBytes]))
}

// find returns a token's element; nil: it is none of this process, or has ended.
func (h *Handle) find(t Token) *abi.ActivityToken {
	if h == nil || t.index()-h.first >= h.tokens || t.generation()&1 == 0 {
		return nil
	}
	e := h.element(t.index())
	if atomic.LoadUint32(&e.Generation) != t.generation() {
		return nil
	}
	return e
}

// Token makes a token for a request. Its name, of at most 31 bytes, is that of its kind, such
// as checkout. 0 if all are live, which is counted.
func (h *Handle) Token(name string) Token {
	if h == nil || h.closed.Load() {
		return 0
	}
	slot, ok := h.take()
	if !ok {
		atomic.AddUint64(&h.client().TokensRefused, 1)
		return 0
	}
	index := h.first + slot
	e, generation := h.element(index), atomic.LoadUint32(&h.element(index).Generation)
	*e = abi.ActivityToken{Generation: generation, BeginNs: nanotime()}
	put(e.Name[:], name)
	atomic.StoreUint32(&e.Generation, generation+1)
	return Token(generation+1)<<32 | Token(index)
}

// take finds the next free one, as others have been free for longer.
func (h *Handle) take() (slot uint32, ok bool) {
	ended := h.ended.Load() + 1
	if h.full.Load() == ended {
		return 0, false // and none has ended since
	}
	start := uint32((atomic.AddUint64(&h.client().NextToken, 1) - 1) % uint64(h.tokens))
	from := uint64(math.MaxUint64) << (start % 64)
	for i := range len(h.taken) + 1 { // the first word again at the end, for what is before start
		word := (int(start/64) + i) % len(h.taken)
		for unused := from &^ atomic.LoadUint64(&h.taken[word]); unused != 0; unused &= unused - 1 {
			bit := unused & -unused
			if atomic.OrUint64(&h.taken[word], bit)&bit != 0 {
				continue // another thread was faster
			}
			slot = uint32(word*64 + bits.TrailingZeros64(bit))
			if slot != start {
				atomic.AddUint64(&h.client().NextToken, uint64((slot+h.tokens-start)%h.tokens))
			}
			return slot, true
		}
		from = math.MaxUint64
	}
	h.full.Store(ended)
	return 0, false
}

// End frees a token, and returns what it has cost. A thread that still works for it does so
// for nobody from here. False, and zeros, if it has ended, or is 0.
func (h *Handle) End(t Token) (Account, bool) {
	e := h.find(t)
	if e == nil {
		return Account{}, false
	}
	a := h.account(t, e)
	atomic.StoreUint64(&e.EndNs, e.BeginNs+a.ElapsedNS)
	if !atomic.CompareAndSwapUint32(&e.Generation, t.generation(), t.generation()+1) {
		return Account{}, false
	}
	slot := t.index() - h.first
	atomic.AndUint64(&h.taken[slot/64], ^(uint64(1) << (slot % 64)))
	h.ended.Add(1)
	h.tellIfSlow(t, a.ElapsedNS)
	return a, true
}

// SetValue attaches a number of the application's to a token. False: it has ended.
func (h *Handle) SetValue(t Token, value uint64) bool {
	e := h.find(t)
	if e != nil {
		atomic.StoreUint64(&e.Value, value)
	}
	return e != nil
}

// SetText attaches a text of at most 15 bytes. Only one goroutine may do so at a time. False:
// the token has ended.
func (h *Handle) SetText(t Token, text string) bool {
	e := h.find(t)
	if e != nil {
		put(e.Text[:], text)
	}
	return e != nil
}

// SetTrace says which trace and span the request is part of. Only one goroutine may do so at
// a time. False: the token has ended.
func (h *Handle) SetTrace(t Token, traceID [16]byte, spanID [8]byte) bool {
	e := h.find(t)
	if e != nil {
		e.TraceId, e.SpanId = traceID, spanID
	}
	return e != nil
}

// Stats returns what did not work since Open.
func (h *Handle) Stats() Stats {
	if h == nil {
		return Stats{}
	}
	return Stats{
		TokensFull:  atomic.LoadUint64(&h.client().TokensRefused),
		ThreadsFull: atomic.LoadUint64(&h.client().ThreadsRefused),
		Stale:       atomic.LoadUint64(&h.stale),
		Untold:      atomic.LoadUint64(&h.untold),

		AttributesFull: atomic.LoadUint64(&h.client().AttributesRefused),
	}
}

// put copies a text, cut to fit, and fills up with NULs.
func put(to []byte, text string) {
	clear(to[copy(to[:len(to)-1], text):])
}
