// Package packages holds the tests of what `make packages` builds. They use the real tools: lintian,
// dpkg in a fresh Debian, rpm. `make test-packages` runs them.
package packages

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

const root = "../.."

func needTool(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s (apt install %s)", name, pkg)
	}
	return path
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: installs packages in a root of its own")
	}
}

// run runs a command that must succeed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	assert.NilError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
	return string(out)
}

// build makes the packages of a version.
func build(t *testing.T, dir, version string, arch ...string) {
	t.Helper()
	run(t, filepath.Join(root, "scripts/packages.sh"), append([]string{version, dir}, arch...)...)
}

var built struct {
	sync.Once
	dir string
}

// packages is a directory with v1.0.0 for both architectures, and v1.1.0-rc.1 for this one.
func packages(t *testing.T) string {
	t.Helper()
	if os.Getenv("NFPM") == "" {
		t.Skip("not under `make test-packages`")
	}
	built.Do(func() {
		built.dir = temporary(t)
		build(t, built.dir, "v1.0.0")
		build(t, built.dir, "v1.1.0-rc.1", host(t))
	})
	return built.dir
}

var temporaries []string

// temporary makes a directory for what several tests use. TestMain removes it.
func temporary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tailcam-packages-")
	assert.NilError(t, err)
	temporaries = append(temporaries, dir)
	return dir
}

func TestMain(m *testing.M) {
	if os.Getenv(napEnv) != "" {
		os.Exit(nap())
	}
	code := m.Run()
	for _, dir := range temporaries {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// host is the architecture of this machine in Go's words, and Debian's.
func host(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(run(t, "go", "env", "GOHOSTARCH"))
}

func deb(t *testing.T, version string) string {
	t.Helper()
	return one(t, "tailcam_"+version+"_"+host(t)+".deb")
}

func rpm(t *testing.T, version string) string {
	t.Helper()
	return one(t, "tailcam-"+version+"-1."+map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[host(t)]+".rpm")
}

func one(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(packages(t), name)
	_, err := os.Stat(path)
	assert.NilError(t, err)
	return path
}

// TestReproducible: built again, the packages have the same bytes.
func TestReproducible(t *testing.T) {
	first, again := packages(t), t.TempDir()
	build(t, again, "v1.0.0", host(t))
	entries, err := os.ReadDir(again)
	assert.NilError(t, err)
	assert.Check(t, is.Len(entries, 2))
	for _, e := range entries {
		assert.Check(t, is.Equal(sum(t, filepath.Join(first, e.Name())), sum(t, filepath.Join(again, e.Name()))), e.Name())
	}
}

func sum(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	assert.NilError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// TestArchitectures: there is a package of either kind for both, with a program for it.
func TestArchitectures(t *testing.T) {
	for file, machine := range map[string]elf.Machine{
		"tailcam_1.0.0_amd64.deb": elf.EM_X86_64, "tailcam_1.0.0_arm64.deb": elf.EM_AARCH64,
	} {
		dir := t.TempDir()
		run(t, "dpkg-deb", "-x", one(t, file), dir)
		program, err := elf.Open(filepath.Join(dir, "usr/bin/tailcam"))
		assert.NilError(t, err)
		assert.Check(t, is.Equal(program.Machine, machine), file)
		assert.NilError(t, program.Close())
	}
	one(t, "tailcam-1.0.0-1.x86_64.rpm")
	one(t, "tailcam-1.0.0-1.aarch64.rpm")
}

// TestLintian: Debian's own checker finds neither errors nor warnings.
func TestLintian(t *testing.T) {
	needTool(t, "lintian", "lintian")
	out := run(t, "lintian", "--allow-root", "--fail-on", "error,warning", deb(t, "1.0.0"))
	assert.Check(t, !strings.Contains(out, "E: ") && !strings.Contains(out, "W: "), "%s", out)
}

// TestManPages: mandoc finds nothing wrong with the installed manual pages.
func TestManPages(t *testing.T) {
	needTool(t, "mandoc", "mandoc")
	dir := t.TempDir()
	run(t, "dpkg-deb", "-x", deb(t, "1.0.0"), dir)
	run(t, "gzip", "-dr", filepath.Join(dir, "usr/share/man"))
	pages, err := filepath.Glob(filepath.Join(dir, "usr/share/man/man1/*.1"))
	assert.NilError(t, err)
	assert.Assert(t, len(pages) > 20)
	pages = append(pages, filepath.Join(dir, "usr/share/man/man5/tailcam.yaml.5"))
	run(t, "mandoc", append([]string{"-T", "lint", "-W", "warning"}, pages...)...)
	// Made by another program, whose use of macros mandoc finds odd.
	run(t, "mandoc", "-T", "lint", "-W", "error", filepath.Join(dir, "usr/share/man/man5/tailcam-rules.5"))
}

// TestCompletions: each shell accepts what was written for it.
func TestCompletions(t *testing.T) {
	dir := t.TempDir()
	run(t, "dpkg-deb", "-x", deb(t, "1.0.0"), dir)
	run(t, "bash", "-n", filepath.Join(dir, "usr/share/bash-completion/completions/tailcam"))
	for file, first := range map[string]string{
		"zsh/vendor-completions/_tailcam": "#compdef tailcam", "fish/vendor_completions.d/tailcam.fish": "# fish completion for tailcam",
	} {
		text, err := os.ReadFile(filepath.Join(dir, "usr/share", file))
		assert.NilError(t, err)
		assert.Check(t, strings.HasPrefix(string(text), first), "%s", file)
	}
}
