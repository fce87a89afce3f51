package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	slow "github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/inject"
)

// built is what TestMain has made for all tests.
var built struct{ tailcam string }

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == slow.Verb {
		os.Exit(slow.Main(os.Args[2:])) // a child of the slow disk
	}
	if len(os.Args) > 1 && os.Args[1] == webRole {
		os.Exit(serveWeb())
	}
	if len(os.Args) == 3 && os.Args[1] == slowThreadVerb {
		os.Exit(slowThread(os.Args[2]))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return m.Run() // everything skips
	}
	base, name := "", "tailcam-test-"
	if underUnit {
		base, name = visibleDir, "tailcam-unit-" // mounts of the tests themselves lie below it
	}
	dir, err := os.MkdirTemp(base, name)
	if err == nil {
		defer os.RemoveAll(dir) // a directory in the temporary one
		if underUnit {
			os.Setenv("TMPDIR", dir)
		}
		defer inject.Remove()
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "build what is tested: %v\n", err)
		return 1
	}
	return m.Run()
}

// build makes the program where every user may execute it.
func build(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	built.tailcam = filepath.Join(dir, "tailcam")
	return child.BuildTailcam("../../..", built.tailcam, ".go", ".o", ".sh", ".yaml")
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs into the kernel")
	}
	if testing.Short() {
		t.Skip("takes seconds: left out with -short")
	}
}

func needTool(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s (apt install %s)", name, pkg)
	}
	return path
}

var uids atomic.Int64

// newUID returns a user id that nobody on the machine has, not even another
// run of these tests at the same time.
func newUID() int {
	return 100000 + os.Getpid()%100000*100 + int(uids.Add(1))
}

// hang is how long a test waits for what has to happen before it gives up.
const hang = 60 * time.Second

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !holds(); {
		assert.Assert(t, !time.Now().After(end), "waited %s in vain until %s", hang, what)
		time.Sleep(5 * time.Millisecond)
	}
}

// publicDir is a temporary directory that every user may enter, below base; "" is the usual place.
func publicDir(t *testing.T, base string) string {
	t.Helper()
	dir, err := os.MkdirTemp(base, "tailcam-test-")
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, os.RemoveAll(dir))
	})
	assert.NilError(t, os.Chmod(dir, 0o755))
	return dir
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	assert.NilError(t, os.WriteFile(path, []byte(text), mode))
	assert.NilError(t, os.Chmod(path, mode)) // whatever the umask
	return path
}
