// Package threadctx builds and runs a C program that publishes the contexts of its threads
// as OpenTelemetry's OTEP 4947 wants it, linked in every way in which a thread-local
// variable can be reached.
package threadctx

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

//go:embed src
var sources embed.FS

// Way is a way in which the program is linked, and reaches its variable.
type Way struct {
	Name    string
	program []string // options of the program
	library []string // options of the library that has the variable; nil: the program has it
	open    bool     // dlopen loads the library
	musl    bool     // with musl in the place of the machine's C library
}

// Ways lists all ways in which a program can be linked, with each of its C libraries.
func Ways() []Way { return WaysOn(runtime.GOARCH) }

// WaysOn lists those of an architecture, by its name in Go.
func WaysOn(goarch string) []Way {
	desc, trad := "gnu2", "gnu"
	if goarch == "arm64" {
		desc, trad = "desc", "trad"
	}
	export := []string{"-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"}
	ways := []Way{
		{Name: "static program", program: []string{"-static"}},
		{Name: "position-independent static program", program: append([]string{"-static-pie", "-fPIE"}, export...)},
		{Name: "program at fixed addresses", program: append([]string{"-no-pie"}, export...)},
		{Name: "position-independent program", program: append([]string{"-pie", "-fPIE"}, export...)},
		{Name: "library, initial-exec", library: []string{"-ftls-model=initial-exec"}},
		{Name: "library, general dynamic", library: []string{"-mtls-dialect=" + trad}},
		{Name: "library, descriptor", library: []string{"-mtls-dialect=" + desc}},
		{Name: "opened library, initial-exec", library: []string{"-ftls-model=initial-exec"}, open: true},
		{Name: "opened library, general dynamic", library: []string{"-mtls-dialect=" + trad}, open: true},
		{Name: "opened library, descriptor", library: []string{"-mtls-dialect=" + desc}, open: true},
		{Name: "program, descriptor", program: append([]string{"-fPIC", "-mtls-dialect=" + desc}, export...)},
		{Name: "program, initial-exec", program: append([]string{"-fPIC", "-ftls-model=initial-exec"}, export...)},
	}
	for _, w := range slices.Clone(ways) {
		if w.open && w.library[0] == "-ftls-model=initial-exec" {
			continue // musl's dynamic linker refuses it
		}
		w.Name, w.musl = "musl, "+w.Name, true
		ways = append(ways, w)
	}
	return ways
}

// Program is a program that was built.
type Program struct {
	args  []string
	files []string
}

// Files are the ELF files that it consists of, but for those of the system.
func (p *Program) Files() []string { return p.files }

// Musl reports whether the program has musl for its C library.
func (w *Way) Musl() bool { return w.musl }

// In is the program that Compile has made in a directory, or that was copied there.
func (w *Way) In(dir string) *Program {
	path, library := filepath.Join(dir, "threadctx"), filepath.Join(dir, "libctx.so")
	p := &Program{args: []string{path}, files: []string{path}}
	if w.library != nil {
		p.files = append(p.files, library)
	}
	if w.open {
		p.args = append(p.args, library)
	}
	return p
}

// Compile makes the program in a directory, which its files may leave together.
func (w *Way) Compile(ctx context.Context, compiler, dir string) (*Program, error) {
	if err := os.CopyFS(dir, sources); err != nil {
		return nil, err
	}
	p := w.In(dir)
	src, path, library := filepath.Join(dir, "src"), p.files[0], p.files[len(p.files)-1]
	_, here, _, _ := runtime.Caller(0)
	client := filepath.Join(filepath.Dir(here), "../../../clients/c")
	compile := func(args ...string) error {
		args = append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I" + client}, args...)
		out, err := exec.CommandContext(ctx, compiler, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %v: %w: %s", compiler, args, err, out)
		}
		return nil
	}
	main, variable := filepath.Join(src, "main.c"), filepath.Join(src, "variable.c")
	if w.library == nil {
		return p, compile(append(w.program, "-o", path, main, variable)...)
	}
	if err := compile(append(w.library, "-shared", "-fPIC", "-Wl,-soname,libctx.so", "-o", library, variable)...); err != nil {
		return nil, err
	}
	if w.open {
		return p, compile("-DOPEN_LIBRARY", "-o", path, main, "-ldl")
	}
	return p, compile("-o", path, main, library, "-Wl,-rpath,$ORIGIN:"+dir) // without /proc, there is no $ORIGIN
}

