package tailcam

import (
	"bytes"
	"hash/fnv"
	"sync/atomic"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
)

// SetAttribute sets an attribute of the request, such as http.route, that tailcam groups and
// filters by. A process has at most 256 different ones, and a token four: more are counted. The
// key is cut at 31 bytes, the value at 91. The same key again replaces its value, and "" takes it
// away. Only one goroutine may do so at a time. False: the token has ended, or there was no room.
func (h *Handle) SetAttribute(t Token, key, value string) bool {
	e := h.find(t)
	if e == nil || key == "" {
		return false
	}
	want := abi.ActivityAttribute{}
	put(want.Key[:], key)
	at := len(e.Attributes)
	for i := range e.Attributes {
		number := uint32(e.Attributes[i])
		if number == 0 || number > h.pairs {
			at = min(at, i)
		} else if h.pair(number).Key == want.Key {
			at = i
			break
		}
	}
	var number uint16
	if put(want.Value[:], value); value != "" && at < len(e.Attributes) {
		number = uint16(h.number(&want))
	}
	if at < len(e.Attributes) {
		e.Attributes[at] = number
	}
	if number == 0 && value != "" {
		atomic.AddUint64(&h.client().AttributesRefused, 1)
		return false
	}
	return true
}

// pair is an attribute by its number, from 1 on.
func (h *Handle) pair(number uint32) *abi.ActivityAttribute {
	return (*abi.ActivityAttribute)(unsafe.Pointer(&h.shared[(h.first+h.tokens+number-1)*abi.ActivitySharedBytes]))
}

// number finds an attribute, or writes it if it is not there; 0: no place is free.
func (h *Handle) number(want *abi.ActivityAttribute) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write(bytes.TrimRight(want.Key[:], "\x00")) // it never fails
	_, _ = hash.Write(bytes.TrimRight(want.Value[:], "\x00"))
	start := hash.Sum32()
	for i := range h.pairs {
		number := 1 + (start+i)%h.pairs
		p := h.pair(number)
		if atomic.CompareAndSwapUint32(&p.State, abi.ActivityAttributeFree, abi.ActivityAttributeClaimed) {
			p.Key, p.Value = want.Key, want.Value
			atomic.StoreUint32(&p.State, abi.ActivityAttributeReady)
			return number
		}
		if atomic.LoadUint32(&p.State) == abi.ActivityAttributeReady && p.Key == want.Key && p.Value == want.Value {
			return number
		}
	}
	return 0
}
