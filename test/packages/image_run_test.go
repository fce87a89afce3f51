package packages

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/runtimes"
)

// configMap is a directory as Kubernetes mounts a ConfigMap: links to files in a hidden directory.
func configMap(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	version, err := os.MkdirTemp(dir, "..")
	assert.NilError(t, err)
	assert.NilError(t, os.Chmod(version, 0o755))
	for name, text := range files {
		assert.NilError(t, os.WriteFile(filepath.Join(version, name), []byte(text), 0o644))
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); !errors.Is(err, fs.ErrExist) {
			assert.NilError(t, err)
		}
	}
	// A change turns one link to another directory.
	assert.NilError(t, os.Symlink(filepath.Base(version), filepath.Join(dir, "..data_tmp")))
	assert.NilError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
}

// asKubernetes are the arguments of podman that make the container of the DaemonSet, with further
// rules in a directory; its state is in a directory of the test's. runDir is in the place of the
// host's /run; "": that is mounted.
func asKubernetes(t *testing.T, rulesDir, rules, runDir string) []string {
	t.Helper()
	set, maps := theDaemonSet(t)
	pod := &set.Spec.Template.Spec
	c := &pod.Containers[0]
	s := &c.SecurityContext
	maps["tailcam-rules"]["test.yaml"] = rules
	// Of the runtime: namespaces of its own for all but pids. Limits that need no CAP_SYS_RESOURCE.
	args := []string{
		"--cgroupns", "private", "--network", "none", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096",
		"--memory", strings.TrimSuffix(c.Resources.Limits["memory"], "i"),
	}
	if pod.HostPID {
		args = append(args, "--pid", "host")
	}
	if s.Privileged {
		args = append(args, "--privileged")
	}
	if !s.AllowPrivilegeEscalation {
		args = append(args, "--security-opt", "no-new-privileges")
	}
	if s.ReadOnlyRootFilesystem {
		args = append(args, "--read-only", "--read-only-tmpfs=false")
	}
	if s.SeccompProfile.Type == "Unconfined" {
		args = append(args, "--security-opt", "seccomp=unconfined")
	}
	for _, name := range s.Capabilities.Drop {
		args = append(args, "--cap-drop", name)
	}
	for _, name := range s.Capabilities.Add {
		args = append(args, "--cap-add", name)
	}
	for _, e := range c.Env {
		args = append(args, "--env", e.Name+"="+strings.ReplaceAll(e.Value, "$(NODE_NAME)", "node-1"))
	}
	from := map[string]string{}
	for _, v := range pod.Volumes {
		switch {
		case v.HostPath != nil && v.HostPath.Path == "/var/lib/tailcam":
			from[v.Name] = t.TempDir()
		case v.HostPath != nil && v.HostPath.Path == "/run" && runDir != "":
			from[v.Name] = runDir
		case v.HostPath != nil:
			from[v.Name] = v.HostPath.Path
		case v.ConfigMap != nil:
			from[v.Name] = t.TempDir()
			if v.ConfigMap.Name == "tailcam-rules" {
				from[v.Name] = rulesDir
			}
			configMap(t, from[v.Name], maps[v.ConfigMap.Name])
		case v.EmptyDir != nil:
			from[v.Name] = t.TempDir()
		}
	}
	for _, m := range c.VolumeMounts {
		assert.Assert(t, from[m.Name] != "", m.Name)
		option := map[string]string{"": ":rbind", "HostToContainer": ":rbind,rslave"}[m.Propagation]
		assert.Assert(t, option != "", m.Propagation)
		if m.ReadOnly {
			option += ",ro"
		}
		args = append(args, "--volume", from[m.Name]+":"+m.MountPath+option)
	}
	return args
}

// napComm names the thread whose naps are the outliers; napEnv makes this program that process.
const (
	napComm = "tc-image-nap"
	napEnv  = "TAILCAM_TEST_NAPS"
	naps    = 3
)

// napRule is a rule whose only outliers are naps.
func napRule() string {
	return "rules:\n  - name: nap\n    track: syscall\n    attach: all\n    threshold: 1ms\n    stacks: [kernel, user]\n" +
		"    when: {comm: " + napComm + ", syscall: clock_nanosleep}\n    snapshot: {after: 10ms}\n"
}

