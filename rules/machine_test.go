package rules

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLocalMachine(t *testing.T) {
	var h LocalMachine
	if uid, err := h.LookupUser("root"); err != nil || uid != 0 {
		t.Errorf("root is %d, %v", uid, err)
	}
	if _, err := h.LookupUser("nobody-has-this-name"); err == nil {
		t.Error("no error for an unknown user")
	}
	entries, err := os.ReadDir("/sys/block")
	if err == nil && len(h.Devices()) != len(entries) {
		t.Errorf("%d devices, want %d", len(h.Devices()), len(entries))
	}

	dir := t.TempDir()
	plain, program := filepath.Join(dir, "plain"), filepath.Join(dir, "program")
	for path, mode := range map[string]os.FileMode{plain: 0o600, program: 0o700} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
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
		if got != want {
			t.Errorf("%s %q, want %q", path, got, want)
		}
	}
}
