package process

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestKeptIsSmall: what is kept of a process is short, however much its files say.
func TestKeptIsSmall(t *testing.T) {
	const processes, most = 2000, 2 << 10
	var text bytes.Buffer
	for _, controllers := range []string{"cpu,cpuacct", "memory", "blkio", "name=" + strings.Repeat("x", 6<<10)} {
		text.WriteString("7:" + controllers + ":/short\n")
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	kept := make([]Identity, processes)
	before := heap()
	for i := range kept {
		var err error
		kept[i], _, err = describe(func(name string, _ int) ([]byte, error) {
			if name == "cgroup" {
				return bytes.Clone(text.Bytes()), nil
			}
			return []byte("program\x00"), nil
		}, "program")
		assert.NilError(t, err)
	}
	each := int64(heap()-before) / processes
	assert.Check(t, each < most, "%d bytes of each", each)
	assert.Equal(t, kept[processes-1].CPUCgroup, "/short")
}
