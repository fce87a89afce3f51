package cleanup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const killCgroup = "kill-cgroup"

// KillCgroup kills all that runs in a control group, or below it, at the end of
// the test, and removes it. The group may be of either version.
func KillCgroup(t testing.TB, dir string) {
	t.Helper()
	start(t, killCgroup, dir)
}

// killTree kills and removes once; the caller tries again until it works.
func killTree(dir string) error {
	_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) // only version 2 has it
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		dirs = append(dirs, path)
		list, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for pid := range strings.FieldsSeq(string(list)) {
			if n, err := strconv.Atoi(pid); err == nil && n > 1 {
				_ = syscall.Kill(n, syscall.SIGKILL) // may have ended
			}
		}
		return err
	})
	for _, dir := range slices.Backward(dirs) {
		if e := os.Remove(dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
