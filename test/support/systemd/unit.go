// Package systemd runs a daemon as a service of a real systemd, with the whole
// sandbox of a unit file: filter of system calls, capabilities, name spaces,
// limits. Needs root and the package systemd, not systemd as init.
//
// The manager is a user manager that root starts for one test, in the PID
// namespace of the machine and in control groups of its own. What a user manager
// cannot apply is done around it: /etc/group has the group tailcam, and where
// memory and pids are hierarchies of version 1, MemoryMax and TasksMax are set on
// control groups that the manager runs in. Not applied: the device policy that
// PrivateDevices adds to its private /dev.
package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Directive returns the values of a directive in a unit file, in their order.
func Directive(unit, name string) []string {
	var values []string
	for line := range strings.Lines(unit) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			values = append(values, value)
		}
	}
	return values
}

// stubs are the units that every unit wants by default: user managers would
// start all that the machine's packages hang on them.
var stubs = map[string]string{
	"basic.target":    "[Unit]\nDescription=basic\nDefaultDependencies=no\n",
	"shutdown.target": "[Unit]\nDescription=shutdown\nDefaultDependencies=no\n",
	// Refers to the service, so that the manager remembers how it ended.
	started: "[Unit]\nDescription=the test\nDefaultDependencies=no\nWants=" + service + "\n",
}

// writeUnits makes the directory that the manager reads: the unit file as it is,
// and a drop-in with what the test changes.
func writeUnits(t testing.TB, dir string, o *Options, unit string) {
	t.Helper()
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for name, text := range stubs {
		write(name, text)
	}
	write(service, unit)
	var s strings.Builder
	s.WriteString("[Service]\nExecStartPre=\nExecStart=\n")
	if o.Delegated {
		s.WriteString("ExecStartPre=" + commandLine([]string{"/bin/sh", "-c", `until [ -e "$0" ]; do sleep 0.05; done`, filepath.Join(o.Dir, delegated)}) + "\n")
	}
	if len(o.Pre) > 0 {
		s.WriteString("ExecStartPre=" + commandLine(o.Pre) + "\n")
	}
	s.WriteString("ExecStart=" + commandLine(o.Argv) + "\n")
	to := "append:" + o.Log
	if o.Journal {
		to = "journal"
	}
	fmt.Fprintf(&s, "StandardOutput=%s\nStandardError=%s\n", to, to)
	for _, path := range o.Writable {
		fmt.Fprintf(&s, "ReadWritePaths=%s\n", path)
	}
	if !o.Restart {
		s.WriteString("Restart=no\n")
	}
	write(service+".d/10-test.conf", s.String())
	for i, path := range o.DropIns {
		text, err := os.ReadFile(path)
		assert.NilError(t, err)
		write(fmt.Sprintf("%s.d/20-%d.conf", service, i), string(text))
	}
}

// commandLine quotes arguments as systemd.service(5) reads them.
func commandLine(argv []string) string {
	var quoted []string
	for _, arg := range argv {
		arg = strings.NewReplacer("%", "%%", "$", "$$").Replace(arg)
		quoted = append(quoted, strconv.Quote(arg))
	}
	return strings.Join(quoted, " ")
}

// parseSize reads a number with the suffix K, M or G.
func parseSize(s string) (int64, error) {
	if s == "" {
		return 0, fmt.Errorf("no size")
	}
	shift := map[byte]uint{'K': 10, 'M': 20, 'G': 30}[s[len(s)-1]]
	if shift > 0 {
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n << shift, err
}
