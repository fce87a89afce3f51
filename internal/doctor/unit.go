package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const unitName = "tailcam.service"

// unitDirs are where systemd looks for units, the first wins.
var unitDirs = []string{
	"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
	"/lib/systemd/system",
}

func checkUnit(_ *Options, f facts) []Result {
	if info, err := os.Stat("/run/systemd/system"); err != nil || !info.IsDir() { // as sd_booted(3)
		return []Result{pass("systemd does not manage this machine", "start \"tailcam run\" with what does")}
	}
	results := unitFiles("/")
	if f.daemon != nil {
		results = append(results, sandbox("/proc", f.daemon.PID)...)
	}
	return results
}

// unitFiles looks at the unit's files below root.
func unitFiles(root string) []Result {
	found := ""
	for _, dir := range unitDirs {
		path := filepath.Join(root, dir, unitName)
		if target, err := os.Readlink(path); err == nil && target == "/dev/null" {
			return []Result{warn(unitName+" is masked", "it does not start", "systemctl unmask tailcam")}
		}
		if _, err := os.Stat(path); err == nil {
			found = path
			break
		}
	}
	if found == "" {
		return []Result{warn(unitName+" is not installed",
			"the daemon does not start with the machine", "install a package, or: sudo make install")}
	}
	r := pass(found)
	var more []string
	enabled := false
	for _, dir := range unitDirs {
		dropIns, _ := filepath.Glob(filepath.Join(root, dir, unitName+".d", "*.conf")) // the pattern is valid
		more = append(more, dropIns...)
		wants, _ := filepath.Glob(filepath.Join(root, dir, "*.wants", unitName))
		enabled = enabled || len(wants) > 0
	}
	if len(more) > 0 {
		r.Why = "changed by " + strings.Join(more, ", ")
	}
	if !enabled {
		return []Result{r, warn(unitName+" is not enabled",
			"the daemon does not start with the machine", "systemctl enable --now tailcam")}
	}
	return []Result{r}
}

// sandbox tells whether a daemon that runs as the unit has its restrictions.
func sandbox(proc string, pid int) []Result {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	cgroup, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // in another PID namespace
	case err != nil || !strings.Contains(string(cgroup), "/"+unitName):
		return []Result{pass("the daemon does not run as the unit")}
	}
	fields := map[string]string{}
	for line := range strings.Lines(read(filepath.Join(dir, "status"))) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	if fields["Seccomp"] != "2" || fields["NoNewPrivs"] != "1" {
		return []Result{warn("the daemon runs without the unit's sandbox",
			"it can do more than it needs: NoNewPrivs "+fields["NoNewPrivs"]+", Seccomp "+fields["Seccomp"],
			"systemctl cat tailcam, and remove the drop-in that turns it off")}
	}
	return []Result{pass("the daemon runs in the unit's sandbox")}
}
