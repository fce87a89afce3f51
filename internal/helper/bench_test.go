package helper

import (
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/symbols"
)

// BenchmarkUser is what a stack costs whose files are known, through the helper
// and in the same process.
func BenchmarkUser(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("not root")
	}
	p := start(b, 0, build(b, "deep"))
	h, err := New(nil)
	assert.NilError(b, err)
	defer h.Close()
	addrs := h.UserStack(p.thread(b)).Addrs
	r := symbols.New(nil)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		h.User(p.pid, addrs)
		r.User(p.pid, addrs)
	}
	h.accounts = newAccounts()
	b.Run("helper", func(b *testing.B) {
		for b.Loop() {
			h.User(p.pid, addrs)
			if b.N%1000 == 0 {
				h.accounts = newAccounts()
			}
		}
	})
	b.Run("same process", func(b *testing.B) {
		for b.Loop() {
			r.User(p.pid, addrs)
		}
	})
	b.Run("stack", func(b *testing.B) {
		for b.Loop() {
			s := h.UserStack(p.thread(b))
			assert.Equal(b, s.Missing, "")
			if b.N%1000 == 0 {
				h.accounts = newAccounts()
			}
		}
	})
	b.Run("start", func(b *testing.B) {
		for b.Loop() {
			w, err := h.starter.launch(h.names.role)
			assert.NilError(b, err)
			w.kill()
		}
	})
	b.Logf("%d frames, %+v", len(addrs), h.Stats())
}