// Build builds the program. Without a C compiler the test is skipped.
func (w *Way) Build(t testing.TB) *Program {
	t.Helper()
	compiler := "gcc"
	if w.musl {
		compiler = "musl-gcc"
	}
	gcc, err := exec.LookPath(compiler)
	switch {
	case err != nil && w.musl:
		t.Skip("needs musl-gcc, to build a program with musl (apt install musl-tools)")
	case err != nil:
		t.Skip("needs gcc, to build a program that publishes contexts (apt install gcc libc6-dev)")
	}
	dir, err := os.MkdirTemp("", "tailcam-threadctx-") // not t.TempDir: others may have to read it
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	assert.NilError(t, os.Chmod(dir, 0o755))
	p, err := w.Compile(t.Context(), gcc, dir)
	assert.NilError(t, err)
	return p
}

// Process is the program at work. It waits until Go is called.
type Process struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	out   *bufio.Scanner
	t     testing.TB
}

// Start starts it; see src/main.c for the arguments. It ends with the test.
func (p *Program) Start(t testing.TB, args ...string) *Process {
	t.Helper()
	return start(t, p.command(t, args))
}

func (p *Program) command(t testing.TB, args []string) *exec.Cmd {
	return exec.CommandContext(t.Context(), p.args[0], append(p.args[1:len(p.args):len(p.args)], args...)...)
}

// StartContained is Start in a container: with a root directory that has nothing but the files that
// it needs, which are gone from here, and as process 1 of a pid namespace. Needs root.
func (p *Program) StartContained(t testing.TB, args ...string) *Process {
	t.Helper()
	root := t.TempDir()
	for _, path := range p.files {
		list, _ := exec.CommandContext(t.Context(), "ldd", path).Output() // it fails for static programs, which need none
		for _, word := range strings.Fields(string(list)) {
			if filepath.IsAbs(word) && !slices.Contains(p.files, word) {
				install(t, root, word)
			}
		}
	}
	for _, path := range p.files {
		install(t, root, path)
	}
	for _, path := range p.files {
		assert.NilError(t, os.Remove(path))
	}
	cmd := p.command(t, args)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	return start(t, cmd)
}

// install copies a file to the same path below a root.
func install(t testing.TB, root, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	to := filepath.Join(root, path)
	assert.NilError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	assert.NilError(t, os.WriteFile(to, text, 0o755))
}

func start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	assert.NilError(t, err)
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	s := &Process{cmd: cmd, input: input, out: bufio.NewScanner(out), t: t}
	assert.Assert(t, s.out.Scan() && s.out.Text() == "ready", "it says %q", s.out.Text())
	return s
}

// PID is its process id.
func (s *Process) PID() int { return s.cmd.Process.Pid }

// Go lets it begin.
func (s *Process) Go() {
	s.t.Helper()
	_, err := s.input.Write([]byte("go\n"))
	assert.NilError(s.t, err)
}

// Place is what a thread says of itself.
type Place struct {
	TID      int    `json:"tid"`
	Pointer  uint64 `json:"pointer"`  // the thread pointer
	Variable uint64 `json:"variable"` // address
}

// Places reads n places. The process goes on until Wait.
func (s *Process) Places(n int) []Place { return lines[Place](s, n) }

// Sleep is a slow system call, with the context that it has.
type Sleep struct {
	Kind    string `json:"kind"` // good: it must be reported; torn: if reported, then whole; otherwise it must not
	PID     int    `json:"pid"`
	TID     int    `json:"tid"`
	Start   uint64 `json:"start_ns"`
	End     uint64 `json:"end_ns"`
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id"`
	Route   string `json:"route"`          // its attribute http.route
	Other   string `json:"other_trace_id"` // of the thread that was in the way
}

// Sleeps returns the next n of what it does. The process goes on until Wait.
func (s *Process) Sleeps(n int) []Sleep { return lines[Sleep](s, n) }

// Wait waits for its end, and returns what it did.
func (s *Process) Wait() []Sleep {
	s.t.Helper()
	list := lines[Sleep](s, -1)
	assert.NilError(s.t, s.input.Close())
	assert.NilError(s.t, s.cmd.Wait())
	return list
}

// End ends what printed its places.
func (s *Process) End() {
	s.t.Helper()
	assert.NilError(s.t, s.input.Close())
	assert.NilError(s.t, s.cmd.Wait())
}

// Kill ends it at once.
func (s *Process) Kill() {
	s.t.Helper()
	assert.NilError(s.t, s.cmd.Process.Kill())
	_ = s.cmd.Wait() // it was killed
}

func lines[T any](s *Process, n int) (list []T) {
	s.t.Helper()
	for len(list) != n && s.out.Scan() {
		var v T
		assert.NilError(s.t, json.Unmarshal(s.out.Bytes(), &v), "%s", s.out.Text())
		list = append(list, v)
	}
	return list
}
