package dirs

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestMake(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	dir := filepath.Join(t.TempDir(), "above", "dir")
	for _, c := range []struct {
		mode    fs.FileMode
		created bool
	}{{0o751, true}, {0o700, false}} {
		created, err := Make(dir, c.mode)
		assert.Check(t, err == nil && created == c.created, "created %t, %v; want %t", created, err, c.created)
		info, err := os.Stat(dir)
		assert.Check(t, err == nil && info.Mode().Perm() == 0o751, "mode %v, %v", info.Mode(), err)
	}
	file := filepath.Join(dir, "file")
	assert.NilError(t, os.WriteFile(file, nil, 0o600))
	_, err := Make(filepath.Join(file, "below"), 0o700)
	assert.Check(t, err != nil, "a directory was made below a file")
}
