package symbols

import (
	"bytes"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// vdso is the kernel's vDSO, read from this process. Processes of another word size
// have another one.
type vdso struct {
	once   sync.Once
	table  *table
	frames *unwindFile // nil: without call frame information
	size   uint64
	data   *bytes.Reader
}

const maxVDSO = 1 << 20

func (v *vdso) resolve(h hit, addrs []uint64, out *result) {
	v.once.Do(v.load)
	if v.table == nil || h.end-h.start != v.size {
		return
	}
	m := h.mapping
	m.offset = 0
	for _, f := range h.frames {
		_, _ = v.table.describe(v.data, f, m, addrs, out)
	}
}

// load leaves table nil if there is no vDSO.
func (v *vdso) load() {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	var own mapping
	if scanMaps(maps, func(m mapping) bool {
		if m.name == "[vdso]" {
			own = m
		}
		return own.end == 0
	}) != nil || own.end == 0 || own.end-own.start > maxVDSO {
		return
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return
	}
	defer mem.Close()
	data := make([]byte, own.end-own.start)
	if _, err := mem.ReadAt(data, int64(own.start)); err != nil {
		return
	}
	v.data, v.size = bytes.NewReader(data), own.end-own.start
	if t, err := readTable(v.data, 1<<16); err == nil {
		v.table = t
	}
	v.loadFrames(data)
}

// loadFrames maps a copy of the vDSO as a file would be.
func (v *vdso) loadFrames(data []byte) {
	b, err := unix.Mmap(-1, 0, len(data), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return
	}
	copy(b, data)
	m, err := newMapped(b)
	if err != nil {
		return
	}
	u := &unwindFile{mapped: m}
	if u.read() == nil {
		v.frames = u
	}
}

// unwinding returns the call frame information of the vDSO; nil: it has none, or m is
// that of another word size.
func (v *vdso) unwinding(m mapping) *unwindFile {
	v.once.Do(v.load)
	if m.end-m.start != v.size {
		return nil
	}
	return v.frames
}