// nap sleeps in a system call that Go itself does not use, then stays until its input ends.
func nap() int {
	runtime.LockOSThread()
	name, err := unix.BytePtrFromString(napComm)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
	}
	if err != nil {
		return 1
	}
	for range naps {
		length := unix.NsecToTimespec((20 * time.Millisecond).Nanoseconds())
		if unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &length, nil) != nil {
			return 1
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startNaps starts such a process, which lives as long as the test.
func startNaps(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), napEnv+"=1")
	input, err := cmd.StdinPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		assert.Check(t, input.Close())
		assert.Check(t, cmd.Wait())
	})
	return cmd.Process.Pid
}

// TestImageRuns: as the DaemonSet runs it, with its capabilities, in namespaces of its own, with a
// read-only root and the runtime's seccomp filter, tailcam catches a latency of a process of the host,
// and knows its pid, command line, cgroup and stacks. Services called tailcam do not stop it, and a
// changed ConfigMap is in use without a restart.
func TestImageRuns(t *testing.T) {
	p := newPodman(t)
	p.do("load", "--quiet", "--input", theImage(t))
	set, maps := theDaemonSet(t)
	probe := set.Spec.Template.Spec.Containers[0].LivenessProbe.Exec.Command
	rulesDir := t.TempDir()
	args := append(asKubernetes(t, rulesDir, napRule(), ""),
		"--env", "TAILCAM_SERVICE_HOST=10.96.0.7", "--env", "TAILCAM_PORT=tcp://10.96.0.7:9191", "--env", "TAILCAM_PORT_9191_TCP_ADDR=10.96.0.7")
	p.do(append(append([]string{"run", "--detach", "--name", "tailcam"}, args...), "ghcr.io/tailcam/tailcam:"+imageVersion)...)
	inside := func(args ...string) (int, string, string) {
		t.Helper()
		return p.try(append([]string{"exec", "tailcam"}, args...)...)
	}
	logs := func() string {
		_, out, errOut := p.try("logs", "tailcam")
		return out + errOut
	}
	ready := func() bool {
		code, _, _ := inside(probe...)
		return code == 0 && strings.Contains(logs(), `"message":"watching"`)
	}
	for deadline := time.Now().Add(2 * time.Minute); !ready(); time.Sleep(200 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(deadline), "not ready:\n%s", logs())
		assert.Assert(t, strings.TrimSpace(p.do("inspect", "--format", "{{.State.Running}}", "tailcam")) == "true", "%s", logs())
	}

	pid := startNaps(t)
	var got []outlier
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		got = outliers(t, inside)
		if len(got) == naps && !slices.ContainsFunc(got, func(o outlier) bool { return o.Partial }) {
			break
		}
		assert.Assert(t, time.Now().Before(deadline), "%+v\n%s", got, logs())
	}
	for _, o := range got {
		assert.Check(t, is.Equal(o.Task.PID, pid))
		assert.Check(t, is.Contains(o.Task.Cmdline, "/proc/self/exe"))
		assert.Check(t, is.Equal(o.Task.Cgroup, ownCgroup(t)))
		assert.Check(t, is.Regexp(`(?m)^[A-Za-z_]\w*\+0x`, strings.Join(o.Stacks.Kernel, "\n")), "the kernel's symbols")
		// The innermost, as a helper that is late may read no more.
		assert.Check(t, is.Regexp(`^[A-Za-z_][\w./*()]*\+0x`, strings.Join(o.Stacks.User, "\n")), "the program's symbols")
	}
	explained := func() bool {
		code, out, _ := inside("/usr/bin/tailcam", "explain", got[0].Snapshot)
		return code == 0 && strings.Contains(out, napComm)
	}
	for deadline := time.Now().Add(2 * time.Minute); !explained(); time.Sleep(200 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(deadline), "not explained: %+v\n%s", got[0], logs())
	}
	assert.Check(t, !strings.Contains(logs(), "missing capability"), "%s", logs())

	maps["tailcam-rules"]["test.yaml"] = strings.Replace(napRule(), "nap", "changed", 1)
	configMap(t, rulesDir, maps["tailcam-rules"])
	listed := func() bool {
		_, out, _ := inside("/usr/bin/tailcam", "list", "rules")
		return strings.Contains(out, "\nchanged ")
	}
	for deadline := time.Now().Add(time.Minute); !listed(); time.Sleep(200 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(deadline), "the changed ConfigMap is not in use:\n%s", logs())
	}

	p.do("stop", "--time", "30", "tailcam")
	assert.Check(t, is.Equal(strings.TrimSpace(p.do("inspect", "--format", "{{.State.ExitCode}}", "tailcam")), "0"), logs())
}

// outlier has the fields that must be right.
type outlier struct {
	Partial  bool
	Snapshot string
	Task     struct {
		PID             int
		Cmdline, Cgroup string
		Pod, Namespace  string
	}
	Stacks struct{ Kernel, User []string }
}

