package skips

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is where tests run, and how.
type Machine struct {
	Root, CI, Unit bool
	Short, Race    bool
	Guest          string // kernel of a test guest, as test/vm names it; empty: this machine
}

// Here is this machine, for go test with these arguments.
func Here(args []string) *Machine {
	has := func(flag string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return strings.TrimLeft(a, "-") == flag && a != flag })
	}
	return &Machine{
		Root: os.Geteuid() == 0, CI: os.Getenv("CI") != "", Unit: os.Getenv("E2E_UNIT") != "",
		Short: has("short"), Race: has("race"),
	}
}

// condition decides on one machine; arg is what stands behind the name in the list.
type condition struct {
	wantsArg bool
	holds    func(m *Machine, arg string) bool
}

// here makes a condition that is about this machine, and never holds for a guest.
func here(holds func(m *Machine, arg string) bool) func(*Machine, string) bool {
	return func(m *Machine, arg string) bool { return m.Guest == "" && holds(m, arg) }
}

// conditions are all that the list may name.
var conditions = map[string]condition{
	"not-root": {false, here(func(m *Machine, _ string) bool { return !m.Root })},
	"short":    {false, here(func(m *Machine, _ string) bool { return m.Short })},
	"race":     {false, here(func(m *Machine, _ string) bool { return m.Race })},
	// The daemon runs as a service of the shipped unit.
	"unit": {false, here(func(m *Machine, _ string) bool { return m.Unit })},
	// The kernel of a guest; * stands for anything.
	"guest": {true, func(m *Machine, kernel string) bool {
		return m.Guest != "" && matchAny(globs([]string{kernel}), m.Guest)
	}},
	// Outside of the test guests.
	"no-guest": {false, here(func(*Machine, string) bool { return true })},
	// An environment variable that is not set.
	"unset": {true, here(func(_ *Machine, name string) bool { return os.Getenv(name) == "" })},
	// A program or file of a package that make installs: CI has no excuse.
	"missing": {true, here(func(m *Machine, what string) bool { return !m.CI && !present(what) })},
	// A program that the message names.
	"missing-named": {false, here(func(m *Machine, message string) bool {
		found := named.FindStringSubmatch(message)
		return found != nil && !m.CI && found[1] != "root" && !present(found[1]+found[2])
	})},
	// One that nothing installs.
	"optional": {true, here(func(_ *Machine, what string) bool { return !present(what) })},
	// A kernel without this line in /proc/devices or /proc/misc.
	"no-device": {true, here(func(_ *Machine, name string) bool { return !hasDevice(name) })},
	"no-ext4":   {false, here(func(*Machine, string) bool { return !onExt4(os.TempDir(), ".", "/var/tmp", "/") })},
	"no-landlock": {false, here(func(*Machine, string) bool {
		_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
		return errno != 0
	})},
	"no-narrow": {false, here(func(*Machine, string) bool { return !runsNarrow() })},
	"one-cpu":   {false, here(func(*Machine, string) bool { return runtime.NumCPU() == 1 })},
	"no-arch":   {true, here(func(_ *Machine, arch string) bool { return runtime.GOARCH != arch })},
	// Chance decides, and the test takes nobody's word but the kernel's.
	"chance": {false, func(*Machine, string) bool { return true }},
}

// present reports whether there is such a program, or such a file if it is a path.
func present(what string) bool {
	if strings.HasPrefix(what, "/") {
		_, err := os.Stat(what)
		return err == nil
	}
	_, err := exec.LookPath(what)
	return err == nil
}

// onExt4 reports whether one of these directories is on ext4.
func onExt4(dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		var fs unix.Statfs_t
		return unix.Statfs(dir, &fs) == nil && fs.Type == unix.EXT4_SUPER_MAGIC
	})
}

func hasDevice(name string) bool {
	for _, file := range []string{"/proc/devices", "/proc/misc"} {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 2 && f[1] == name {
				return true
			}
		}
	}
	return false
}

func checkCondition(text string) error {
	name, arg, _ := strings.Cut(text, " ")
	c, ok := conditions[name]
	if !ok || c.wantsArg != (arg != "") {
		return fmt.Errorf("invalid condition %q", text)
	}
	return nil
}

// holds evaluates a condition for a test that was skipped with a message.
func (m *Machine) holds(text, message string) bool {
	name, arg, _ := strings.Cut(text, " ")
	if name == "missing-named" {
		arg = message
	}
	return conditions[name].holds(m, arg)
}

// named finds the program in the message of a skip.
var named = regexp.MustCompile(`^needs ([a-z0-9+.-]+)(?:$| \(|[,:] | to build | of binutils)|^(\S+) is not installed`)
