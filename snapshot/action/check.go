package action

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tailcam/tailcam/rules"
)

// searchPath is the PATH of actions.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Check reports whether an action can start: its user exists and may execute the
// program. An empty user is the daemon's own; apply actions.user first.
func Check(a rules.Action) error {
	id, err := lookup(a.User)
	if err != nil {
		return fmt.Errorf("action: %w", err)
	}
	if _, err := resolve(a.Run, id); err != nil {
		return fmt.Errorf("action: %w", err)
	}
	return nil
}

// resolve returns the path of an action's program.
func resolve(run []string, id *identity) (path string, err error) {
	if len(run) == 0 || run[0] == "" {
		return "", errors.New("run is empty: give a program and its arguments")
	}
	for _, arg := range run {
		if strings.ContainsRune(arg, 0) {
			return "", fmt.Errorf("run %q: an argument contains a NUL byte", run)
		}
	}
	prog := run[0]
	if !strings.Contains(prog, "/") {
		for dir := range strings.SplitSeq(searchPath, ":") {
			path := filepath.Join(dir, prog)
			if executable(path, id) == nil {
				return path, nil
			}
		}
		return "", fmt.Errorf("program %q is not in %s: give its full path", prog, searchPath)
	}
	if !filepath.IsAbs(prog) {
		return "", fmt.Errorf("program %q: give its full path, beginning with a slash", prog)
	}
	if err := executable(prog, id); err != nil {
		return "", err
	}
	if err := interpreter(prog); err != nil {
		return "", err
	}
	return prog, nil
}

// executable returns an error if the identity cannot execute a file.
func executable(path string, id *identity) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && info.IsDir() && !id.mayExecute(st) {
				return fmt.Errorf("program %s: user %s may not enter %s: allow it (chmod o+x), or move the program", path, id, dir)
			}
		}
		if dir == "/" {
			break
		}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("program %s does not exist", path)
	case err != nil:
		return fmt.Errorf("program %s: %w", path, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("program %s is not a file", path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && !id.mayExecute(st) {
		return fmt.Errorf("program %s: user %s may not execute it: chmod +x", path, id)
	}
	return nil
}

// interpreter checks the interpreter of a script. The kernel's error for a missing one
// would say that the script does not exist.
func interpreter(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // execute-only
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "#!") {
		return nil
	}
	fields := strings.Fields(line[2:])
	if len(fields) == 0 {
		return fmt.Errorf("program %s: no interpreter in its first line", path)
	}
	if _, err := os.Stat(fields[0]); err != nil {
		return fmt.Errorf("program %s: its interpreter %s: %w", path, fields[0], errors.Unwrap(err))
	}
	return nil
}
