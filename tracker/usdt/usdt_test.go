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
)

func number(n int64) *int64 { return &n }

func TestParseArgs(t *testing.T) {
	for _, c := range []struct {
		machine elf.Machine
		text    string
		want    []Arg
	}{
		{elf.EM_X86_64, "", nil},
		{elf.EM_X86_64, "-4@%edi 8@-16(%rbp) 4@$-5 1@%al 2@(%rsp)", []Arg{
			{Size: 4, Signed: true, Register: 14 * 8}, {Size: 8, Register: 4 * 8, Memory: true, Disp: -16},
			{Size: 4, Constant: number(-5)}, {Size: 1, Register: 10 * 8}, {Size: 2, Register: 19 * 8, Memory: true},
		}},
		{elf.EM_AARCH64, "-4@w0 8@[sp, 16] 4@5 8@[x19] 8@x30", []Arg{
			{Size: 4, Signed: true}, {Size: 8, Register: 31 * 8, Memory: true, Disp: 16}, {Size: 4, Constant: number(5)},
			{Size: 8, Register: 19 * 8, Memory: true}, {Size: 8, Register: 30 * 8},
		}},
	} {
		got, err := ParseArgs(c.machine, c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q: (-want +got)\n%s", c.text, d)
		}
	}
	for _, text := range []string{"4@", "x@%eax", "3@%eax", "4@%xmm0", "8@8(%rax,%rcx,8)", "4@variable(%rip)", "4@99999999999(%rax)", "%eax"} {
		got, err := ParseArgs(elf.EM_X86_64, text)
		if err != nil || len(got) != 1 || got[0].Unknown == "" {
			t.Errorf("%q: %+v, %v; want one that is unknown", text, got, err)
		}
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
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), gcc, "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	probes, err := Read(path, "maker", "begin")
	if err != nil || len(probes) != 1 {
		t.Fatalf("%+v, %v", probes, err)
	}
	p := probes[0]
	args, err := ParseArgs(elf.EM_X86_64, p.Args)
	if p.Offset == 0 || p.Semaphore == 0 || err != nil || len(args) != 1 || args[0].Constant == nil || *args[0].Constant != 7 {
		t.Errorf("%+v, %+v, %v", p, args, err)
	}
	if _, err := Read(path, "maker", "end"); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "maker:begin") {
		t.Errorf("no such probe: %v", err)
	}
	if _, err := Read(source, "a", "b"); err == nil {
		t.Error("a text has probes")
	}
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
		if err == nil && len(args) > maxArgs {
			t.Errorf("%q has %d arguments", s, len(args))
		}
		for _, a := range args {
			if a.Unknown == "" && (a.Size == 0 || a.Size > 8 || a.Register > 33*8) {
				t.Errorf("%q was read as %+v", s, a)
			}
		}
	})
}

// FuzzNotes proves the same of a section.
func FuzzNotes(f *testing.F) {
	f.Add([]byte("\x08\x00\x00\x00\x20\x00\x00\x00\x03\x00\x00\x00stapsdt\x00"))
	f.Fuzz(func(_ *testing.T, data []byte) { parseNotes(data) })
}
