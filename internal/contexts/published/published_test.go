package published

import (
	"encoding/binary"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/threadctx"
)

func field(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

func attribute(b []byte, key string, value []byte) []byte {
	return field(b, contextAttributes, field(field(nil, keyValueKey, []byte(key)), keyValueValue, value))
}

func text(s string) []byte { return field(nil, anyString, []byte(s)) }

func array(values ...[]byte) []byte {
	var list []byte
	for _, v := range values {
		list = field(list, arrayValues, v)
	}
	return field(nil, anyArray, list)
}

// context is a payload with names of attributes.
func context(names ...string) []byte {
	var values [][]byte
	for _, name := range names {
		values = append(values, text(name))
	}
	resource := field(nil, 1, attribute(nil, "service.name", text("shop"))) // another message, of no interest
	b := field(nil, 1, resource)
	return attribute(attribute(b, schemaKey, text("tls_v1")), keyMapKey, array(values...))
}

// mapping is a process context of this process.
type mapping struct{ memory []byte }

func publish(t *testing.T) mapping {
	t.Helper()
	fd, err := unix.MemfdCreate("OTEL_CTX", unix.MFD_CLOEXEC)
	assert.NilError(t, err)
	defer unix.Close(fd)
	assert.NilError(t, unix.Ftruncate(fd, 4096))
	memory, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, unix.Munmap(memory)) })
	return mapping{memory}
}

func (m mapping) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&m.memory[at])) }

// set writes a payload as the OTEP wants updates to be.
func (m mapping) set(payload []byte, published uint64) {
	atomic.StoreUint64(m.word(16), 0)
	n := copy(m.memory[headerBytes:], payload)
	copy(m.memory, signature)
	atomic.StoreUint64(m.word(8), version|uint64(n)<<32)
	atomic.StoreUint64(m.word(24), uint64(uintptr(unsafe.Pointer(&m.memory[headerBytes]))))
	atomic.StoreUint64(m.word(16), published)
}

func TestKeys(t *testing.T) {
	_, _, err := Keys(os.Getpid())
	assert.Check(t, is.ErrorIs(err, ErrNone))
	m := publish(t)
	m.set(context("http.route", "user.id"), 1)
	keys, image, err := Keys(os.Getpid())
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(keys, []string{"http.route", "user.id"}))
	assert.Check(t, image.StartStack != 0)
	for _, pid := range []int{-1, 0, 2, 1 << 30} {
		_, _, err := Keys(pid)
		assert.Check(t, err != nil, "process %d", pid)
	}
}

// Of a program in C that publishes as an SDK does.
func TestKeysOfProgram(t *testing.T) {
	p := threadctx.Ways()[3].Build(t).Start(t, "place")
	keys, _, err := Keys(p.PID())
	assert.Check(t, err)
	assert.Check(t, is.DeepEqual(keys, []string{"user.id", "http.route", "http.request.method"}))
	p.Go()
	p.Places(2)
	p.End()
}

// What is read while it is written is one of what was written, or nothing.
func TestUpdates(t *testing.T) {
	m := publish(t)
	short, long := []string{"a"}, []string{"a", "b", "c"}
	m.set(context(short...), 1)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := uint64(2); ; n++ {
			select {
			case <-stop:
				return
			default:
				m.set(context([][]string{short, long}[n%2]...), n)
			}
		}
	}()
	read := 0
	for range 500 {
		keys, _, err := Keys(os.Getpid())
		if err == nil {
			assert.Check(t, slices.Equal(keys, short) || slices.Equal(keys, long), "%q", keys)
			read++
		}
	}
	close(stop)
	<-ended
	t.Log(read, "of 500 were read while they were written")
	_, _, err := Keys(os.Getpid())
	assert.Check(t, err)
}

// What a process makes up is an error, and takes no more than its bounds.
func TestHostile(t *testing.T) {
	good := context("a")
	for name, change := range map[string]func(m mapping){
		"another version":        func(m mapping) { m.memory[8] = 1 },
		"another signature":      func(m mapping) { m.memory[7]++ },
		"being written":          func(m mapping) { *m.word(16) = 0 },
		"no payload":             func(m mapping) { binary.NativeEndian.PutUint32(m.memory[12:], 0) },
		"a huge payload":         func(m mapping) { binary.NativeEndian.PutUint32(m.memory[12:], 1<<32-1) },
		"more than allowed":      func(m mapping) { binary.NativeEndian.PutUint32(m.memory[12:], maxPayload+1) },
		"past its end":           func(m mapping) { binary.NativeEndian.PutUint32(m.memory[12:], maxPayload) },
		"no memory there":        func(m mapping) { *m.word(24) = 16 },
		"an address of none":     func(m mapping) { *m.word(24) = 1 << 63 },
		"the end of them":        func(m mapping) { *m.word(24) = 1<<64 - 1 },
		"garbage":                func(m mapping) { m.memory[headerBytes] = 0xff },
		"cut off":                func(m mapping) { m.memory[12]-- },
		"no schema":              func(m mapping) { m.set(attribute(nil, keyMapKey, array(text("a"))), 1) },
		"another schema":         func(m mapping) { m.set(attribute(good, schemaKey, text("go_pprof_labels_v1")), 1) },
		"no names":               func(m mapping) { m.set(attribute(nil, schemaKey, text("tls_v1")), 1) },
		"names are no array":     func(m mapping) { m.set(attribute(good, keyMapKey, text("a")), 1) },
		"names are an empty one": func(m mapping) { m.set(attribute(good, keyMapKey, array()), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			m := publish(t)
			m.set(good, 1)
			change(m)
			keys, _, err := Keys(os.Getpid())
			assert.Check(t, err != nil, "%q", keys)
		})
	}
}

// Mappings that have the name and are no process context do not hide one, unless they are many.
func TestManyMappings(t *testing.T) {
	for range maxMappings + 2 {
		publish(t)
	}
	_, _, err := Keys(os.Getpid())
	assert.Check(t, is.ErrorIs(err, ErrNone))
}

func TestParse(t *testing.T) {
	keys, err := Parse(attribute(context(), keyMapKey, array(text("a"), field(nil, 4, nil), text("c"))))
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(keys, []string{"a", "", "c"}), "one that is no string has its number")
	keys, err = Parse(context(make([]string, maxKeys+44)...))
	assert.Check(t, err == nil && len(keys) == maxKeys, "%d, %v", len(keys), err)
}

func FuzzParse(f *testing.F) {
	f.Add(context("http.route", "user.id"))
	f.Add(context())
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := Parse(b)
		assert.Check(t, (err != nil) == (keys == nil))
		assert.Check(t, len(keys) <= maxKeys)
	})
}
