package rules

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestLocalMachine(t *testing.T) {
	var h LocalMachine
	uid, err := h.LookupUser("root")
	assert.Check(t, err == nil && uid == 0, "root is %d, %v", uid, err)
	_, err = h.LookupUser("nobody-has-this-name")
	assert.Check(t, err != nil, "no error for an unknown user")
	entries, err := os.ReadDir("/sys/block")
	if err == nil && len(h.Devices()) != len(entries) {
		t.Errorf("%d devices, want %d", len(h.Devices()), len(entries))
	}

	dir := t.TempDir()
	plain, program := filepath.Join(dir, "plain"), filepath.Join(dir, "program")
	for path, mode := range map[string]os.FileMode{plain: 0o600, program: 0o700} {
		assert.NilError(t, os.WriteFile(path, nil, mode))
	}
	for path, want := range map[string]string{
		program:                     "",
		plain:                       "is not executable",
		dir:                         "is not a regular file",
		filepath.Join(dir, "none"):  "does not exist",
		filepath.Join(plain, "sub"): "cannot be read: not a directory",
	} {
		got := ""
		if err := h.CheckExecutable(path); err != nil {
			got = err.Error()
		}
		assert.Check(t, is.Equal(got, want), "%s", path)
	}
}
