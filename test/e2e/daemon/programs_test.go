package daemon

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/stuckfs"
)

// overlapping writes a program with many sections whose long names overlap: of
// these 5 MB debug/elf makes gigabytes.
func overlapping(t *testing.T) string {
	t.Helper()
	const sections, names = 0xfe00, 1 << 20
	var b bytes.Buffer
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Shoff: 64, Shentsize: 64, Shnum: sections, Shstrndx: 1,
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	parts := []any{h}
	for i := range uint32(sections) {
		parts = append(parts, elf.Section64{Name: i, Type: uint32(elf.SHT_STRTAB), Off: 64 + 64*sections, Size: names})
	}
	for _, p := range parts {
		assert.NilError(t, binary.Write(&b, binary.LittleEndian, p))
	}
	b.Write(append(bytes.Repeat([]byte{'A'}, names-1), 0))
	path := filepath.Join(t.TempDir(), "overlapping")
	assert.NilError(t, os.WriteFile(path, b.Bytes(), 0o755))
	return path
}

// functionRule is a rule over the calls of a function of a program.
func functionRule(name, path, function string) string {
	return "  - {name: " + name + ", track: pair, entry: 'uprobe:" + path + ":" + function + "', exit: 'uretprobe:" + path + ":" + function +
		"', key: tid, threshold: 1ms, snapshot: false}\n"
}

// TestHostileTargets: rules over a program that is made to hurt who parses it,
// and over one that nobody answers for, are inactive and say why. The others
// run, also across a reload, and the daemon ends when it is told to.
func TestHostileTargets(t *testing.T) {
	needRoot(t)
	compiler := needTool(t, "gcc", "gcc libc6-dev")
	program := filepath.Join(t.TempDir(), "napper")
	text, err := exec.Command(compiler, "-O2", "-static", "-o", program, "testdata/napper.c").CombinedOutput()
	assert.NilError(t, err, "%s", text)
	hung := stuckfs.Mount(t, "napper", program)
	hung.Hang()
	t.Cleanup(hung.Answer)
	uid := newUID()
	list := rulesFile(napRule("nap", uid, "snapshot: false")) +
		functionRule("hostile", overlapping(t), "main") + functionRule("hung", hung.Path(), "main") +
		functionRule("absent", program, "no_such_function") + functionRule("fine", program, "main")
	h := newHome(t, list)
	begin := time.Now()
	d := h.start(t)
	t.Logf("the daemon watches after %v", time.Since(begin))
	inactive := func() {
		t.Helper()
		s := d.status()
		for name, want := range map[string]string{"hostile": "overlapping", "hung": "does not answer", "absent": "unknown function"} {
			r := rule(t, &s, name)
			assert.Check(t, strings.Contains(r.Inactive, want),
				"rule %s is inactive because of %q; want %q", name, r.Inactive, want)
		}
		good := []string{"nap", "fine"}
		if underUnit {
			good = good[:1] // perf_event_open gives uprobes to CAP_SYS_ADMIN only: see configs/systemd/programs.conf
		}
		for _, name := range good {
			r := rule(t, &s, name)
			assert.Check(t, r.Inactive == "", "rule %s is inactive: %s", name, r.Inactive)
		}
		n := uninterruptible(t, d.pid())
		assert.Check(t, n <= 0, "%d threads of the daemon hang in the kernel", n)
	}
	inactive()
	naps(t, uid, 2, 20*time.Millisecond, 1)
	eventually(t, "naps are told", func() bool { return len(d.events("nap")) >= 2 })

	d.signal(syscall.SIGHUP)
	eventually(t, "rules are read again", func() bool { return d.log.has("rules reloaded") })
	inactive()
	naps(t, uid, 2, 20*time.Millisecond, 1)
	eventually(t, "naps are told after the reload", func() bool { return len(d.events("nap")) >= 4 })

	a := tailcam(t, "check", "--load", h.rules)
	assert.Check(t, a.code != 0 && strings.Contains(a.err+a.out, "does not answer"),
		"check --load: exit status %d, %q", a.code, a.err)
	d.stop(syscall.SIGTERM)
}
