package usdt

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
)

func TestParseArgs(t *testing.T) {
	for _, c := range []struct {
		machine elf.Machine
		text    string
		want    []Arg
	}{
		{elf.EM_X86_64, "", nil},
		{elf.EM_X86_64, "-4@%edi 8@-16(%rbp) 4@$-5 1@%al 2@(%rsp)", []Arg{
			{Size: 4, Signed: true, Register: 14 * 8}, {Size: 8, Register: 4 * 8, Memory: true, Disp: -16},
			{Size: 4, Constant: new(int64(-5))}, {Size: 1, Register: 10 * 8}, {Size: 2, Register: 19 * 8, Memory: true},
		}},
		{elf.EM_AARCH64, "-4@w0 8@[sp, 16] 4@5 8@[x19] 8@x30", []Arg{
			{Size: 4, Signed: true}, {Size: 8, Register: 31 * 8, Memory: true, Disp: 16}, {Size: 4, Constant: new(int64(5))},
			{Size: 8, Register: 19 * 8, Memory: true}, {Size: 8, Register: 30 * 8},
		}},
	} {
		got, err := ParseArgs(c.machine, c.text)
		assert.Check(t, err, "%q", c.text)
		d := cmp.Diff(c.want, got)
		assert.Check(t, d == "", "%q: (-want +got)\n%s", c.text, d)
	}
	for _, text := range []string{"4@", "x@%eax", "3@%eax", "4@%xmm0", "8@8(%rax,%rcx,8)", "4@variable(%rip)", "4@99999999999(%rax)", "%eax"} {
		got, err := ParseArgs(elf.EM_X86_64, text)
		assert.Check(t, err == nil && len(got) == 1 && got[0].Unknown != "",
			"%q: %+v, %v; want one that is unknown", text, got, err)
	}
}

const program = `
__asm__(".pushsection .probes,\"aw\"\n.type sem, @object\n.globl sem\nsem: .short 0\n.popsection");
int main(void) {
	__asm__ volatile("990: nop\n.pushsection .note.stapsdt,\"?\",\"note\"\n.balign 4\n.4byte 992f-991f,994f-993f,3\n"
		"991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b\n.8byte 0\n.8byte sem\n"
		".asciz \"maker\"\n.asciz \"begin\"\n.asciz \"-4@%0\"\n994: .balign 4\n.popsection" : : "nor"(7));
	return 0;
}`

func TestRead(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil || runtime.GOARCH != "amd64" {
		t.Skip("needs gcc on amd64")
	}
	dir := t.TempDir()
	source, path := filepath.Join(dir, "p.c"), filepath.Join(dir, "p")
	assert.NilError(t, os.WriteFile(source, []byte(program), 0o600))
	out, err := exec.CommandContext(t.Context(), gcc, "-o", path, source).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	probes, err := Read(path, "maker", "begin")
	assert.Assert(t, err == nil && len(probes) == 1, "%+v, %v", probes, err)
	p := probes[0]
	args, err := ParseArgs(elf.EM_X86_64, p.Args)
	assert.Check(t, p.Offset != 0 && p.Semaphore != 0 && err == nil && len(args) == 1 && args[0].Constant != nil &&
		*args[0].Constant == 7, "%+v, %+v, %v", p, args, err)
	_, err = Read(path, "maker", "end")
	assert.Check(t, errors.Is(err, ErrNone) && strings.Contains(err.Error(), "maker:begin"),
		"no such probe: %v", err)
	_, err = Read(source, "a", "b")
	assert.Check(t, err != nil, "a text has probes")
}

// FuzzArgs proves that any text is read without harm.
func FuzzArgs(f *testing.F) {
	for _, s := range []string{"-4@%edi 8@-16(%rbp) 4@$5", "-4@w0 8@[sp, 16] 4@5", "8@8(%rax,%rcx,8)", "@", "[[[", ")("} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, s string, arm bool) {
		machine := elf.EM_X86_64
		if arm {
			machine = elf.EM_AARCH64
		}
		args, err := ParseArgs(machine, s)
		assert.Check(t, err != nil || len(args) <= maxArgs, "%q has %d arguments", s, len(args))
		for _, a := range args {
			assert.Check(t, a.Unknown != "" || a.Size != 0 && a.Size <= 8 && a.Register <= 33*8,
				"%q was read as %+v", s, a)
		}
	})
}

// FuzzNotes proves the same of a section.
func FuzzNotes(f *testing.F) {
	f.Add([]byte("\x08\x00\x00\x00\x20\x00\x00\x00\x03\x00\x00\x00stapsdt\x00"))
	f.Fuzz(func(_ *testing.T, data []byte) { parseNotes(data) })
}
