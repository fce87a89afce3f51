package detect

import (
	"os"
	"testing"

	program "github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// TestMain lets the test program be a child of the slow disk, too.
func TestMain(m *testing.M) {
	provoke.Child()
	if len(os.Args) > 1 && os.Args[1] == program.Verb {
		os.Exit(program.Main(os.Args[2:]))
	}
	code := m.Run()
	inject.Remove()
	os.Exit(code)
}
