package child

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
)

// BuildTailcam builds the program from the sources below root, which are seen
// from the working directory. That tests notice changes of the sources, it looks
// at the files with these extensions: go test knows which files a test program
// looks at, not what go build reads.
func BuildTailcam(root, path string, extensions ...string) error {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if err == nil && slices.Contains(extensions, filepath.Ext(path)) {
			_, err = os.Stat(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-o", path, "github.com/tailcam/tailcam/cmd/tailcam")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// BuildNarrow builds the 32-bit program (test/support/narrow), for x86.
func BuildNarrow(path string) error {
	cmd := exec.Command("go", "build", "-o", path, "github.com/tailcam/tailcam/test/support/narrow")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=386")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// Output collects what a program prints, and can be read meanwhile.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// States are those of a process's threads, a letter each (proc_pid_stat(5)).
func States(pid int) (all string) {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // a constant pattern
	for _, path := range stats {
		if stat, err := os.ReadFile(path); err == nil {
			all += string(stat[bytes.LastIndexByte(stat, ')')+2])
		}
	}
	return all
}
