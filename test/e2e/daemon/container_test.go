package daemon

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestPIDNamespace: in a PID namespace of its own, as in a pod without hostPID, the daemon
// would blame the wrong processes. It does not start, says what to change, and leaves nothing.
func TestPIDNamespace(t *testing.T) {
	needRoot(t)
	unshare := needTool(t, "unshare", "util-linux")
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	cmd := exec.CommandContext(t.Context(), unshare, append([]string{"--pid", "--fork", "--mount-proc"}, h.command()...)...)
	// A service called tailcam in the pod's namespace.
	cmd.Env = append(cmd.Environ(), "TAILCAM_SERVICE_HOST=10.96.0.7", "TAILCAM_PORT=tcp://10.96.0.7:9191")
	a := outcome(t, cmd)
	assert.Check(t, a.code == 1 && strings.Contains(a.err, "hostPID: true") && strings.Count(a.err, "\n") <= 2, "%+v", a)
	_, err := os.Lstat(h.socket)
	assert.Check(t, errors.Is(err, os.ErrNotExist), "its socket is still there: %v", err)
}
