package kernel

import (
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// TestMapSizes: what is allocated as a whole is known, what grows is asked for again, and what is
// gone is forgotten.
func TestMapSizes(t *testing.T) {
	make := func(kind ebpf.MapType, flags uint32) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: kind, KeySize: 4, ValueSize: 1024, MaxEntries: 1024, Flags: flags})
		assert.NilError(t, err)
		t.Cleanup(func() { assert.NilError(t, m.Close()) })
		return m
	}
	says := func(maps ...*ebpf.Map) (sum uint64) {
		for _, m := range maps {
			info, err := m.Info()
			assert.NilError(t, err)
			n, ok := info.Memlock()
			assert.Assert(t, ok && n > 0)
			sum += n
		}
		return sum
	}
	array, hash := make(ebpf.Array, 0), make(ebpf.Hash, unix.BPF_F_NO_PREALLOC)
	var s MapSizes
	for filled := range uint32(3) {
		for i := range 300 * filled {
			assert.NilError(t, hash.Put(i, [1024]byte{}))
		}
		assert.Equal(t, s.Sum([]*ebpf.Map{array, hash}), says(array, hash))
		assert.Check(t, len(s.known) == 1 && s.known[array] == says(array), "%v", s.known)
	}
	assert.Equal(t, s.Sum([]*ebpf.Map{hash}), says(hash))
	assert.Equal(t, len(s.known), 0)
}
