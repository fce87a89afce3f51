package symbols

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
)

// build compiles a program of testdata and returns its path.
func build(t testing.TB, name string, compiler ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	child.Compile(t, compiler[0], append(compiler[1:], "-o", out)...)
	return out
}

func strip(t *testing.T, path string) {
	t.Helper()
	if text, err := exec.Command("strip", path).CombinedOutput(); err != nil {
		t.Skipf("needs strip of binutils: %v %s", err, text)
	}
}

// program is a running one and the addresses that it printed.
type program struct {
	pid   int
	addrs map[string]uint64
}

// start runs a program of testdata until the end of the test.
func start(t *testing.T, cmd *exec.Cmd, last string) *program {
	t.Helper()
	lines := bufio.NewScanner(child.Talk(t, cmd).Out)
	p := &program{pid: cmd.Process.Pid, addrs: map[string]uint64{}}
	for lines.Scan() {
		name, hex, _ := strings.Cut(lines.Text(), " ")
		addr, err := strconv.ParseUint(hex, 16, 64)
		assert.Assert(t, err == nil, "unexpected line %q", lines.Text())
		p.addrs[name] = addr
		if name == last {
			return p
		}
	}
	t.Fatalf("program ended before it printed %q", last)
	return nil
}

// frame resolves one printed address; as a return address if outer.
func (p *program) frame(t *testing.T, r *Resolver, name string, outer bool) string {
	t.Helper()
	addr, ok := p.addrs[name]
	assert.Assert(t, ok, "program did not print %q", name)
	if outer {
		return r.User(p.pid, []uint64{addr, addr}).Frames[1]
	}
	return r.User(p.pid, []uint64{addr}).Frames[0]
}

// wantFrame checks "symbol+0xOFF (module)" with any offset.
func wantFrame(t *testing.T, got, symbol, module string) {
	t.Helper()
	name, rest, ok := strings.Cut(got, "+0x")
	offset, mod, ok2 := strings.Cut(rest, " (")
	_, err := strconv.ParseUint(offset, 16, 32)
	assert.Check(t, ok && ok2 && err == nil && name == symbol && mod == module+")",
		"got %q, want %s+0x… (%s)", got, symbol, module)
}

// wantUnknown checks "[unknown] (module+0xOFF)" with any offset.
func wantUnknown(t *testing.T, got, module string) {
	t.Helper()
	assert.Check(t, strings.HasPrefix(got, "[unknown] ("+module+"+0x") && strings.HasSuffix(got, ")"),
		"got %q, want [unknown] (%s+0x…)", got, module)
}
