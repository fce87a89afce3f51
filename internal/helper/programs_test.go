package helper

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	support "github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/stuckfs"
)

const staticSource = `
__asm__(".pushsection .probes,\"aw\"\n.type sem, @object\n.globl sem\nsem: .short 0\n.popsection");
int wanted(int n) { return n + 1; }
int main(void) {
	__asm__ volatile("990: nop\n.pushsection .note.stapsdt,\"?\",\"note\"\n.balign 4\n.4byte 992f-991f,994f-993f,3\n"
		"991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b\n.8byte 0\n.8byte sem\n"
		".asciz \"maker\"\n.asciz \"begin\"\n.asciz \"-4@$7\"\n994: .balign 4\n.popsection");
	return wanted(1);
}`

// withProbes compiles a program that has a usdt probe, and returns its path.
func withProbes(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, path := filepath.Join(dir, "p.c"), filepath.Join(dir, "p")
	assert.NilError(t, os.WriteFile(source, []byte(staticSource), 0o600))
	support.Compile(t, "gcc", "-O1", "-static", "-o", path, source)
	return path
}

// offsetOf is where debug/elf finds a function.
func offsetOf(t *testing.T, path, name string) (offset, size uint64) {
	t.Helper()
	f, err := elf.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	list, err := f.Symbols()
	assert.NilError(t, err)
	for _, s := range list {
		if s.Name != name {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && s.Value >= p.Vaddr && s.Value < p.Vaddr+p.Filesz {
				return s.Value - p.Vaddr + p.Off, s.Size
			}
		}
	}
	t.Fatalf("no function %s", name)
	return 0, 0
}

func TestPrograms(t *testing.T) {
	h := newHelper(t, Options{})
	path := withProbes(t)
	offset, size, err := h.Function(path, "wanted")
	o, s := offsetOf(t, path, "wanted")
	assert.Check(t, err == nil && offset == o && size == s,
		"function at %#x of %d bytes, %v; want %#x, %d", offset, size, err, o, s)
	list, err := h.Static(path, "maker", "begin")
	assert.Check(t, err == nil && len(list) == 1 && list[0].Offset != 0 && list[0].Semaphore != 0 &&
		list[0].Args == "-4@$7", "%+v, %v", list, err)
	assert.Check(t, h.Answers(path))
	text := filepath.Join(filepath.Dir(path), "p.c")
	fifo := filepath.Join(filepath.Dir(path), "fifo")
	assert.NilError(t, exec.Command("mkfifo", fifo).Run())
	for _, c := range []struct{ path, name, want string }{
		{path, "wantd", `did you mean "wanted"`},
		{path, "nothing_like_it_at_all", "unknown function"},
		{text, "main", "neither a program"},
		{fifo, "main", "neither a program"},
		{"/dev/zero", "main", "neither a program"},
		{path + "x", "main", "not found"},
		{filepath.Dir(path), "main", "neither a program"},
		{strings.Repeat("/x", 5000), "main", "too long"},
	} {
		if _, _, err := h.Function(c.path, c.name); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), c.path[:min(16, len(c.path))]) {
			t.Errorf("%.64s %s: %v; want %q", c.path, c.name, err, c.want)
		}
	}
	_, err = h.Static(path, "maker", "end")
	assert.Check(t, is.ErrorContains(err, "maker:begin"), "no such probe")
	_, err = h.Static("/bin/true", "maker", "end")
	assert.Check(t, is.ErrorContains(err, "no usdt probes"), "no probes")
	if s := h.Stats(); s.Killed != 0 {
		t.Errorf("%d helpers were killed", s.Killed)
	}
}

// Programs that are made to hurt who parses them, and such that do not answer,
// cost a helper at most, and a few seconds in all.
func TestHostilePrograms(t *testing.T) {
	h := newHelper(t, Options{})
	path := withProbes(t)
	stuck := stuckfs.Mount(t, "program", path)
	_, _, err := h.Function(stuck.Path(), "wanted")
	assert.Check(t, err, "a file system that answers")
	hung := stuckfs.Mount(t, "other", path)
	hung.Hang()
	begin := time.Now()
	_, _, err = h.Function(support.Overlapping(t), "wanted")
	assert.Check(t, err != nil, "the hostile program has the function")
	for range 20 {
		_, _, err := h.Function(hung.Path(), "wanted")
		assert.Check(t, is.ErrorContains(err, "does not answer"), "a file system that hangs")
		assert.Check(t, h.Answers(hung.Path()) != nil, "a file system that hangs answers")
	}
	took := time.Since(begin)
	assert.Check(t, took <= 10*time.Second, "that took %v", took)
	_, _, err = h.Function(path, "wanted")
	assert.Check(t, err, "another program")
	hung.Answer()
}

func TestSilent(t *testing.T) {
	var s unresponsive
	now := time.Now()
	s.add("/a", now)
	this, others := s.refuse("/a", now)
	assert.Check(t, this && !others, "one that is silent is asked again, or others are not")
	s.add("/b", now)
	this, others = s.refuse("/c", now)
	assert.Check(t, !this && others, "with two that are silent, others are asked")
	this, others = s.refuse("/a", now.Add(unresponsiveTime+time.Second))
	assert.Check(t, !this && !others, "it is refused for ever")
}
