package redacted

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/pack"
	"github.com/tailcam/tailcam/internal/redact"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// BenchmarkPack packs a snapshot of 60,000 switches, as it is and redacted.
func BenchmarkPack(b *testing.B) {
	dir := plant(b)
	var records []trace.Record
	for i := range uint64(60_000) {
		records = append(records, swtch(i*1000, 10+int(i%50), planted["comm"], 1, 10+int((i+1)%50), planted["hog"]))
	}
	at := filepath.Join(dir, snapshot.TraceDir)
	assert.NilError(b, os.RemoveAll(at))
	assert.NilError(b, trace.Write(at, trace.Trace{
		CPUs: []trace.CPU{{CPU: 0, Records: records}}, Compress: true, Env: trace.Env{KernelRelease: "6.12.0", Machine: "x86_64"},
		SyscallName: func(int) string { return "read" },
	}))
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			_, err := pack.Write(io.Discard, dir)
			assert.NilError(b, err)
		}
	})
	b.Run("redacted", func(b *testing.B) {
		for b.Loop() {
			to := filepath.Join(b.TempDir(), filepath.Base(dir))
			s, err := Copy(b.Context(), to, dir, redact.Usual)
			assert.NilError(b, err)
			_, err = pack.WriteRedacted(io.Discard, to, s)
			assert.NilError(b, err)
			assert.NilError(b, os.RemoveAll(to))
		}
	})
}
