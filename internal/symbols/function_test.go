package symbols

import (
	"bytes"
	"os"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/tracker/usdt"
)

// FuzzProgram proves that looking for functions and probes in any file neither
// fails badly nor finds what cannot be.
func FuzzProgram(f *testing.F) {
	if text, err := os.ReadFile("/bin/true"); err == nil {
		f.Add(text, "main")
	}
	f.Add([]byte("\x7fELF\x02\x01\x01"), "x")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		e, err := newELF(bytes.NewReader(data))
		if err != nil {
			return
		}
		m := &mapped{elf: e, data: data}
		at, _, err := m.function(name)
		assert.Check(t, err != nil || at != 0 && at < uint64(len(data)),
			"function %q is at %#x of %d bytes", name, at, len(data))
		notes, err := usdt.Notes(e)
		if err != nil {
			return
		}
		text, err := m.slice(notes.Offset, notes.FileSize)
		if err != nil {
			return
		}
		list, err := usdt.Places(e, text, "p", name)
		assert.Check(t, err != nil || len(list) <= usdt.MaxPlaces, "%d places", len(list))
	})
}
