package watch

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
)

const fuzzTokens = 8

// everything fires for any activity, and follows names.
const everything = `rules:
- {name: slow, track: activity, threshold: 1ms, timeout: 10ms, repeat: 10ms, histogram: true}
- {name: named, track: activity, threshold: 1us, when: {name: ["check*"]}}
`

// scribbler writes into the maps of a process, as its input says.
type scribbler struct {
	*world
	*program
	in  []byte
	all []*Record // that were asked for
}

func (s *scribbler) byte() byte {
	if len(s.in) == 0 {
		return 0
	}
	b := s.in[0]
	s.in = s.in[1:]
	return b
}

// into copies some of the input to an element, which is of size bytes.
func (s *scribbler) into(b []byte, size int) {
	element, at, n := int(s.byte())*size%len(b), int(s.byte()), int(s.byte())
	to := b[element : element+size]
	at %= size
	k := copy(to[at:min(at+n, size)], s.in)
	s.in = s.in[k:]
}

// step does one thing that a process, the kernel side or the daemon may do at any time.
func (s *scribbler) step() {
	switch s.byte() % 8 {
	case 0:
		s.into(s.maps.Shared, abi.ActivitySharedBytes)
	case 1:
		s.into(s.maps.Accounts, abi.ActivityAccountBytes)
	case 2:
		s.begin(int(s.byte())%fuzzTokens, "check\xff")
	case 3:
		s.end(int(s.byte()) % fuzzTokens)
	case 4:
		s.carry(int(s.byte())%4, int(s.byte()), int(s.byte())%fuzzTokens)
	case 5:
		s.world.now += uint64(s.byte()) << (s.byte() % 32)
	case 6:
		s.Slow(s.key, uint32(s.byte()))
		s.Slow(s.key, binary.LittleEndian.Uint32([]byte{s.byte(), s.byte(), s.byte(), s.byte()}))
	case 7:
		s.Scan()
		from := uint64(s.byte()) << (s.byte() % 64)
		if r := s.Carried(s.program.PID(), int(s.byte()), from, s.world.now); r != nil {
			s.all = append(s.all, r)
		}
	}
}

// plausible checks what is told of an activity, whatever its process has written.
func plausible(t *testing.T, r *Record, now uint64) {
	t.Helper()
	assert.Check(t, r.Begin <= r.End && r.End <= now && r.Begin >= 1, "%+v at %d", r, now)
	for _, text := range []string{r.Name, r.Text} {
		assert.Check(t, utf8.ValidString(text) && !strings.Contains(text, "\x00") && len(text) <= 3*abi.ActivityNameLen, "%q", text)
	}
	assert.Check(t, len(r.Threads) <= maxThreads && len(r.Attributes) <= abi.ActivityTokenAttributes, "%+v", r)
	for key, value := range r.Attributes {
		assert.Check(t, key != "" && value != "" && utf8.ValidString(key) && utf8.ValidString(value), "%q: %q", key, value)
	}
	assert.Check(t, r.TraceID == "" && r.SpanID == "" || len(r.TraceID) == 32 && len(r.SpanID) == 16, "%+v", r)
	assert.Check(t, r.Values[unexplained] <= r.Values[wall], "%+v", r)
	_ = r.Values.ByName()
}

// FuzzMaps: whatever a process writes into its maps, in whichever order with what the kernel side
// and the daemon do, the daemon reads nothing outside, ends, and tells what may be.
func FuzzMaps(f *testing.F) {
	f.Add([]byte("\x02\x00\x07\x04\x00\x07\x00\x05\xff\x14\x07\x03\x00\x06\x05\x00\x00\x00\x00\x07"))
	f.Add([]byte("\x02\x01\x07\x05\xff\x1f\x07\x00\x05\x00\x30\xff\xff\xff\xff\x07\x02\x01\x07\x07"))
	f.Add([]byte("\x00\x01\x00\xff" + strings.Repeat("\xff", 128) + "\x01\x01\x00\xff" + strings.Repeat("\xff", 255) + "\x07\x07\x05\x01\x0a\x07"))
	f.Add([]byte("\x00\x01\x00\x18\x07\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x01" + strings.Repeat("\x00", 11) + "\x07\x01\x3f\x07"))
	list, err := rules.Parse("f", []byte(everything), &rules.LocalMachine{})
	assert.NilError(f, err)
	f.Fuzz(func(t *testing.T, in []byte) {
		w := newWorld(t, "")
		w.Set(list)
		s := &scribbler{world: w, program: w.add(fuzzTokens), in: in}
		silent := w.add(fuzzTokens)
		for len(s.in) > 0 {
			s.step()
			for _, f := range w.fired {
				plausible(t, f.Record, w.now)
			}
			w.fired = nil
		}
		r := w.Report(true)
		assert.Check(t, len(r.Live) <= r.LiveCount && r.LiveCount <= fuzzTokens, "%d of %d", len(r.Live), r.LiveCount)
		for _, r := range append(append(s.all, r.Live...), r.Ended...) {
			plausible(t, r, w.now)
			assert.Check(t, r.UID == s.UID(), "what another has written")
		}
		for _, b := range [][]byte{silent.maps.Shared, silent.maps.Accounts} {
			assert.Check(t, strings.Trim(string(b), "\x00") == "")
		}
		u := w.Use()
		assert.Check(t, u.Threads <= silent.maps.Threads && u.LiveTokens <= fuzzTokens, "%+v", u)
		c, _ := w.Counts()
		assert.Check(t, c.TokensRefused <= w.now && c.ThreadsRefused <= w.now, "%+v", c)
	})
}
