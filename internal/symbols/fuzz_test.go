package symbols

import (
	"flag"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/sandbox"
)

// What a parsing helper may have, and the fuzzer beside it: its corpus, and what
// it has not collected yet.
const (
	helperMemory = 256 << 20
	fuzzerMemory = 512 << 20
)

// limitFuzz gives a worker of go test -fuzz the memory of a helper: an input that
// takes more ends it, and go test keeps the input. The process that runs the
// other tests, or leads the workers, stays as it is.
func limitFuzz(f *testing.F) {
	f.Helper()
	if !isFuzzWorker() {
		return
	}
	assert.NilError(f, sandbox.LimitMemory(helperMemory+fuzzerMemory))
}

// isFuzzWorker reports whether this process only tries what another one sends.
func isFuzzWorker() bool {
	worker := flag.Lookup("test.fuzzworker")
	return worker != nil && worker.Value.String() == "true"
}
