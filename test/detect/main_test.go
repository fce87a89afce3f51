package detect

import (
	"os"
	"testing"

	program "github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/test/inject"
	"github.com/tailcam/tailcam/test/recorded"
)

// TestMain lets the test program be a child of the slow disk, too.
func TestMain(m *testing.M) {
	recorded.Child()
	if len(os.Args) > 1 && os.Args[1] == program.Verb {
		os.Exit(program.Main(os.Args[2:]))
	}
	code := m.Run()
	inject.Remove()
	os.Exit(code)
}
