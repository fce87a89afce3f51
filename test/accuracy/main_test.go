package accuracy

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tailcam/tailcam/test/support/inject"
)

//go:embed src/*.c src/*.h
var sources embed.FS

// built is what TestMain has made.
var built struct {
	tailcam string
	program string // of the scenarios
}

var (
	tablePath = flag.String("table", "", "write the score to this `file`")
	keepDir   = flag.String("keep", "", "copy each scenario's snapshot below this `directory`")
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == roleSlowDisk {
		if err := serveSlowDisk(); err != nil {
			fmt.Fprintf(os.Stderr, "the slow disk: %v\n", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return m.Run() // everything skips
	}
	dir, err := os.MkdirTemp("", "tailcam-scenarios-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "build what is tested: %v\n", err)
		return 1
	}
	return m.Run()
}

func build(dir string) error {
	if err := lookAtSources(); err != nil {
		return err
	}
	built.tailcam = filepath.Join(dir, "tailcam")
	cmd := exec.Command("go", "build", "-o", built.tailcam, "github.com/tailcam/tailcam/cmd/tailcam")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	built.program = filepath.Join(dir, "scenario")
	return inject.CompileWith("gcc", built.program, sources)
}

// lookAtSources makes go test notice that the result of an earlier run is out of
// date: it knows which files this program looks at, not what go build reads.
func lookAtSources() error {
	return filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if ext := filepath.Ext(path); err == nil && (ext == ".go" || ext == ".o") {
			_, err = os.Stat(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}
