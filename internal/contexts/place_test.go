package contexts

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/test/support/threadctx"
)

// here reads in this process.
type here struct{ *symbols.Resolver }

func (here) Words(pid int, addrs ...uint64) ([]uint64, process.Image, error) {
	return process.Words(pid, addrs...)
}

// A variable is where the kernel side will look for it, in each thread, however it is linked.
func TestFind(t *testing.T) {
	from := here{symbols.New(nil)}
	for _, way := range threadctx.Ways() {
		t.Run(way.Name, func(t *testing.T) {
			p := way.Build(t).Start(t, "place")
			place, err := Find(from, p.PID())
			assert.NilError(t, err)
			_, image, err := from.Words(p.PID())
			assert.NilError(t, err)
			assert.Check(t, image == process.Image{StartCode: place.StartCode, StartStack: place.StartStack}, "%+v, %+v", image, place)
			p.Go()
			for _, thread := range p.Places(2) {
				at, err := variableAt(from, p.PID(), &place, thread.Pointer)
				assert.NilError(t, err)
				assert.Check(t, is.Equal(at, thread.Variable), "thread %+v, place %+v", thread, place)
			}
			p.End()
		})
	}
}

func TestFindNothing(t *testing.T) {
	from := here{symbols.New(nil)}
	_, err := Find(from, os.Getpid())
	assert.Check(t, is.ErrorIs(err, symbols.ErrNoThreadLocal), "this process")
	for _, pid := range []int{0, 2, -1, 1 << 30} {
		_, err := Find(from, pid)
		assert.Check(t, err != nil, "process %d", pid)
	}
}

// made makes up what a process says.
type made struct {
	v      symbols.ThreadLocal
	words  []uint64
	images []process.Image // of each call
}

func (m *made) ThreadLocal(int, string) (symbols.ThreadLocal, error) { return m.v, nil }

func (m *made) Words(_ int, addrs ...uint64) ([]uint64, process.Image, error) {
	image := process.Image{StartCode: 1, StartStack: 2}
	if len(m.images) > 0 {
		image, m.images = m.images[0], m.images[1:]
	}
	var words []uint64
	words, m.words = m.words[:len(addrs)], m.words[len(addrs):]
	return words, image, nil
}

// What a process makes up gives no place, or one in its own memory.
func TestFindHostile(t *testing.T) {
	const address = 0x7f0000001000
	other := []process.Image{{StartCode: 1, StartStack: 2}, {StartCode: 1, StartStack: 3}}
	for name, m := range map[string]*made{
		"offset 0":                 {v: symbols.ThreadLocal{Kind: symbols.ThreadLocalOffset}, words: []uint64{0}},
		"offset is an address":     {v: symbols.ThreadLocal{Kind: symbols.ThreadLocalOffset}, words: []uint64{address}},
		"least offset":             {v: symbols.ThreadLocal{Kind: symbols.ThreadLocalOffset}, words: []uint64{1 << 63}},
		"module 0":                 {v: symbols.ThreadLocal{Kind: symbols.ThreadLocalModule}, words: []uint64{0}},
		"module is an address":     {v: symbols.ThreadLocal{Kind: symbols.ThreadLocalModule}, words: []uint64{address}},
		"descriptor not resolved":  {v: symbols.ThreadLocal{Kind: symbols.ThreadLocalDescriptor, Offset: 8}, words: []uint64{address, 1, 16}},
		"module 0 of a descriptor": {v: symbols.ThreadLocal{Kind: symbols.ThreadLocalDescriptor, Offset: 8}, words: []uint64{address, 0, 8}},
		"no kind that there is":    {v: symbols.ThreadLocal{Kind: 200, Offset: 1 << 40}},
		"another program by now":   {v: symbols.ThreadLocal{Kind: symbols.ThreadLocalFixed, Offset: -8}, images: other},
	} {
		place, err := Find(m, 1)
		assert.Check(t, err != nil, "%s: %+v", name, place)
	}
	place, err := Find(&made{v: symbols.ThreadLocal{Kind: symbols.ThreadLocalDescriptor, Offset: 8}, words: []uint64{address, 3, 8}}, 1)
	assert.Check(t, err == nil && place.Module == 3 && place.Offset == 8 && place.Entry == 16, "%+v, %v", place, err)
}
