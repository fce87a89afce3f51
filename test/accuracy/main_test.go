package accuracy

import (
	"embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tailcam/tailcam/test/support/child"
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
	runAll    = flag.Bool("all", false, "run those scenarios, too, that take seconds")
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
	built.tailcam = filepath.Join(dir, "tailcam")
	if err := child.BuildTailcam("../..", built.tailcam, ".go", ".o"); err != nil {
		return err
	}
	built.program = filepath.Join(dir, "scenario")
	src := filepath.Join(dir, "sources")
	if err := os.CopyFS(src, sources); err != nil {
		return err
	}
	const traces = "../support/threadctx/src/"
	for _, file := range []string{"../../clients/c/tailcam.h", traces + "threadctx.h", traces + "variable.c"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(src, "src", filepath.Base(file)), text, 0o600); err != nil {
			return err
		}
	}
	return inject.CompileWith("gcc", built.program, os.DirFS(src))
}
