package contexts

import (
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/tracker/events"
)

// threadContext is as programs publish it.
type threadContext struct {
	trace [16]byte
	span  [8]byte
	valid uint64
}

// TestRead: the context of a thread is read from the memory of this process; what is no context,
// or none of this program, is not believed.
func TestRead(t *testing.T) {
	from := here{symbols.New(nil)}
	_, image, err := from.Words(os.Getpid())
	assert.NilError(t, err)
	r := &threadContext{trace: [16]byte{1}, span: [8]byte{2}, valid: 1}
	variable := new(uint64)
	thread := abi.ContextThread{
		Pid: uint32(os.Getpid()), Tid: 7, Pointer: uint64(uintptr(unsafe.Pointer(variable))) + 8,
		Place: abi.ContextPlace{Offset: -8, StartCode: image.StartCode, StartStack: image.StartStack},
	}
	read := func(threads ...abi.ContextThread) []Thread { return Read(from, threads, time.Now().Add(time.Minute)) }
	*variable = uint64(uintptr(unsafe.Pointer(r)))
	want := Thread{PID: os.Getpid(), TID: 7, Trace: events.Trace{ID: r.trace, Span: r.span}}
	assert.DeepEqual(t, read(thread), []Thread{want})

	other := thread
	other.Place.StartStack++
	assert.Equal(t, len(read(other, thread)), 0, "another program by now")
	nowhere := thread
	nowhere.Pointer = 64
	assert.DeepEqual(t, read(nowhere, thread), []Thread{want})
	module := thread
	module.Place.Module, module.Place.Entry = 3, 16
	assert.DeepEqual(t, read(module, thread), []Thread{want})
	assert.Equal(t, len(Read(from, []abi.ContextThread{thread}, time.Now())), 0, "no time")

	for what, make := range map[string]func(){
		"not valid":  func() { r.valid = 2 },
		"no trace":   func() { r.trace = [16]byte{} },
		"no span":    func() { r.span = [8]byte{} },
		"odd":        func() { *variable++ },
		"not mapped": func() { *variable = 8 },
		"none":       func() { *variable = 0 },
	} {
		before, at := *r, *variable
		make()
		assert.Equal(t, len(read(thread)), 0, what)
		*r, *variable = before, at
	}
	runtime.KeepAlive(r)
}