// outliers are those that the daemon remembers.
func outliers(t *testing.T, inside func(...string) (int, string, string)) []outlier {
	t.Helper()
	code, text, errOut := inside("/usr/bin/tailcam", "events", "--rule", "nap", "-o", "json")
	assert.Assert(t, code == 0, "%s", errOut)
	var list []outlier
	for line := range strings.Lines(text) {
		var o outlier
		assert.NilError(t, json.Unmarshal([]byte(line), &o))
		list = append(list, o)
	}
	return list
}

// ownCgroup is the cgroup of this process in the second hierarchy.
func ownCgroup(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	assert.NilError(t, err)
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(path)
		}
	}
	t.Fatal("no cgroup v2")
	return ""
}

// TestImageNamesPods: as the DaemonSet runs it, tailcam has the names of pods from the runtime of the
// node, and calls the node by its name.
func TestImageNamesPods(t *testing.T) {
	p := newPodman(t)
	p.do("load", "--quiet", "--input", theImage(t))
	c := runtimes.StartContainerd(t)
	runDir := filepath.Join(filepath.Dir(c.Socket), "run") // on one file system, as a socket is not copied
	socket := filepath.Join(runDir, "containerd/containerd.sock")
	assert.NilError(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	assert.NilError(t, os.Link(c.Socket, socket))
	rules := "rules:\n  - name: nap\n    track: syscall\n    attach: all\n    threshold: 10ms\n" +
		"    when: {comm: nap, syscall: clock_nanosleep, pod: 'web-*'}\n    snapshot: {after: 10ms}\n"
	p.do(append(append([]string{"run", "--detach", "--name", "tailcam"}, asKubernetes(t, t.TempDir(), rules, runDir)...),
		"ghcr.io/tailcam/tailcam:"+imageVersion)...)
	inside := func(args ...string) (int, string, string) {
		t.Helper()
		return p.try(append([]string{"exec", "tailcam"}, args...)...)
	}
	logs := func() string {
		_, out, errOut := p.try("logs", "tailcam")
		return out + errOut
	}
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(logs(), `"message":"watching"`); time.Sleep(200 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(deadline), "not ready:\n%s", logs())
	}
	c.Run("shop", "web-1", "app", "20000", nil)
	c.Run("shop", "db-1", "app", "20000", nil)
	var got []outlier
	for deadline := time.Now().Add(2 * time.Minute); len(got) < 5 || got[0].Partial || got[0].Snapshot == ""; time.Sleep(200 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(deadline), "%+v\n%s", got, logs())
		got = outliers(t, inside)
	}
	for _, o := range got {
		assert.Check(t, o.Partial || o.Task.Pod == "web-1" && o.Task.Namespace == "shop", "%+v", o)
	}
	_, doctor, _ := inside("/usr/bin/tailcam", "doctor", "-o", "json")
	assert.Check(t, is.Contains(doctor, "their names are from cri:/host/run/containerd/containerd.sock"))
	_, shown, errOut := inside("/usr/bin/tailcam", "snapshots", "show", got[0].Snapshot)
	assert.Check(t, is.Contains(shown, "node-1, "), "%s", errOut)
	p.do("stop", "--time", "30", "tailcam")
}

// TestImageRefuses: what would blame wrong processes, or is misspelt, does not start, and says what to
// change.
func TestImageRefuses(t *testing.T) {
	p := newPodman(t)
	p.do("load", "--quiet", "--input", theImage(t))
	rules := napRule()
	for _, c := range []struct {
		change func([]string) []string
		says   string
	}{
		{func(args []string) []string { return replaced(args, "host", "private") }, "hostPID: true"},
		{func(args []string) []string { return append(args, "--env", "TAILCAM_RECORDER_SIZ=4MiB") }, `unknown variable "TAILCAM_RECORDER_SIZ"`},
		{func(args []string) []string { return replaced(args, "BPF", "AUDIT_WRITE") }, "missing CAP_BPF"},
	} {
		code, out, errOut := p.try(append(append([]string{"run", "--rm"}, c.change(asKubernetes(t, t.TempDir(), rules, ""))...), "ghcr.io/tailcam/tailcam:"+imageVersion)...)
		assert.Check(t, code == 1 && strings.Contains(errOut, c.says) && strings.Count(errOut, "\n") <= 3, "%d, %s%s", code, out, errOut)
	}
}

// replaced has one value instead of another.
func replaced(args []string, from, to string) []string {
	for i, a := range args {
		if a == from {
			args[i] = to
		}
	}
	return args
}
