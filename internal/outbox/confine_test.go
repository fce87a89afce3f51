package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// confinedRole tries what a sender may not do.
const confinedRole = "tailcam-test-confined"

func tryConfined(text string) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Println(err)
		return
	}
	err := confine(&j)
	if err != nil && !strings.Contains(err.Error(), "build without cgo") { // as the tests are
		fmt.Println("confine:", err)
	}
	for _, name := range []string{"/etc/passwd", "/proc/self/environ", filepath.Join(filepath.Dir(j.Spool), "snapshots", "x")} {
		if _, err := os.ReadFile(name); !errors.Is(err, fs.ErrPermission) {
			fmt.Println("read", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(j.Credentials), "x"), nil, 0o600); !errors.Is(err, fs.ErrPermission) {
		fmt.Println("write", err)
	}
	if _, err := os.ReadFile(j.Credentials); err != nil {
		fmt.Println("credentials", err)
	}
	if err := os.WriteFile(filepath.Join(j.Spool, "x"), nil, 0o600); err != nil {
		fmt.Println("spool", err)
	}
	fmt.Println("tried")
}

// TestSenderConfined: a sender reads its credentials, writes its spool, and opens nothing else.
func TestSenderConfined(t *testing.T) {
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 {
		t.Skipf("no Landlock on this kernel: %v", errno)
	}
	dir := t.TempDir()
	j := &job{Spool: filepath.Join(dir, "spool"), Target: "https://host/", Credentials: filepath.Join(dir, "keys", "token")}
	for _, d := range []string{j.Spool, filepath.Dir(j.Credentials), filepath.Join(dir, "snapshots")} {
		assert.NilError(t, os.Mkdir(d, 0o755))
	}
	assert.NilError(t, os.WriteFile(j.Credentials, []byte("x"), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "snapshots", "x"), []byte("x"), 0o600))
	line, err := json.Marshal(j)
	assert.NilError(t, err)
	out, err := exec.Command("/proc/self/exe", confinedRole, string(line)).CombinedOutput()
	assert.Check(t, err == nil && string(out) == "tried\n", "%v\n%s", err, out)
}
