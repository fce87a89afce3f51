package child

import (
	"os/exec"
	"testing"

	"gotest.tools/v3/assert"
)

// Compile runs a compiler. Without it the test is skipped.
func Compile(t testing.TB, compiler string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("needs %s to build the program under test: %v", compiler, err)
	}
	text, err := exec.Command(compiler, args...).CombinedOutput()
	assert.NilError(t, err, "%s %q\n%s", compiler, args, text)
}
