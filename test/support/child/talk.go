package child

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Partner is a process that is talked to by pipes.
type Partner struct {
	*exec.Cmd
	In  io.WriteCloser // its standard input
	Out *bufio.Reader  // its standard output

	t testing.TB
}

// Talk starts cmd as a partner, whose standard error is that of this program unless it
// has another one. It is killed at the end of the test.
func Talk(t testing.TB, cmd *exec.Cmd) *Partner {
	t.Helper()
	in, err := cmd.StdinPipe()
	assert.NilError(t, err)
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	assert.NilError(t, Start(cmd))
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill() // it may have ended, and been waited for
		_ = cmd.Wait()
	})
	return &Partner{Cmd: cmd, In: in, Out: bufio.NewReader(out), t: t}
}

// Line is the next line that it writes.
func (p *Partner) Line() string {
	p.t.Helper()
	line, err := p.Out.ReadString('\n')
	assert.NilError(p.t, err, "%v", p.Args)
	return strings.TrimSuffix(line, "\n")
}

// End ends its input, and waits for its end.
func (p *Partner) End() error {
	p.In.Close()
	return p.Wait()
}
