package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/forged"
)

// What a hostile pack may cost whoever looks at it.
const (
	mostMemory = 3 << 29
	mostCPU    = 30 * time.Second
)

// hostileVerbs are the commands that take a pack.
var hostileVerbs = []string{"explain %", "snapshots show %", "export % --format text -O -", "diff % %"}

// TestHostilePacks: each command ends with a pack that lies, leads elsewhere or is a bomb, or
// is valid and has such files, in bounded time and memory, without a crash, and leaves nothing
// behind.
func TestHostilePacks(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short")
	}
	binary := filepath.Join(t.TempDir(), "tailcam")
	assert.NilError(t, child.BuildTailcam("../..", binary, ".go", ".o", ".sh", ".yaml"))
	inside := forged.Inside(t, compressedSnapshot(t))
	for _, c := range append(forged.Hostile(t), inside...) {
		valid := false
		for _, other := range inside {
			valid = valid || c.Name == other.Name
		}
		t.Run(c.Name, func(t *testing.T) {
			file, tmp := filepath.Join(t.TempDir(), "x.tailcam"), t.TempDir()
			assert.NilError(t, os.WriteFile(file, c.Data, 0o600))
			for _, verb := range hostileVerbs {
				var stdout, stderr bytes.Buffer
				// Should it be worse than that, it does not take the machine along.
				cmd := exec.Command("/proc/self/exe", append([]string{measureRole, "/bin/sh", "-c", `ulimit -d 4194304; ulimit -t 120; exec "$@"`, "sh", binary},
					strings.Fields(strings.ReplaceAll(verb, "%", file))...)...)
				cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, []string{"TMPDIR=" + tmp, "HOME=" + tmp}
				in, out, err := os.Pipe()
				assert.NilError(t, err)
				cmd.ExtraFiles = []*os.File{out}
				assert.NilError(t, cmd.Start())
				assert.NilError(t, out.Close())
				var used syscall.Rusage
				assert.NilError(t, json.NewDecoder(in).Decode(&used))
				assert.NilError(t, in.Close())
				err = cmd.Wait()
				state, cpu := cmd.ProcessState, time.Duration(used.Utime.Nano()+used.Stime.Nano())
				t.Logf("%s: status %d, %d MiB, %s: %.200s", verb, state.ExitCode(), used.Maxrss>>10, cpu.Round(time.Millisecond), stderr.String())
				assert.Check(t, used.Maxrss<<10 < mostMemory && cpu < mostCPU, "%s: %d KiB, %s", verb, used.Maxrss, cpu)
				assert.Check(t, !strings.Contains(stdout.String()+stderr.String(), "\x1b"), "%s: an escape sequence", verb)
				if !valid || err != nil {
					assert.Check(t, state.ExitCode() == exitError && strings.HasPrefix(stderr.String(), "tailcam: ") && strings.Count(stderr.String(), "\n") == 1,
						"%s: status %d, %.500q", verb, state.ExitCode(), stderr.String())
				}
				if !valid {
					assert.Check(t, is.Contains(stderr.String(), c.Want), verb)
					assert.Check(t, stdout.Len() == 0, "%s: %.500q", verb, stdout.String())
				}
				left, err := os.ReadDir(tmp)
				assert.Check(t, err == nil && len(left) == 0, "%s left %v", verb, left)
			}
		})
	}
}

// measureRole runs a command, and tells what it has used: the peak of a process has that of
// the one that has started it, so this one is small.
const measureRole = "tailcam-test-measure"

func measure(argv []string) int {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	_ = cmd.Run() // its status is passed on
	var used syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used)
	if err == nil {
		err = json.NewEncoder(os.NewFile(3, "used")).Encode(&used)
	}
	if err != nil {
		return 99
	}
	return cmd.ProcessState.ExitCode()
}

// compressedSnapshot is the files of a snapshot that is explained, with a compressed trace.
func compressedSnapshot(t *testing.T) map[string][]byte {
	t.Helper()
	dir, ids := slowSnapshots(t)
	dir = filepath.Join(dir, ids[0])
	at := filepath.Join(dir, snapshot.TraceDir)
	assert.NilError(t, os.RemoveAll(at))
	assert.NilError(t, trace.Write(at, trace.Trace{
		CPUs: []trace.CPU{{CPU: 0, Records: []trace.Record{trace.MakeRecord(trace.SyscallEntry, 0, 7, 1_990_000_000)}}}, Compress: true,
		Env: trace.Env{KernelRelease: "6.18.0", Machine: "x86_64"}, SyscallName: func(int) string { return "read" },
	}))
	files := map[string][]byte{}
	assert.NilError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files[name], err = os.ReadFile(filepath.Join(dir, name))
		}
		return err
	}))
	return files
}
