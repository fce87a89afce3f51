package watch

import (
	"bytes"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Maps are the two arrays of a process, mapped. The process writes Shared, at any time and
// whatever it likes; the kernel side writes Accounts.
type Maps struct {
	Shared, Accounts []byte
	Threads, Tokens  int
	Attributes       int // that tokens can have, after them in Shared
}

// Valid reports whether both arrays have the elements that there should be.
func (m *Maps) Valid() bool {
	n := 1 + m.Threads + m.Tokens
	return m.Threads > 0 && m.Tokens > 0 && len(m.Shared) >= (n+m.Attributes)*abi.ActivitySharedBytes && len(m.Accounts) >= n*abi.ActivityAccountBytes
}

// first is the index of the first token.
func (m *Maps) first() uint32 { return uint32(m.Threads) + 1 }

func sharedAt[T abi.ActivityThread | abi.ActivityToken | abi.ActivityClient | abi.ActivityAttribute](m *Maps, index uint32) *T {
	return (*T)(unsafe.Pointer(&m.Shared[int(index)*abi.ActivitySharedBytes]))
}

func accountsAt[T abi.ActivityThreadState | abi.ActivityAccount | abi.ActivityHeader](m *Maps, index uint32) *T {
	return (*T)(unsafe.Pointer(&m.Accounts[int(index)*abi.ActivityAccountBytes]))
}

func (m *Maps) generation(token uint32) uint32 {
	return atomic.LoadUint32(&sharedAt[abi.ActivityToken](m, token).Generation)
}

// tries is how often something is read until it stays as it is.
const tries = 4

// token returns a copy; false: it changes too often.
func (m *Maps) token(index uint32) (t Token, ok bool) {
	for range tries {
		raw := *sharedAt[abi.ActivityToken](m, index)
		if raw.Generation != m.generation(index) {
			continue
		}
		return Token{
			Generation: raw.Generation, BeginNS: raw.BeginNs, EndNS: raw.EndNs, CPUNS: raw.CpuNs, WallNS: raw.WallNs,
			Value: raw.Value, TraceID: raw.TraceId, SpanID: raw.SpanId, Name: ownText(raw.Name[:]), Text: ownText(raw.Text[:]),
			Attributes: m.attributes(&raw.Attributes),
		}, true
	}
	return Token{}, false
}

// ownText is a program's text up to its NUL, which may be missing. What is no UTF-8 is
// replaced: it ends up in labels and JSON.
func ownText(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// both returns what a token and its account are at one time: that of a token that has ended
// is what it was then.
func (m *Maps) both(index uint32) (Token, *Values, bool) {
	for range tries {
		t, ok := m.token(index)
		v, of := m.account(index)
		if !ok || t.Generation != m.generation(index) || of != m.accountOf(index) {
			continue
		}
		if of != t.used() {
			v = &Values{} // nothing was credited to it
		}
		return t, v, true
	}
	return Token{}, nil, false
}

// used is the generation in which the token is live, or was last.
func (t *Token) used() uint32 { return t.Generation - 1 + t.Generation&1 }

func (m *Maps) accountOf(token uint32) uint32 {
	return atomic.LoadUint32(&accountsAt[abi.ActivityAccount](m, token).Generation)
}

func (m *Maps) account(token uint32) (*Values, uint32) {
	of := m.accountOf(token)
	raw := accountsAt[abi.ActivityAccount](m, token)
	v := &Values{}
	for i := range abi.ActivityValues {
		v[i] = atomic.LoadUint64(&raw.Value[i])
	}
	return v, of
}

// thread returns what the slot of a thread holds, of one time; TID 0: it is free, or
// changes too often.
func (m *Maps) thread(slot int) Thread {
	index := uint32(slot) + 1
	for range tries {
		state := *accountsAt[abi.ActivityThreadState](m, index)
		raw := *sharedAt[abi.ActivityThread](m, index)
		if now := accountsAt[abi.ActivityThreadState](m, index); state.Slices != atomic.LoadUint32(&now.Slices) ||
			state.OutNs != atomic.LoadUint64(&now.OutNs) || raw.Seq != atomic.LoadUint32(&sharedAt[abi.ActivityThread](m, index).Seq) {
			continue
		}
		t := Thread{TID: int(int32(raw.Tid)), Seq: raw.Seq}
		for i := range t.Half {
			h := raw.Half[(raw.Seq+uint32(i))&1]
			t.Half[i] = Half{Token: h.Token, Generation: h.Generation, SinceNS: h.SinceNs}
		}
		if state.Tid == raw.Tid {
			t.SliceNS, t.OutNS, t.WakingNS, t.Cause = state.SliceNs, state.OutNs, state.WakingNs, state.Cause
		}
		return t
	}
	return Thread{}
}
